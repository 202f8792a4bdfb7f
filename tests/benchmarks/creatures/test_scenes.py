"""Scenes of creatures, held to a rendering pixel by pixel."""

import dataclasses

import numpy as np
import pytest
from oracles import creatures as oracle

from xaibench.benchmarks.creatures.creature_images import draw_sample
from xaibench.benchmarks.creatures.creatures import BODY_PARTS
from xaibench.benchmarks.creatures.scenes import NOISE, render

SIZE = 24


def scene(number, *, missing=0):
    return dataclasses.replace(draw_sample(5, number, number % 8, complete=True), missing=missing)


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr("xaibench.benchmarks.creatures.scenes.NOISE", 0)


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
    monkeypatch.setattr("xaibench.benchmarks.creatures.scenes.NOISE", 0)
    plain = render(scene(1), SIZE)
    change = noisy.image.astype(int) - plain.image
    assert 0 < np.abs(change).max() <= NOISE
    inner = (plain.image >= NOISE) & (plain.image <= 255 - NOISE)
    inner &= (plain.behind >= NOISE) & (plain.behind <= 255 - NOISE)
    assert np.array_equal(change[inner], (noisy.behind.astype(int) - plain.behind)[inner])


def test_a_larger_image_shows_the_same_scene():
    small, large = render(scene(0), 32).parts, render(scene(0), 96).parts
    assert (small == large[1::3, 1::3]).mean() > 0.98
