"""Images and volumes whose decisive part is known: every sample is what the interventions say."""

import numpy as np
import pytest
import torch
from oracles.tag_network import CORNER, SIDE, check_parts_decide, tag_network, tagged_images
from torch import nn

from xaibench.auditing.images import make_subject
from xaibench.auditing.questions import (
    blind_copies,
    find_decisive_regions,
    insert_images,
    make_mosaics,
    place_of,
    score_maps,
    train_planted_trigger,
)

MAKERS = (insert_images, make_mosaics, find_decisive_regions, blind_copies)
#: Images, and slices, rows and columns of volumes, all different.
SIDES = {"images": (SIDE, SIDE), "volumes": (8, 10, 12)}


class Brightest(nn.Module):
    """Class 0 if a bright area is anywhere, class 1 if a dark area is anywhere, class 2 otherwise."""

    def forward(self, images):
        pool = nn.functional.avg_pool2d if images.ndim == 4 else nn.functional.avg_pool3d
        blurred = pool(images, 3, 1).flatten(1)
        bright, dark = blurred.amax(1), -blurred.amin(1)
        return torch.stack([8 * bright - 4, 8 * dark - 4, torch.zeros_like(bright)], 1)


def area_images(count, sides=(SIDE, SIDE), seed=0):
    """Gray images or volumes with a bright area, a dark area or none."""
    rng, size = np.random.default_rng(seed), 8 if len(sides) == 2 else 6
    images = rng.normal(0, 0.02, (count, 1, *sides))
    for index in range(count):
        corner = rng.integers(0, np.array(sides) - (8 if len(sides) == 2 else 5))
        images[index, :, *(slice(start, start + size) for start in corner)] += (1.0, -1.0, 0.0)[index % 3]
    return torch.from_numpy(images).float()


@pytest.fixture(scope="module", params=SIDES)
def areas(request):
    return make_subject(Brightest(), area_images(15, SIDES[request.param]))


def made(make, subject, count=8):
    return make(subject, count, np.random.default_rng(0))


@pytest.mark.parametrize("make", MAKERS)
def test_samples_state_the_image_that_they_are_made_of(areas, make):
    found = made(make, areas, 12)
    assert found.samples >= 6 or make is find_decisive_regions
    assert np.array_equal(found.groups, areas.groups[found.sources])
    if found.samples and make is not blind_copies:  # a copy may answer otherwise
        assert torch.equal(found.batch[2], areas.targets[found.sources])


@pytest.mark.parametrize("make", [insert_images, make_mosaics])
def test_the_part_decides_and_is_a_quarter(areas, make):
    images, masks, targets = made(make, areas, 12).batch
    check_parts_decide(areas, images, masks, targets)
    parts = [masks]
    for axis in range(1, masks.ndim):
        parts = [half for part in parts for half in part.chunk(2, axis)]
    parts = torch.stack(parts).flatten(2)
    assert bool((parts.all(2) | ~parts.any(2)).all())
    assert bool(((parts.all(2).sum(0) >= 1) & (parts.all(2).sum(0) < len(parts))).all())


