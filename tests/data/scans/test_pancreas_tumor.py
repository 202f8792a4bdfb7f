import gzip
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from generators.medical import write_slice
from generators.tumor import DEPTH, TUMOUR, nibabel, scan, write, write_case, write_nifti, write_patient
from part_cases import DatasetCase
from refusals import refused

from xaibench.data.annotated import MissingDataError
from xaibench.data.scans.pancreas_tumor import tumor

CASES = {"tumor": DatasetCase(write=write)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("tumor")
    return root, write(root)


@pytest.fixture(scope="module")
def six_scans(tmp_path_factory):
    """Three of each class."""
    root = tmp_path_factory.mktemp("scans")
    for number in (1, 2, 3):
        write_case(root, f"pancreas_00{number}")
        write_patient(root / "Pancreas-CT", f"PANCREAS_000{number}")
    return root


@pytest.fixture
def root(six_scans, tmp_path):
    """A copy, to be changed."""
    return shutil.copytree(six_scans, tmp_path / "data")


def source_of(root, **own):
    return tumor(root=root, splits=(0, 0, 1), **own).test.source


def names(source):
    return [source.meta(index)["id"] for index in range(len(source))]


def test_slices_are_drawn_by_seed(written):
    root, _ = written
    drawn = [
        {meta["id"]: meta["slice"] for meta in tumor(root=root, seed=seed, splits=(0, 0, 1)).test.meta}
        for seed in range(8)
    ]
    for name in drawn[0]:
        slices = {one[name] for one in drawn}
        assert slices <= (set(TUMOUR) if name.startswith("pancreas") else set(range(DEPTH // 4, DEPTH - DEPTH // 4)))
        assert len(slices) > 1
    again = tumor(root=root, seed=3, splits=(0, 0, 1)).test
    assert {meta["id"]: meta["slice"] for meta in again.meta} == drawn[3]


def test_the_draw_in_one_scan_does_not_depend_on_the_others(root):
    before = {meta["id"]: meta["slice"] for meta in tumor(root=root, splits=(0, 0, 1)).test.meta}
    shutil.rmtree(root / "Pancreas-CT" / "PANCREAS_0001")
    after = {meta["id"]: meta["slice"] for meta in tumor(root=root, splits=(0, 0, 1)).test.meta}
    assert after == {name: slice_ for name, slice_ in before.items() if name != "PANCREAS_0001"}


@pytest.mark.parametrize("place", ["", "Pancreas-CT", "manifest-1/Pancreas-CT", "tcia/manifest-1/Pancreas-CT", "NIH"])
def test_where_the_negatives_may_lie(root, place):
    target = root / place
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in sorted((root / "Pancreas-CT").iterdir()):
        (root / "moved" / folder.name).parent.mkdir(exist_ok=True)
        folder.rename(root / "moved" / folder.name)
    (root / "Pancreas-CT").rmdir()
    target.mkdir(exist_ok=True)
    for folder in sorted((root / "moved").iterdir()):
        folder.rename(target / folder.name)
    assert len(source_of(root)) == 6


def test_without_negatives(root, caplog):
    shutil.rmtree(root / "Pancreas-CT")
    refused(MissingDataError, "classes=", lambda: source_of(root))
    assert names(source_of(root, classes="tumour")) == ["pancreas_001", "pancreas_002", "pancreas_003"]
    with caplog.at_level(logging.WARNING, "xaibench"):
        tumor.prepare(root)
    assert "no scan of the class 'no_tumor'" in caplog.text


def case(root, folder, number=2):
    return root / "Task07_Pancreas" / folder / f"pancreas_00{number}.nii.gz"


def write_full(value, shape=(9, 60, 80), kind=np.uint8):
    return lambda path: write_nifti(path, np.full(shape, value, kind))


def flip(path):
    label = nibabel.load(path)
    turned = np.diag([-1.0, 1.0, 1.0, 1.0]) @ label.affine
    nibabel.save(nibabel.Nifti1Image(np.asarray(label.dataobj), turned), path)


def state_too_many_voxels(path):
    head = nibabel.load(path).header.copy()
    head.set_data_shape((30000, 30000, 100))
    path.write_bytes(gzip.compress(head.binaryblock + bytes(4)))


IMAGE, LABEL = (rf"{folder}/pancreas_002\.nii\.gz " for folder in ("imagesTr", "labelsTr"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), IMAGE + "cannot be read"),
        (lambda path: path.write_text("hello"), IMAGE + "cannot be read"),
        (Path.unlink, IMAGE + "is missing"),
        (Path.unlink, LABEL + "is missing"),
        (write_full(2, (9, 60, 79)), LABEL + rf"has \[9, 60, 79\] voxels .*{IMAGE}has \[9, 60, 80\]"),
        (write_full(3), LABEL + r"has the labels \[3\], expected 0, 1 \(pancreas\) and 2"),
        (write_full(1.5, kind=np.float32), LABEL + r"has the labels \[1\.5\]"),
        (write_full(1), LABEL + r"has no tumor \(label 2\)"),
        (write_full(np.nan, kind=np.float32), IMAGE + "has NaN or infinite values"),
        (flip, LABEL + rf"is flipped relative to .*{IMAGE[:-1]}: .* to LAS and RAS"),
        (state_too_many_voxels, IMAGE + r"cannot be read \(it states 30000×30000×100 voxels"),
        (
            lambda path: path.write_bytes(path.read_bytes() + gzip.compress(bytes(2**20)) * 64),
            IMAGE + r"cannot be read \(it continues after",
        ),
    ],
)
def test_a_broken_case_is_named_and_the_others_go_on(root, damage, said, caplog):
    damage(case(root, said.partition("/")[0]))
    with caplog.at_level(logging.WARNING, "xaibench"):
        source = source_of(root)
    assert names(source) == [*(f"PANCREAS_000{n}" for n in (1, 2, 3)), "pancreas_001", "pancreas_003"]
    (line,) = [message for message in caplog.messages if message.startswith("pancreas_002 is left out: ")]
    assert re.search(said, line)


def test_a_broken_negative_is_named_and_the_others_go_on(root, caplog):
    folder = root / "Pancreas-CT"
    path = sorted(folder.glob("PANCREAS_0002/*/*/*.dcm"))[0]
    path.write_bytes(path.read_bytes()[:-2])
    for file in folder.glob("PANCREAS_0003/*/*/*.dcm"):
        file.unlink()
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert names(source_of(root, classes="no_tumor")) == ["PANCREAS_0001"]
    assert f"{path} cannot be read (its pixels are truncated)" in caplog.text
    assert "PANCREAS_0003 has no CT slices" in caplog.text


def test_the_largest_ct_series_of_a_patient_counts(root):
    patient = root / "Pancreas-CT" / "PANCREAS_0001"
    values = scan("x")[0][0]
    write_slice(patient / "study" / "scout" / "1.dcm", values, image="9", series="9", z=0)
    for number in range(20):
        write_slice(
            patient / "study" / "dose" / f"{number}.dcm", values, image="8", series="8", z=number, Modality="SR"
        )
    source = source_of(root, classes="no_tumor")
    assert "/series/" in source.meta(0)["file"]


def test_a_slice_that_is_overwritten_where_it_lies_is_read_anew(root, caplog):
    assert len(source_of(root, classes="no_tumor")) == 3
    path = sorted(root.glob("Pancreas-CT/PANCREAS_0002/*/*/*.dcm"))[0]
    path.write_bytes(path.read_bytes()[:-2])
    assert names(source_of(root, classes="no_tumor")) == ["PANCREAS_0001", "PANCREAS_0003"]
    assert f"{path} cannot be read" in caplog.text


def test_fractions_of_hounsfield_units_are_kept(root):
    values = scan("pancreas_002")[0] + np.float32(0.25)
    write_nifti(case(root, "imagesTr"), values)
    source = source_of(root, classes="tumor", window=(-1000, 1000))
    expected = np.clip((values[source.meta(1)["slice"]] + 1000) / 2000, 0, 1)
    assert np.allclose(np.asarray(source.image(1, 224)), expected, atol=1e-6)


def test_scaled_values_are_unscaled(root):
    values = scan("pancreas_002")[0]
    image = nibabel.load(write_nifti(case(root, "imagesTr"), values))
    stored = nibabel.Nifti1Image(np.asarray(image.dataobj) // 2 + 100, image.affine)
    stored.header.set_slope_inter(2, -200)
    nibabel.save(stored, case(root, "imagesTr"))
    source = source_of(root, classes="tumor", window=(-1000, 1000))
    loaded = nibabel.load(case(root, "imagesTr"))
    shown = loaded.get_fdata()[::-1, ::-1, source.meta(1)["slice"]].T
    assert np.allclose(np.asarray(source.image(1, 224)), np.clip((shown + 1000) / 2000, 0, 1), atol=1e-6)
