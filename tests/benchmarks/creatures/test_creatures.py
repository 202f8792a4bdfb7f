"""The parts and the classes of creatures."""

import dataclasses
import itertools

import numpy as np
import pytest
from oracles import creatures as oracle

from xaibench.benchmarks.creatures.creature_images import draw_sample
from xaibench.benchmarks.creatures.creatures import (
    BODY_PARTS,
    CLASSES,
    CODES,
    DECIDING,
    NOISE,
    draw_looks,
    jitter,
    render,
)


def test_every_variant_is_in_half_of_the_classes():
    assert len(CODES) == len(set(CODES)) == len(CLASSES) == 8
    assert (np.sum(CODES, axis=0) == 4).all()


def test_three_parts_determine_the_class_and_two_do_not():
    for chosen in itertools.combinations(range(len(DECIDING)), 3):
        assert len({tuple(code[part] for part in chosen) for code in CODES}) == 8
    for chosen in itertools.combinations(range(len(DECIDING)), 2):
        assert len({tuple(code[part] for part in chosen) for code in CODES}) == 4


def test_deciding_parts_look_as_the_class_says_and_the_others_at_random():
    rng = np.random.default_rng(0)
    shapes = np.array([[look.shape for look in draw_looks(target, rng)] for target in range(8) for _ in range(40)])
    targets = np.repeat(np.arange(8), 40)
    for number, body_part in enumerate(BODY_PARTS, start=1):
        mean = [shapes[targets == target, number - 1].mean() for target in range(8)]
        if body_part.decides:
            assert mean == [code[DECIDING.index(number)] for code in CODES]
        else:
            assert 0.2 < min(mean) < max(mean) < 0.8


def test_the_colors_of_a_deciding_part_are_of_its_group():
    rng = np.random.default_rng(1)
    for target, code in enumerate(CODES):
        for _ in range(10):
            looks = draw_looks(target, rng)
            for number, variant in zip(DECIDING, code, strict=True):
                group = np.array(BODY_PARTS[number - 1].colors[variant])
                assert np.abs(group - looks[number - 1].color).max(1).min() <= 15


def test_a_changed_color_stays_a_color():
    rng = np.random.default_rng(2)
    found = np.array([jitter((0, 128, 255), 15, rng) for _ in range(200)])
    assert found.min() == 0
    assert found.max() == 255
    assert len({*found[:, 1].tolist()}) == 31


SIZE = 24


def scene(number, *, missing=0):
    return dataclasses.replace(draw_sample(5, number, number % 8, complete=True), missing=missing)


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr("xaibench.benchmarks.creatures.creatures.NOISE", 0)


@pytest.mark.parametrize(("number", "missing"), [(0, 0), (1, 0), (2, 5), (3, 2), (4, 0)])
def test_every_pixel_is_the_one_of_the_slow_rendering(number, missing, no_noise):
    one = scene(number, missing=missing)
    layers = render(one, SIZE)
    for row in range(SIZE):
        for column in range(SIZE):
            color, part = oracle.pixel(one, SIZE, row, column)
            behind, _ = oracle.pixel(one, SIZE, row, column, without=(part,))
            assert layers.parts[row, column] == part
            assert layers.image[row, column].tolist() == color
            assert layers.behind[row, column].tolist() == behind
    assert {*range(len(BODY_PARTS) + 1)} - {*np.unique(layers.parts)} <= {missing, 7}  # an eye may fall between pixels


@pytest.mark.parametrize("number", range(6))
def test_removing_a_part_shows_what_is_behind_it(number):
    one = scene(number)
    layers = render(one, 48)
    for part in range(1, len(BODY_PARTS) + 1):
        removed = render(one, 48, without=(part,))
        shown = layers.parts == part
        assert np.array_equal(removed.image, np.where(shown[..., None], layers.behind, layers.image))
        assert not (removed.parts == part).any()
        assert (removed.image != layers.image).any(2).sum() > 0.8 * shown.sum() > 0  # rarely the same color behind


def test_a_missing_part_is_a_removed_part():
    for part in range(1, len(BODY_PARTS) + 1):
        missing, removed = render(scene(3, missing=part), 48), render(scene(3), 48, without=(part,))
        assert np.array_equal(missing.image, removed.image)
        assert np.array_equal(missing.behind, removed.behind)


def test_two_parts_can_be_removed():
    both = render(scene(2), 48, without=(5, 6)).parts
    assert not np.isin(both, (5, 6)).any()
    assert np.isin((1, 2, 3, 4, 7), both).all()


def test_noise_is_small_and_the_same_in_front_and_behind(monkeypatch):
    noisy = render(scene(1), SIZE)
    monkeypatch.setattr("xaibench.benchmarks.creatures.creatures.NOISE", 0)
    plain = render(scene(1), SIZE)
    change = noisy.image.astype(int) - plain.image
    assert 0 < np.abs(change).max() <= NOISE
    inner = (plain.image >= NOISE) & (plain.image <= 255 - NOISE)
    inner &= (plain.behind >= NOISE) & (plain.behind <= 255 - NOISE)
    assert np.array_equal(change[inner], (noisy.behind.astype(int) - plain.behind)[inner])


def test_a_larger_image_shows_the_same_scene():
    small, large = render(scene(0), 32).parts, render(scene(0), 96).parts
    assert (small == large[1::3, 1::3]).mean() > 0.98