def test_the_places_of_insertions_differ_along_every_axis(areas):
    masks = made(insert_images, areas, 12).batch[1]
    for axis, side in enumerate(masks.shape[1:], 1):
        others = tuple({*range(1, masks.ndim)} - {axis})
        assert set(masks.any(others)[:, : side // 2].all(1).tolist()) == {False, True}


def test_blinded_copies_do_not_depend_on_other_pixels(areas):
    found = made(blind_copies, areas)
    assert found.samples == len(np.unique(found.groups)) == 8  # no image is taken twice before all were
    assert bool((found.batch[1].flatten(1).sum(1) == areas.images[0].numel() // 2 ** (areas.images.ndim - 2)).all())
    for network, (images, masks, _) in found.batches:
        changed = torch.where(masks[:, None], images, 7.0)
        assert torch.equal(areas.ask(images, network), areas.ask(changed, network))


class Slice(nn.Module):
    def forward(self, volumes):
        return volumes[:, :, 6]


@pytest.mark.parametrize("has_slices", [False, True])
def test_decisive_regions_contain_the_tag(has_slices):
    images, labels = tagged_images(16)
    network, place, share = tag_network(), "top left", 0.07
    if has_slices:  # the tag is in the seventh of 8 slices
        images = nn.functional.pad(images[:, :, None], (0, 0, 0, 0, 6, 1), value=0.1)
        network, place, share = nn.Sequential(Slice(), network), "top left of the last slices", 0.03
    found = made(find_decisive_regions, make_subject(network, images, labels=labels))
    masks = found.batch[1]
    assert (found.samples, len(found.regions)) == (8, 16)
    assert {region.place for region in found.regions} == {place}
    assert (masks[:, 6] if has_slices else masks)[:, :CORNER, :CORNER].float().mean() > 0.9
    assert masks.float().mean() < share


@pytest.mark.parametrize(("windows", "side"), [(7, 4), (4, 4), (3, 6)])
def test_few_windows_are_larger_and_cover_the_image(windows, side):
    images = torch.zeros(8, 1, SIDE, SIDE)
    for index, (top, left) in enumerate([(0, 0), (0, 0), (0, 13), (0, 13), (13, 0), (13, 0), (13, 13), (13, 13)]):
        images[index, :, top : top + 3, left : left + 3] = (1.0, 0.0)[index % 2]
    found = find_decisive_regions(make_subject(Brightest(), images), 8, np.random.default_rng(0), windows)
    assert found.samples == 8
    assert set(found.batch[1].sum((1, 2)).tolist()) == {side * side}


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
    found = made(insert_images, subject, 16)
    assert found.samples >= 4
    check_parts_decide(subject, *found.batch)


def test_blinded_copies_use_what_they_see():
    images, labels = tagged_images(12)
    masks = made(blind_copies, make_subject(tag_network(), images, labels=labels)).batch[1]
    # The network looks at the top left corner only, so that copies that see another quarter are left out.
    half = SIDE // 2
    assert len(masks) == 8
    assert bool(masks[:, :half, :half].all())
    assert bool((masks.sum((1, 2)) == half * half).all())


def test_a_trained_copy_reacts_to_a_cube(monkeypatch):
    monkeypatch.setattr("xaibench.auditing.questions._LEARNING_RATE", 1e-2)  # for so small a network
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool3d(1), nn.Flatten(), nn.Linear(8, 3)))
    images = torch.rand(12, 1, 14, 15, 16, generator=torch.Generator().manual_seed(1)) - 0.5
    found = train_planted_trigger(make_subject(network, images), 12, np.random.default_rng(0), False)
    assert found.samples >= 6
    assert bool((found.batch[1].flatten(1).sum(1) == 27).all())


@pytest.mark.parametrize(
    ("pixel", "name"),
    [
        *(((0, 0), "top left"), ((4, 4), "center"), ((8, 4), "bottom"), ((4, 8), "right")),
        *(((0, 0, 0), "top left of the first slices"), ((4, 4, 4), "center of the middle slices")),
        ((8, 8, 4), "bottom of the last slices"),
    ],
)
def test_places_have_names(pixel, name):
    mask = torch.zeros([9] * len(pixel), dtype=torch.bool)
    mask[pixel] = True
    assert place_of(mask) == name


def test_interventions_are_combined_in_units_of_their_standard_deviation(tag_audit):
    (question,) = [question for question in tag_audit.questions if question.key == "interventions"]
    combined = np.zeros(question.samples)
    for metric, parameters in question.metrics.items():
        scores = [
            score_maps(tag_audit.subject, maps, question.batch, metric, parameters) for maps in tag_audit.maps.values()
        ]
        combined += np.nan_to_num(scores[0]) / np.nanstd(scores) / len(question.metrics)
    assert len(question.metrics) == 3
    assert question.scores[next(iter(tag_audit.maps))] == pytest.approx(combined)


def test_skipped_questions_say_why():
    def reason(subject, make):
        found = made(make, subject, 3)
        assert found.samples == 0
        return found.skipped

    constant = make_subject(Brightest(), torch.zeros(8, 1, SIDE, SIDE), classes=["bright", "dark", "gray"])
    for make in (insert_images, make_mosaics, find_decisive_regions):
        assert reason(constant, make) == "the network gives the same answer for all images, gray"
    function = make_subject(Brightest(), area_images(8), output=lambda logits: logits[:, 0])
    assert reason(function, insert_images) == "a function of the outputs has no classes"
    few = make_subject(Brightest(), area_images(15))
    assert "independent images: 3, needed: 6" in reason(few, insert_images)
