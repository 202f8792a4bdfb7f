import numpy as np
import torch
from refusals import refused
from torchvision.transforms import v2

from xaibench.data.disk.lazy_split import VolumeSplit
from xaibench.data.disk.source import VolumeSource


class Volumes(VolumeSource):
    """Random volumes of given shapes; the mask of the first is empty."""

    classes = ("no", "yes")

    def __init__(self, *shapes):
        self.shapes = shapes
        self.targets = np.arange(len(shapes)) % 2
        self.annotated = np.ones(len(shapes), dtype=bool)
        self.spacing = np.arange(3.0 * len(shapes)).reshape(-1, 3)
        self.read = []

    def values(self, index):
        return np.random.default_rng(index).random(self.shapes[index], dtype=np.float32)

    def shape(self, index):
        return self.shapes[index]

    def volume(self, index):
        self.read.append(index)
        return self.values(index)

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


def test_three_channels_are_equal_and_normalized():
    plain = split_of(SHAPE, SHAPE)[:][0]
    refused(ValueError, "channels=", lambda: split_of(SHAPE, channels=2))
    images = split_of(SHAPE, SHAPE, channels=3, normalize=((0.1, 0.2, 0.3), (1, 2, 4)))[:][0]
    for channel, (mean, deviation) in enumerate(((0.1, 1), (0.2, 2), (0.3, 4))):
        assert torch.allclose(images[:, channel], (plain[:, 0] - mean) / deviation)


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
    whole = split.source.values(0)
    split.source.volume = lambda index: whole
    assert split[[0]][0].data_ptr() == whole.ctypes.data


def test_an_empty_batch():
    images, masks, targets = split_of(SHAPE)[:0]
    assert [part.numel() for part in (images, masks, targets)] == [0, 0, 0]
    assert (images.ndim, masks.dtype) == (5, torch.bool)
