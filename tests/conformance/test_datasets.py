"""What every registered data set promises."""

import pickle

import numpy as np
import pytest
import torch

from xaibench.data import DATASETS
from xaibench.data.annotated import AnnotatedSet
from xaibench.registry.info import DatasetInfo

#: Annotated sets promise other things (test_annotated.py): they are neither generated nor balanced.
GENERATED = [name for name in DATASETS if not isinstance(DATASETS.resolve(name), AnnotatedSet)]
every_dataset = pytest.mark.parametrize("name", GENERATED)
PARTS = ("train", "val", "test")


def tensors(dataset):
    return [tensor for part in PARTS for tensor in getattr(dataset, part)[:]]


@every_dataset
def test_info_is_complete(name, load_small):
    target = DATASETS.resolve(name)
    info = target.info
    assert isinstance(info, DatasetInfo)
    assert info == load_small(name).info
    assert info.name == name
    assert len(set(info.classes)) == len(info.classes) >= 2
    assert len(info.image_shape) in (3, 4)
    assert info.citation
    assert info.license
    assert info.revision >= 1


@every_dataset
def test_splits_have_the_shapes_and_types_of_the_library(name, load_small):
    dataset = load_small(name)
    for part in PARTS:
        split, (channels, *sides) = getattr(dataset, part), dataset.info.image_shape
        count = len(split)
        assert count > 0
        assert (split.images.shape, split.images.dtype) == ((count, channels, *sides), torch.float32)
        assert (split.masks.shape, split.masks.dtype) == ((count, *sides), torch.bool)
        assert (split.targets.shape, split.targets.dtype) == ((count,), torch.int64)
        assert split.images.isfinite().all()
        for got, whole in zip(split[count - 1], split[:], strict=True):
            assert torch.equal(got, whole[count - 1])
    with pytest.raises(IndexError, match=r"out of (bounds|range)"):
        dataset.test[len(dataset.test)]


@every_dataset
def test_masks_mark_some_pixels_and_not_all(name, load_small):
    dataset = load_small(name)
    for part in PARTS:
        marked = getattr(dataset, part).masks.float().flatten(1).mean(1)
        assert (marked > 0).all()
        assert (marked < 1).all()


@every_dataset
def test_classes_are_balanced_in_every_split(name, load_small):
    dataset = load_small(name)
    for part in PARTS:
        targets = getattr(dataset, part).targets
        counts = torch.bincount(targets, minlength=len(dataset.info.classes))
        assert len(counts) == len(dataset.info.classes)
        assert counts.max() - counts.min() <= 1


@every_dataset
def test_the_seed_alone_decides_the_images(name, load_small):
    one = load_small(name, seed=3)
    torch.rand(3), np.random.rand(3)  # whatever else draws meanwhile
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
    same, other = load_small(name, seed=3), load_small(name)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_state, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(same), strict=True))
    assert not torch.equal(one.train.images, other.train.images)
    assert not torch.equal(one.test.images, other.test.images)


@every_dataset
def test_no_image_is_in_two_splits_or_twice_in_one(name, load_small):
    dataset = load_small(name)
    images = torch.cat([getattr(dataset, part).images.flatten(1) for part in PARTS])
    assert len(torch.unique(images, dim=0)) == len(images)


@every_dataset
def test_pickling_changes_nothing(name, load_small):
    dataset = load_small(name)
    back = pickle.loads(pickle.dumps(dataset))
    assert (back.info, dict(back.parameters)) == (dataset.info, dict(dataset.parameters))
    assert all(torch.equal(a, b) for a, b in zip(tensors(back), tensors(dataset), strict=True))
