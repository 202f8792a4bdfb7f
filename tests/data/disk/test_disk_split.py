import numpy as np
import pytest
import torch
from generators.painted import Painted
from PIL import Image
from refusals import refused
from torchvision.transforms import v2

from xaibench.data.disk.lazy_split import DiskSplit, resize_mask


@pytest.fixture
def split():
    return DiskSplit(Painted([0, 1] * 5), np.array([7, 2, 4]), size=16)


def test_items_are_scaled_to_the_size_in_the_order_of_the_indices(split):
    image, mask, target = split[0]
    assert (image.shape, mask.shape, target.item()) == ((3, 16, 16), (16, 16), 1)
    assert torch.equal(image, torch.full((3, 16, 16), 7 / 255))
    assert torch.equal(mask, torch.arange(16).lt(8).expand(16, 16))


@pytest.mark.parametrize(
    "index",
    [[2, 0], slice(None, None, -2), torch.tensor([2, 0]), np.array([2, 0])],
    ids=["list", "slice", "tensor", "array"],
)
def test_a_batch_is_the_samples_one_after_another(split, index):
    images, masks, targets = split[index]
    assert images[:, 0, 0, 0].mul(255).round().tolist() == [4, 7]
    assert (masks.shape, targets.tolist()) == ((2, 16, 16), [0, 1])


def test_a_mask_of_booleans_chooses(split):
    assert split[torch.tensor([True, False, True])][2].tolist() == [1, 0]


def test_an_empty_batch_keeps_shapes_and_types(split):
    images, masks, targets = split[[]]
    assert (images.shape, images.dtype) == ((0, 3, 16, 16), torch.float32)
    assert (masks.shape, masks.dtype) == ((0, 16, 16), torch.bool)
    assert (targets.shape, targets.dtype) == ((0,), torch.int64)


def test_indices_count_from_the_end_and_stop_there(split):
    assert torch.equal(split[-1][0], split[2][0])
    refused(IndexError, "out of range", lambda: split[3])


def test_names_and_groups_are_those_of_the_source():
    split = DiskSplit(Painted([0, 1] * 5, groups=np.arange(10) // 2), np.array([7, 2, 4]), size=16)
    assert (list(split.ids), split.ids[:2]) == (["7", "2", "4"], ["7", "2"])
    assert split.groups.tolist() == [3, 1, 2]
    assert not split.in_memory
    assert DiskSplit(Painted([0, 1]), np.array([0]), size=16).groups is None


@pytest.mark.parametrize("size", [224, 128, 64, 7, 1])
def test_no_object_vanishes_however_small_it_is(size):
    rng = np.random.default_rng(size)
    for _ in range(200):
        mask = np.zeros((512, 480), bool)
        top, left = rng.integers(0, 512), rng.integers(0, 480)
        mask[top : top + rng.integers(1, 4), left : left + rng.integers(1, 4)] = True
        scaled = resize_mask(mask, size)
        assert scaled.any()
        rows, columns = np.nonzero(scaled)  # each kept pixel covers a part of the object, or has it under its center
        cells = {(row * size // 512, column * size // 480) for row, column in np.argwhere(mask)}
        assert cells & set(zip(rows.tolist(), columns.tolist(), strict=True))
    assert not resize_mask(np.zeros((512, 480), bool), size).any()


def test_of_a_vanishing_object_the_pixel_that_holds_most_is_kept():
    mask = np.zeros((40, 40), bool)
    mask[[18, 19, 20], [11, 11, 11]] = (
        True  # two pixels in the cell (1, 1) and one in (2, 1); the centers miss them all
    )
    assert np.argwhere(resize_mask(mask, 4)).tolist() == [[1, 1]]


def test_only_what_is_asked_for_is_read(split):
    assert split.targets.tolist() == [1, 0, 0]
    assert split.meta[1]["id"] == "2"
    assert split.masks.shape == (3, 16, 16)
    assert split.source.read == []
    split[1]
    assert split.source.read == [2]
    assert split.images.shape == (3, 3, 16, 16)


def test_notes_can_be_sliced_and_walked(split):
    assert [note["id"] for note in split.meta] == ["7", "2", "4"]
    assert [note["id"] for note in split.meta[1:]] == ["2", "4"]
    assert len(split.meta) == 3


def test_imagenet_statistics():
    split = DiskSplit(Painted([0]), np.array([0]), size=4, normalize="imagenet")
    expected = -torch.tensor([0.485, 0.456, 0.406]) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(split[0][0][:, 0, 0], expected)
    own = DiskSplit(Painted([0]), np.array([0]), size=4, normalize=((1, 2, 3), (1, 2, 4)))
    assert own[0][0][:, 0, 0].tolist() == [-1, -1, -0.75]


@pytest.mark.parametrize("normalize", ["image-net", ((0, 0), (1, 1)), ((0, 0, 0), (1, 0, 1))])
def test_other_statistics_are_refused(normalize):
    refused(ValueError, "normalize", lambda: DiskSplit(Painted([0]), np.array([0]), normalize=normalize))
    refused(ValueError, "size=", lambda: DiskSplit(Painted([0]), np.array([0]), size=0))


def test_a_transform_moves_image_and_mask_together_before_normalizing(split):
    class Ramp(Painted):
        def image(self, index, size):
            return Image.fromarray(np.tile(np.arange(0, 160, 10, dtype=np.uint8), (16, 1)))

    plain = DiskSplit(Ramp([0]), np.array([0]), size=16)
    turned = DiskSplit(Ramp([0]), np.array([0]), size=16, transform=v2.RandomHorizontalFlip(p=1), normalize="imagenet")
    assert torch.equal(turned[0][1], plain[0][1].flip(-1))
    again = DiskSplit(Ramp([0]), np.array([0]), size=16, normalize="imagenet")
    assert torch.allclose(turned[0][0], again[0][0].flip(-1))
    assert type(turned[0][0]) is torch.Tensor
    assert turned[0][1].dtype == torch.bool
    cropped = plain.with_transform(v2.CenterCrop(8))
    assert (cropped[0][0].shape, cropped[0][1].shape) == ((3, 8, 8), (8, 8))
    assert plain.transform is None


@pytest.mark.parametrize(("mode", "gray"), [("L", 51), ("F", 0.2)])
def test_gray_images_fill_three_channels(mode, gray):
    class Gray(Painted):
        def image(self, index, size):
            return Image.new(mode, (5, 9), gray)

    image = DiskSplit(Gray([0]), np.array([0]), size=4)[0][0]
    assert image.dtype == torch.float32
    assert torch.allclose(image, torch.full((3, 4, 4), 0.2))


def test_masks_take_the_nearest_pixel():
    mask = np.random.default_rng(0).random((13, 29)) < 0.5
    scaled = resize_mask(mask, 7)
    for row in range(7):
        for column in range(7):
            assert scaled[row, column] == mask[int((row + 0.5) * 13 / 7), int((column + 0.5) * 29 / 7)]
    by_pillow = np.asarray(Image.fromarray(mask.astype(np.uint8)).resize((7, 7), Image.Resampling.NEAREST))
    assert np.array_equal(scaled, by_pillow.astype(bool))


def test_images_are_scaled_as_pillow_does():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)

    class Noise(Painted):
        def image(self, index, size):
            return Image.fromarray(pixels)

    got = DiskSplit(Noise([0]), np.array([0]), size=16)[0][0]
    expected = np.asarray(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert (got.mul(255) - torch.from_numpy(expected.copy()).float()).abs().max() <= 1
