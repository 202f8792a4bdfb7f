"""Images whose decisive part is known: every sample is what the interventions say."""

import numpy as np
import pytest
import torch
from oracles.tag_network import CORNER, SIDE, check_parts_decide, tag_network, tagged_images
from torch import nn

from xaibench.auditing.candidates import Candidates
from xaibench.auditing.images import make_subject
from xaibench.auditing.questions import (
    ask_known_causes,
    blind_copies,
    find_decisive_regions,
    insert_images,
    make_mosaics,
    place_of,
)


class Brightest(nn.Module):
    """Class 0 if a bright area is anywhere, class 1 if a dark area is anywhere, class 2 otherwise."""

    def forward(self, images):
        blurred = nn.functional.avg_pool2d(images, 3, 1)
        bright, dark = blurred.amax((1, 2, 3)), -blurred.amin((1, 2, 3))
        return torch.stack([8 * bright - 4, 8 * dark - 4, torch.zeros_like(bright)], 1)


def area_images(count, seed=0):
    """Gray images with a bright area, a dark area or none."""
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 0.02, (count, 1, SIDE, SIDE))
    for index in range(count):
        top, left = rng.integers(0, SIDE - 8, 2)
        images[index, :, top : top + 8, left : left + 8] += (1.0, -1.0, 0.0)[index % 3]
    return torch.from_numpy(images).float()


@pytest.fixture(scope="module")
def areas():
    return make_subject(Brightest(), area_images(15))


def test_decisive_regions_contain_the_tag():
    images, labels = tagged_images(16)
    subject = make_subject(tag_network(), images, labels=labels)
    found = find_decisive_regions(subject, 8, np.random.default_rng(0))
    assert len(found) == 8
    assert len(found.regions) == 16
    assert {region.place for region in found.regions} == {"top left"}
    assert found.masks[:, :CORNER, :CORNER].float().mean() > 0.9
    assert found.masks[:, 2 * CORNER :, 2 * CORNER :].sum() == 0


@pytest.mark.parametrize("make", [insert_images, make_mosaics])
def test_the_part_decides(areas, make):
    found = make(areas, 6, np.random.default_rng(0))
    assert len(found) == 6
    check_parts_decide(areas, found)


class BrightUnlessDark(nn.Module):
    """Class 1 if a dark area is anywhere, class 0 otherwise, with a larger output for brighter images."""

    def forward(self, images):
        return torch.stack([8 * images.amax((1, 2, 3)), 30 * -images.amin((1, 2, 3)) - 15], 1)


def test_parts_without_which_the_answer_stays_are_left_out():
    half = SIDE // 2
    images = torch.zeros(16, 1, SIDE, SIDE)
    for index in range(16):  # a bright or a dark quarter; without the dark one, the answer is class 0
        top, left = half * (index // 2 % 2), half * (index // 4 % 2)
        images[index, :, top : top + half, left : left + half] = (1.0, -1.0)[index % 2]
    subject = make_subject(BrightUnlessDark(), images)
    found = insert_images(subject, 16, np.random.default_rng(0))
    without = torch.where(found.masks[:, None], subject.canvas, found.images)
    assert len(found) >= 4
    assert not subject.answers(subject.ask(without)).gather(1, found.targets[:, None]).any()


@pytest.mark.parametrize("make", [insert_images, make_mosaics])
def test_parts_are_quarters(areas, make):
    found = make(areas, 6, np.random.default_rng(0))
    half = SIDE // 2
    for mask in found.masks:
        quarters = mask.reshape(2, half, 2, half).permute(0, 2, 1, 3).reshape(4, half * half)
        assert bool((quarters.all(1) | ~quarters.any(1)).all())
        assert 0 < quarters.any(1).sum() < 4


@pytest.mark.parametrize(("windows", "side"), [(7, 4), (4, 4), (3, 6)])
def test_few_windows_are_larger_and_cover_the_image(windows, side):
    images = torch.zeros(8, 1, SIDE, SIDE)
    for index, (top, left) in enumerate([(0, 0), (0, 0), (0, 13), (0, 13), (13, 0), (13, 0), (13, 13), (13, 13)]):
        images[index, :, top : top + 3, left : left + 3] = (1.0, 0.0)[index % 2]
    found = find_decisive_regions(make_subject(Brightest(), images), 8, np.random.default_rng(0), windows)
    assert len(found) == 8
    assert set(found.masks.sum((1, 2)).tolist()) == {side * side}


def test_a_network_with_one_answer_has_no_known_causes():
    subject = make_subject(tag_network(), torch.rand(9, 1, SIDE, SIDE) * 0.01)
    for make in (insert_images, make_mosaics, find_decisive_regions):
        assert len(make(subject, 6, np.random.default_rng(0))) == 0


def test_blinded_copies_use_what_they_see():
    images, labels = tagged_images(12)
    found = blind_copies(make_subject(tag_network(), images, labels=labels), 8, np.random.default_rng(0))
    # The network looks at the top left corner only, so that copies that see another quarter are left out.
    half = SIDE // 2
    assert len(found) == 8
    assert bool(found.masks[:, :half, :half].all())
    assert bool((found.masks.sum((1, 2)) == half * half).all())


def test_blinded_copies_do_not_depend_on_other_pixels(areas):
    found = blind_copies(areas, 8, np.random.default_rng(0))
    for start, stop, network in found.models:
        changed = torch.where(found.masks[start:stop, None], found.images[start:stop], 7.0)
        assert torch.equal(areas.ask(found.images[start:stop], network), areas.ask(changed, network))
    assert sum(stop - start for start, stop, _ in found.models) == len(found)


def test_no_image_is_taken_twice_before_all_were(areas):
    found = blind_copies(areas, 8, np.random.default_rng(0))
    assert len(np.unique(found.groups)) == len(found)


@pytest.mark.parametrize(
    ("row", "column", "name"), [(0, 0, "top left"), (4, 4, "center"), (8, 4, "bottom"), (4, 8, "right")]
)
def test_places_have_names(row, column, name):
    mask = torch.zeros(9, 9, dtype=torch.bool)
    mask[row, column] = True
    assert place_of(mask) == name


@pytest.mark.parametrize("make", [insert_images, make_mosaics, find_decisive_regions, blind_copies])
def test_samples_state_the_image_that_they_are_made_of(areas, make):
    found = make(areas, 6, np.random.default_rng(0))
    assert np.array_equal(found.groups, areas.groups[found.sources])
    if make is not blind_copies:  # a copy may answer otherwise
        assert torch.equal(found.targets, areas.targets[found.sources])


def test_skipped_questions_say_why(areas):
    candidates = Candidates({"saliency": "saliency"})

    def reason(subject, make, key):
        return ask_known_causes(key, make(subject, 3, np.random.default_rng(0)), candidates, {}).skipped

    constant = make_subject(Brightest(), torch.zeros(8, 1, SIDE, SIDE), classes=["bright", "dark", "gray"])
    for make, key in ((make_mosaics, "mosaics"), (find_decisive_regions, "decisive_regions")):
        assert reason(constant, make, key) == "the network gives the same answer for all images, gray"
    function = make_subject(Brightest(), area_images(8), output=lambda logits: logits[:, 0])
    assert reason(function, insert_images, "insertions") == "a function of the outputs has no classes"
    assert "independent images: 3, needed: 6" in reason(areas, insert_images, "insertions")
