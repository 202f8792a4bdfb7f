"""Folders of volumes: arrays and NIfTI files, in class folders or without, with masks."""

import numpy as np
import pytest
import torch
from generators.tumor import write_nifti
from refusals import refused
from torchvision.transforms import v2

from xaibench.data import open_images
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.disk.source import SampleSource
from xaibench.data.volume_folder import VolumeSplit, has_volumes, read_image

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
    images, masks, targets = found[[2, 0]]
    assert targets.tolist() == [1, 0]
    assert np.array_equal(images[:, 0], VOLUMES[[0, 1]])
    assert not masks[0].any()
    assert np.array_equal(masks[1], VOLUMES[1] > 0)
    groups = found.groups
    assert groups[0] == groups[1]
    assert len(set(groups[1:])) == 3
    assert np.array_equal(found[[1, 3]][0][:, 0], VOLUMES[[3, 2]])
    assert not found.in_memory


def test_loose_arrays_have_no_classes(tmp_path):
    save(tmp_path / "images" / "a.npy", VOLUMES[:2])  # two channels
    save(tmp_path / "elsewhere" / "a.npz", VOLUMES[0] > 1)
    found = open_images(tmp_path, masks=tmp_path / "elsewhere")
    assert (found.classes, found.image_shape) == (None, (2, 3, 4, 5))
    assert np.array_equal(found[[0]][1][0], VOLUMES[0] > 1)


def test_values_are_taken_as_they_are_unless_there_is_a_window(tmp_path):
    numbers = save(tmp_path / "a.npy", np.arange(60).reshape(3, 4, 5))
    assert read_image(numbers).flatten().tolist() == list(range(60))
    assert torch.equal(
        read_image(save(tmp_path / "b.npy", np.full((1, 1, 1), 51, np.uint8))), torch.full((1,) * 4, 0.2)
    )
    found = open_images(tmp_path, window="20,20")[[0]][0].flatten()
    assert torch.allclose(found, ((torch.arange(60) - 10) / 20).clamp(0, 1))


def test_nifti_files_are_volumes_on_demand(tmp_path):
    volume = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(np.int16)
    (tmp_path / "scans").mkdir()
    write_nifti(tmp_path / "scans" / "a.nii.gz", volume)
    assert not has_volumes(tmp_path / "scans")
    slices, whole = open_images(tmp_path / "scans", channels=1), open_images(tmp_path / "scans", volumes=True)
    assert (len(slices), len(whole)) == (2, 1)
    assert torch.allclose(whole[[0]][0][0, 0], slices.images[:, 0])


def test_arrays_of_volumes_are_a_source():
    found = open_images(np.clip(VOLUMES[:, None], 0, 1), masks=VOLUMES > 0, targets=[0, 1, 0, 1])
    assert found.image_shape == (1, 3, 4, 5)
    assert np.array_equal(found[[1]][1][0], VOLUMES[1] > 0)
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


class Volumes(SampleSource):
    """Random volumes of given shapes; the mask of the first is empty."""

    classes = ("no", "yes")
    channels = 1

    def __init__(self, *shapes):
        self.shapes = shapes
        self.targets = np.arange(len(shapes)) % 2
        self.annotated = np.ones(len(shapes), dtype=bool)
        self.read = []

    def values(self, index):
        return np.random.default_rng(index).random(self.shapes[index], dtype=np.float32)

    def shape(self, index):
        return self.shapes[index]

    def volume(self, index):
        self.read.append(index)
        return self.values(index)[None]

    def spacings(self, numbers):
        return np.arange(3.0 * len(self.shapes)).reshape(-1, 3)[numbers]

    def mask(self, index):
        return self.values(index) > 0.5 if index else None

    def meta(self, index):
        return {"id": f"v{index}", "file": ""}


SHAPE = (2, 3, 4)


def split_of(*shapes, **more):
    source = Volumes(*shapes)
    return VolumeSplit(source, np.arange(len(shapes))[::-1], **more)


def test_a_batch_holds_the_volumes_as_they_are():
    split = split_of(SHAPE, SHAPE, SHAPE)
    images, masks, targets = split[1:]
    assert torch.equal(images[:, 0], torch.tensor(np.stack([split.source.values(1), split.source.values(0)])))
    assert (images.shape, images.dtype) == ((2, 1, *SHAPE), torch.float32)
    assert torch.equal(masks, torch.stack([images[0, 0] > 0.5, torch.zeros(SHAPE, dtype=torch.bool)]))
    assert targets.tolist() == [1, 0]
    assert split.ids[0] == "v2"
    image, mask, target = split[-1]
    assert (image.shape, mask.shape, target) == ((1, *SHAPE), SHAPE, 0)
    assert torch.equal(split.images[1:], images)
    assert repr(split) == "VolumeSplit(3 volumes, 1 channel)"


def test_metrics_get_the_spacing_of_the_samples():
    split = split_of(SHAPE, SHAPE, SHAPE)
    assert split.metric_inputs(slice(0, 2))["spacing"].tolist() == [[6, 7, 8], [3, 4, 5]]
    assert split.metric_inputs(torch.tensor([2]))["spacing"].tolist() == [[0, 1, 2]]


def test_masks_do_not_read_volumes():
    split = split_of(SHAPE, SHAPE)
    assert split.masks.shape == (2, *SHAPE)
    assert split.source.read == []


def test_a_transform_turns_all_slices_together():
    plain, turned = split_of(SHAPE, SHAPE), split_of(SHAPE, SHAPE).with_transform(v2.RandomHorizontalFlip(1))
    images, masks, _ = turned[:]
    assert torch.equal(images, plain[:][0].flip(-1))
    assert torch.equal(masks, plain[:][1].flip(-1))


def test_volumes_of_several_shapes_are_read_one_at_a_time():
    split = split_of(SHAPE, (3, 3, 4))
    refused(ValueError, "different shapes", lambda: split[:])
    assert split.source.read == []  # refused before anything is read
    assert [split[[number]][0].shape for number in (0, 1)] == [(1, 1, 3, 3, 4), (1, 1, 2, 3, 4)]


def test_a_single_volume_is_not_copied():
    split = split_of(SHAPE)
    whole = split.source.volume(0)
    split.source.volume = lambda index: whole
    assert split[[0]][0].data_ptr() == whole.ctypes.data


def test_an_empty_batch():
    images, masks, targets = split_of(SHAPE)[:0]
    assert [part.numel() for part in (images, masks, targets)] == [0, 0, 0]
    assert (images.ndim, masks.dtype) == (5, torch.bool)
