"""Folders of volumes: arrays and NIfTI files, in class folders or without, with masks."""

import numpy as np
import pytest
import torch
from generators.tumor import write_nifti
from refusals import refused

from xaibench.data import open_images
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.volume_folder import has_volumes, read_image

RNG = np.random.default_rng(0)
VOLUMES = RNG.normal(size=(4, 3, 4, 5)).astype(np.float32)


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    (np.savez if path.suffix == ".npz" else np.save)(path, values)
    return path


def test_class_folders_with_masks_for_some(tmp_path):
    for number, volume in enumerate(VOLUMES):
        save(tmp_path / "image" / ("b", "a")[number % 2] / f"{number}.{('npy', 'npz')[number // 2]}", volume)
    save(tmp_path / "mask" / "a" / "1.npy", VOLUMES[1] > 0)
    (tmp_path / "groups.csv").write_text("file,group\n1.npy,x\n3.npz,x\n")
    found = open_images(tmp_path)
    assert list(found.ids) == ["image/a/1.npy", "image/a/3.npz", "image/b/0.npy", "image/b/2.npz"]
    assert (found.classes, found.targets.tolist()) == (("a", "b"), [0, 0, 1, 1])
    assert found.image_shape == (1, 3, 4, 5)
    assert found.has_mask.tolist() == [True, False, False, False]
    ids, images, masks, targets = found[[2, 0]]
    assert (ids, targets.tolist()) == (["image/b/0.npy", "image/a/1.npy"], [1, 0])
    assert np.array_equal(images[:, 0], VOLUMES[[0, 1]])
    assert masks[0] is None
    assert np.array_equal(masks[1], VOLUMES[1] > 0)
    groups = found.samples.groups
    assert groups[0] == groups[1]
    assert len(set(groups[1:])) == 3
    assert np.array_equal(found.select([1, 3]).samples.images[:, 0], VOLUMES[[3, 2]])
    assert not found.samples.in_memory


def test_loose_arrays_have_no_classes(tmp_path):
    save(tmp_path / "images" / "a.npy", VOLUMES[:2])  # two channels
    save(tmp_path / "elsewhere" / "a.npz", VOLUMES[0] > 1)
    found = open_images(tmp_path, masks=tmp_path / "elsewhere")
    assert (found.classes, found.image_shape) == (None, (2, 3, 4, 5))
    assert np.array_equal(found[0].masks[0], VOLUMES[0] > 1)


def test_values_are_taken_as_they_are_unless_there_is_a_window(tmp_path):
    numbers = save(tmp_path / "a.npy", np.arange(60).reshape(3, 4, 5))
    assert read_image(numbers).flatten().tolist() == list(range(60))
    assert torch.equal(
        read_image(save(tmp_path / "b.npy", np.full((1, 1, 1), 51, np.uint8))), torch.full((1,) * 4, 0.2)
    )
    found = open_images(tmp_path, window="20,20")[0].images.flatten()
    assert torch.allclose(found, ((torch.arange(60) - 10) / 20).clamp(0, 1))


def test_nifti_files_are_volumes_on_demand(tmp_path):
    volume = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(np.int16)
    (tmp_path / "scans").mkdir()
    write_nifti(tmp_path / "scans" / "a.nii.gz", volume)
    assert not has_volumes(tmp_path / "scans")
    slices, whole = open_images(tmp_path / "scans", channels=1), open_images(tmp_path / "scans", volumes=True)
    assert (len(slices), len(whole)) == (2, 1)
    assert torch.allclose(whole[0].images[0, 0], slices[:].images[:, 0])


def test_arrays_of_volumes_are_a_source():
    found = open_images(np.clip(VOLUMES[:, None], 0, 1), masks=VOLUMES > 0, targets=[0, 1, 0, 1])
    assert found.image_shape == (1, 3, 4, 5)
    assert np.array_equal(found[1].masks[0], VOLUMES[1] > 0)
    refused(ValueError, "size:", lambda: open_images(np.clip(VOLUMES[:, None], 0, 1), size=8))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("a.npy", np.zeros((4, 5)), "[4, 5]"),
        ("a.npy", np.full((2, 2, 2), "x"), "shape"),
        ("a.npy", np.full((3, 4, 5), np.nan), "NaN"),
        ("a.npy", np.full((2, 2, 2), {}), "a.npy"),
        ("b.npy", np.zeros((2, 3, 4)), "b.npy"),
    ],
)
def test_bad_files_are_named(tmp_path, name, values, message):
    save(tmp_path / "0.npy", VOLUMES[0])
    np.save(tmp_path / name, values, allow_pickle=True)
    refused(ValueError, message, lambda: open_images(tmp_path)[:])


def test_bad_masks_and_sources_are_named(tmp_path):
    np.savez(save(tmp_path / "a.npy", VOLUMES[0]).with_name("b.npz"), one=VOLUMES[0], two=VOLUMES[1])
    refused(DataFileError, "one, two", lambda: open_images(tmp_path)[:])
    save(tmp_path / "mask" / "a.npy", VOLUMES[0, 1:])
    refused(DataFileError, "[2, 4, 5]", lambda: open_images(tmp_path)[0])
    refused(ValueError, "size, scale", lambda: open_images(tmp_path, size=8, scale=2.0))
    refused(ValueError, "masks:", lambda: open_images(tmp_path, masks=VOLUMES > 0))
    refused(ValueError, "volumes:", lambda: open_images(np.zeros((1, 1, 4, 4)), volumes=True))
    (empty := tmp_path / "empty").mkdir()
    refused(MissingDataError, "no volumes", lambda: open_images(empty, volumes=True))
