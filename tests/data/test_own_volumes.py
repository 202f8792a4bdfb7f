"""Folders of own volumes as a data set: classes, masks, splits by group, voxel sizes, and errors."""

import nibabel
import numpy as np
import pytest
import torch
from generators.tumor import write_nifti
from refusals import refused
from typer.testing import CliRunner

import xaibench as xb
from xaibench.cli import app
from xaibench.data import volume_folder
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.evaluation import MapFileError, read_maps

RNG = np.random.default_rng(0)
SCANS = RNG.integers(-1000, 1000, size=(6, 4, 5, 6)).astype(np.int16)
MASKS = (RNG.random((6, 4, 5, 6)) > 0.8).astype(np.uint8)


def name(number):
    return f"{('healthy', 'tumor')[number % 2]}/{number}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six scans in two classes; those of the class ``healthy`` have no masks. Scans 1 and 3 are of one patient."""
    place = tmp_path_factory.mktemp("scans")
    for number, scan in enumerate(SCANS):
        write_nifti(place / "image" / f"{name(number)}.nii.gz", scan, axes=("RAS", "LPS", "PIR")[number % 3])
        if number % 2:
            write_nifti(place / "mask" / f"{name(number)}.nii", MASKS[number])
    (place / "groups.csv").write_text("file,group\n1.nii.gz,x\n3.nii.gz,x\n")
    return place


def test_volumes_have_their_masks_whatever_the_axes_of_the_file(folder):
    data = xb.load(f"volumes:{folder}", negatives="healthy", window=(0, 2000), splits=(0, 0, 1))
    assert (data.classes, data.info.image_shape) == (("healthy", "tumor"), (1, 4, 5, 6))
    assert [len(split) for split in (data.train, data.val, data.test)] == [0, 0, 6]
    images, masks, targets = data.test[:]
    order = [0, 2, 4, 1, 3, 5]
    assert targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.allclose(images[:, 0], torch.from_numpy((SCANS[order] + 1000) / 2000).float().clamp(0, 1))
    assert np.array_equal(masks, MASKS[order] * (np.array(order) % 2)[:, None, None, None])
    assert data.test.metric_inputs(slice(0, 2))["spacing"].tolist() == pytest.approx(np.array([[2.5, 0.8, 0.8]] * 2))
    assert data.test.groups[3] == data.test.groups[4] != data.test.groups[5]
    assert repr(data.test) == "VolumeSplit(6 volumes, 1 channel)"


def test_patients_are_not_divided_and_classes_have_an_order(folder):
    data = xb.load(f"volumes:{folder}", classes="tumor", splits=(0.5, 0, 0.5))
    ids = [set(split.ids) for split in (data.train, data.test)]
    assert sorted(map(len, ids)) == [1, 2]
    assert {"image/tumor/1.nii.gz", "image/tumor/3.nii.gz"} in ids
    turned = xb.load(f"volumes:{folder}", classes="tumor,healthy", negatives="healthy", splits=(0, 0, 1)).test
    assert [turned.targets[list(turned.ids).index(one)] for one in ("image/tumor/1.nii.gz", "image/healthy/0.nii.gz")]
    assert xb.load(f"volumes:{folder}", include_unannotated=True, splits=(0, 0, 1)).test.meta[0]["annotated"] is False


def test_maps_of_ones_own_are_scored_in_millimeters(folder, tmp_path):
    split = xb.load(f"volumes:{folder}", classes="tumor", splits=(0, 0, 1)).test
    for number in (1, 3, 5):
        write_nifti(tmp_path / f"{number}.nii.gz", RNG.random(SCANS[0].shape).astype(np.float32), axes="LAS")
    maps = read_maps(tmp_path, split.ids)
    scores = xb.evaluate({"mine": maps}, split, metrics=["emd"]).scores
    mine = scores[scores["method"] == "mine"]["value"].to_numpy()
    assert mine.mean() == pytest.approx(xb.emd(maps, split.masks, spacing=(2.5, 0.8, 0.8)))
    assert mine.mean() != pytest.approx(xb.emd(maps, split.masks))


