"""Audits of 3-D networks: what is made of images is made of volumes along all axes, and alike for a single slice."""

import numpy as np
import pytest
import torch
from oracles.tag_network import CORNER, check_parts_decide, tag_network, tagged_images
from torch import nn

from xaibench.auditing.findings import find_suspicious_images
from xaibench.auditing.images import make_subject
from xaibench.auditing.questions import (
    blind_copies,
    find_decisive_regions,
    insert_images,
    make_mosaics,
    place_of,
    train_planted_trigger,
)

MAKERS = (insert_images, make_mosaics, find_decisive_regions, blind_copies)
#: Slices, rows and columns, all different.
SIDES = (8, 10, 12)


class Brightest(nn.Module):
    """Class 0 if a bright area is anywhere, class 1 if a dark area is anywhere, class 2 otherwise."""

    def forward(self, images):
        blurred = nn.functional.avg_pool3d(images, (min(3, images.shape[2]), 3, 3), 1).flatten(1)
        bright, dark = blurred.amax(1), -blurred.amin(1)
        return torch.stack([8 * bright - 4, 8 * dark - 4, torch.zeros_like(bright)], 1)


def area_volumes(count, seed=0):
    """Gray volumes with a bright area, a dark area or none."""
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 0.02, (count, 1, *SIDES))
    for index in range(count):
        corner = [int(rng.integers(0, side - 6 + 1)) for side in SIDES]
        images[index, :, *(slice(start, start + 6) for start in corner)] += (1.0, -1.0, 0.0)[index % 3]
    return torch.from_numpy(images).float()


@pytest.fixture(scope="module")
def areas():
    return make_subject(Brightest(), area_volumes(15))


@pytest.mark.parametrize("make", MAKERS)
def test_a_volume_of_one_slice_is_an_image(make):
    images, labels = tagged_images(16)
    found = make(make_subject(tag_network(), images, labels=labels), 8, np.random.default_rng(0))
    volumes = make_subject(tag_network(), images[:, :, None], labels=labels)
    other = make(volumes, 8, np.random.default_rng(0))
    for name in ("images", "masks"):
        assert torch.equal(getattr(found, name), getattr(other, name).squeeze(-3))
    assert torch.equal(found.targets, other.targets)
    assert (found.tried, [one.place for one in found.regions]) == (other.tried, [one.place for one in other.regions])
    assert len(found) or make in (insert_images, make_mosaics)


@pytest.mark.parametrize("make", [insert_images, make_mosaics])
def test_the_part_of_a_volume_decides(areas, make):
    found = make(areas, 6, np.random.default_rng(0))
    assert len(found) == 6
    check_parts_decide(areas, found)
    eighths = torch.stack([part for a in found.masks.chunk(2, 1) for b in a.chunk(2, 2) for part in b.chunk(2, 3)])
    eighths = eighths.flatten(2)
    assert bool((eighths.all(2) | ~eighths.any(2)).all())
    assert bool(((eighths.all(2).sum(0) >= 1) & (eighths.all(2).sum(0) < 8)).all())


def test_the_places_of_insertions_differ_along_every_axis(areas):
    masks = insert_images(areas, 12, np.random.default_rng(0)).masks
    for axis, side in enumerate(SIDES, 1):
        others = tuple({1, 2, 3} - {axis})
        assert set(masks.any(others)[:, : side // 2].all(1).tolist()) == {False, True}


def test_a_decisive_region_of_volumes_contains_the_tag():
    images, labels = tagged_images(12)
    depth = nn.functional.pad(
        images[:, :, None], (0, 0, 0, 0, 6, 1), value=0.1
    )  # the tag is in the seventh of 8 slices
    network = nn.Sequential(Slice(6), tag_network())
    found = find_decisive_regions(make_subject(network, depth, labels=labels), 8, np.random.default_rng(0))
    assert len(found) == 8
    assert {region.place for region in found.regions} == {"top left of the last slices"}
    assert bool(found.masks[:, 6, :CORNER, :CORNER].all())
    assert found.masks.float().mean() < 0.03


class Slice(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, volumes):
        return volumes[:, :, self.number]


def test_blinded_copies_do_not_depend_on_other_voxels(areas):
    found = blind_copies(areas, 8, np.random.default_rng(0))
    assert len(found) == 8
    assert bool((found.masks.flatten(1).sum(1) == np.prod(SIDES) // 8).all())
    for start, stop, network in found.models:
        changed = torch.where(found.masks[start:stop, None], found.images[start:stop], 7.0)
        assert torch.equal(areas.ask(found.images[start:stop], network), areas.ask(changed, network))


def test_a_trained_copy_reacts_to_a_cube(monkeypatch):
    monkeypatch.setattr("xaibench.auditing.questions._LEARNING_RATE", 1e-2)  # for so small a network
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool3d(1), nn.Flatten(), nn.Linear(8, 3)))
    images = torch.rand(12, 1, 14, 15, 16, generator=torch.Generator().manual_seed(1)) - 0.5
    found = train_planted_trigger(make_subject(network, images), 12, np.random.default_rng(0), False)
    assert len(found) >= 6
    assert bool((found.masks.flatten(1).sum(1) == 27).all())


@pytest.mark.parametrize(
    ("voxel", "place"),
    [
        ((0, 0, 0), "top left of the first slices"),
        ((4, 4, 4), "center of the middle slices"),
        ((8, 8, 4), "bottom of the last slices"),
    ],
)
def test_places_of_volumes_have_names(voxel, place):
    mask = torch.zeros(9, 9, 9, dtype=torch.bool)
    mask[voxel] = True
    assert place_of(mask) == place


def test_importance_in_the_first_slices_is_at_the_border(areas):
    maps = torch.zeros(15, *SIDES)
    maps[:, 4, 5, 6] = 1
    maps[3, 0, 5, 6] = 9
    nothing = find_decisive_regions(make_subject(Brightest(), torch.zeros(9, 1, *SIDES)), 8, np.random.default_rng(0))
    findings = {f.key: f for f in find_suspicious_images(areas, {"a": maps}, ["a"], np.full(15, np.nan), nothing)}
    assert list(findings["border"].images) == [3]
