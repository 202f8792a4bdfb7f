"""Every degradation step is certainly worse than the one before."""

import itertools

import numpy as np
import pytest

from xaibench.meta_evaluation.degradation import MOVED, NOISE, moved, noisy, worse_explainers


@pytest.fixture
def oracle():
    """Maps of both signs on 16 of 64 pixels, and the masks."""
    rng = np.random.default_rng(0)
    masks = np.zeros((5, 8, 8), bool)
    masks[:, ::2, ::2] = True
    return np.where(masks, rng.choice([-2.0, -1.0, 1.0, 2.0], masks.shape), 0.0), masks


def test_what_is_moved_is_exactly_the_stated_share_and_stays_away(oracle):
    maps, masks = oracle
    steps = moved(maps, masks, np.random.default_rng(1))
    assert np.array_equal(steps[0], maps)
    for step in steps:
        assert np.array_equal(np.sort(step.reshape(5, -1)), np.sort(maps.reshape(5, -1)))
    # The mask covers a quarter of the image. By chance, a quarter of the 16 values stays inside; 3 leave at each step.
    assert [[int((step[i] * masks[i]).astype(bool).sum()) for i in range(5)] for step in steps] == [
        [count] * 5 for count in (16, 13, 10, 7, 4)
    ]
    for before, after in itertools.pairwise(steps[:-1]):
        left = (after != 0) & masks
        assert np.array_equal(after[left], maps[left])
        assert ((before != 0) & masks)[left].all()


def test_what_is_left_at_the_end_lies_in_places_drawn_anew(oracle):
    maps, masks = oracle
    last, before = moved(maps, masks, np.random.default_rng(1))[:-3:-1]
    assert not (((last != 0) & masks) <= ((before != 0) & masks)).all()


def test_noise_only_grows_and_the_variance_stays(oracle):
    maps, masks = oracle
    steps = noisy(maps, masks, np.random.default_rng(1))
    assert [step.std() for step in steps] == pytest.approx([maps.std()] * 5, rel=0.15)
    alike = [np.corrcoef(maps.ravel(), step.ravel())[0, 1] for step in steps]
    assert alike == pytest.approx([1, *np.sqrt(1 - np.array(NOISE))], abs=0.1)
    noise = [step - np.sqrt(1 - share) * maps for step, share in zip(steps[1:], NOISE, strict=True)]
    assert np.allclose(noise[0] / np.sqrt(NOISE[0]), noise[-1])


def test_maps_without_a_sign_get_noise_without_one(oracle):
    maps, masks = oracle
    assert min(step.min() for step in noisy(abs(maps), masks, np.random.default_rng(1))) >= 0
    assert noisy(maps, masks, np.random.default_rng(1))[-1].min() < 0


@pytest.mark.parametrize("fixed", [True, False])
def test_a_worse_explainer_draws_anew_or_takes_no_notice(oracle, fixed):
    import torch

    maps = torch.from_numpy(oracle[0])
    steps = worse_explainers(lambda model, images, targets: maps, np.random.default_rng(0), fixed=fixed)
    assert len(steps) == len(NOISE) + 1 == len(MOVED) + 1
    assert torch.equal(steps[0](None, maps, None), maps)
    first, second = (steps[-1](None, maps, None) for _ in range(2))
    assert torch.equal(first, second) == fixed
    assert not torch.equal(first, maps)