def test_what_is_missing_or_does_not_fit_is_named(folder, tmp_path):
    refused(MissingDataError, "no volumes", lambda: xb.load(f"volumes:{tmp_path}"))
    refused(MissingDataError, "negatives=", lambda: xb.load(f"volumes:{folder}"))
    refused(ValueError, "'tumour'", lambda: xb.load(f"volumes:{folder}", classes="tumour"))
    refused(ValueError, "3 splits", lambda: xb.load(f"volumes:{folder}", classes="tumor"))
    colored = {"classes": "tumor", "splits": (0, 0, 1), "normalize": ([0.5] * 3, [1.0] * 3)}
    refused(ValueError, "channels=", lambda: xb.load(f"volumes:{folder}", **colored))
    for below in ("image", "mask"):
        write_nifti(tmp_path / below / "a.nii", MASKS[0])
    image = nibabel.load(tmp_path / "image" / "a.nii")
    flipped = nibabel.Nifti1Image(np.asarray(image.dataobj), np.diag([-0.8, 0.8, 2.5, 1]))
    nibabel.save(flipped, tmp_path / "mask" / "a.nii")
    refused(DataFileError, "a.nii", lambda: xb.load(f"volumes:{tmp_path}", splits=(0, 0, 1)).test[0])


def test_maps_are_found_by_the_shortest_name_that_is_unique(tmp_path):
    ids = ["image/a/1.npy", "image/b/1.npy", "image/b/2.npy"]
    maps = RNG.random((3, 4, 5))
    for file, values in zip(("a/1.npy", "b/1.npy", "2.npy"), maps, strict=True):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        np.save(tmp_path / file, values)
    assert np.array_equal(read_maps(tmp_path, ids), maps)
    np.savez(tmp_path / "image.npz", maps[0])
    refused(MapFileError, "(image)", lambda: read_maps(tmp_path, ids))
    (tmp_path / "image.npz").rename(tmp_path / "1.npz")
    refused(MapFileError, "(1)", lambda: read_maps(tmp_path, ids))
    (tmp_path / "1.npz").rename(tmp_path / "b" / "2.npz")
    refused(MapFileError, "2.npy", lambda: read_maps(tmp_path, ids))
    (tmp_path / "b" / "2.npz").rename(tmp_path / "2.npz")
    refused(MapFileError, "2.npy", lambda: read_maps(tmp_path, ids))
    (empty := tmp_path / "empty").mkdir()
    refused(MapFileError, "empty", lambda: read_maps(empty, ids))


def test_commands_read_draw_and_score_them(folder, tmp_path):
    for number in (1, 3, 5):
        write_nifti(tmp_path / "maps" / f"{number}.nii", MASKS[number].astype(np.float32))
    name = f"volumes:{folder}"
    found = {
        command[0]: CliRunner().invoke(app, [str(word) for word in command])
        for command in (
            ("prepare", name, "--negatives", "healthy"),
            ("show", name, "--negatives", "healthy", "--out", tmp_path / "sheet.png"),
            ("score", tmp_path / "maps", "--dataset", name, "--classes", "tumor", "--split", "all"),
        )
    }
    assert {command: one.exit_code for command, one in found.items()} == dict.fromkeys(found, 0)
    assert "healthy  3        0" in found["prepare"].output
    assert (tmp_path / "sheet.png").stat().st_size > 1000
    assert "maps" in found["score"].output
    assert "1.000 [" in found["score"].output
    refused = CliRunner().invoke(app, ["show", name, "--size", "9"])
    assert "has no parameter 'size'" in refused.output


def test_each_file_is_read_once(tmp_path, monkeypatch):
    for below in ("image", "mask"):
        (tmp_path / below).mkdir()
        np.savez(tmp_path / below / "a.npz", SCANS[0] > 0)
    split = xb.load(f"volumes:{tmp_path}", splits=(0, 0, 1)).test
    read, files = volume_folder.read_values, []
    monkeypatch.setattr(volume_folder, "read_values", lambda file: files.append(file.parent.name) or read(file))
    assert split[0][0].shape == (1, 4, 5, 6)
    assert files == ["image", "mask"]
