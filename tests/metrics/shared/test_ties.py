"""Scores that depend on an order do not change with the last bits of a map."""

import numpy as np
import pytest
import torch

from xaibench import metrics
from xaibench.metrics.shared.perturb import ranks
from xaibench.metrics.shared.ranks import TOLERANCE, centered_ranks, merge_ties, order_descending

SIZE = 8
ORDERED = ("topk_precision", "precision_skill", "hit", "roc_auc", "average_precision", "use_auc", "use_ap")


def maps_with_ties(seed: int, count: int = 40) -> np.ndarray:
    """Return maps of few distinct values, so that most pixels are tied with others."""
    return np.random.default_rng(seed).integers(-3, 4, (count, SIZE, SIZE)) / 7.0


def in_last_bits(maps: np.ndarray, seed: int) -> np.ndarray:
    """Return maps that differ as on another machine: by up to 1e-13 of their largest magnitude."""
    noise = np.random.default_rng(seed).uniform(-1e-13, 1e-13, maps.shape)
    return maps + noise * np.abs(maps).max(axis=(1, 2), keepdims=True)


def random_masks(seed: int, count: int = 40) -> np.ndarray:
    masks = np.random.default_rng(seed).random((count, SIZE, SIZE)) < 0.2
    masks[:, 0, 0] = True
    return masks


@pytest.mark.parametrize("name", ORDERED)
def test_scores_do_not_depend_on_the_last_bits(name):
    maps, masks = maps_with_ties(0), random_masks(1)
    metric = getattr(metrics, name)
    exact = metric(maps, masks, reduction="none")
    for seed in range(3):
        np.testing.assert_allclose(metric(in_last_bits(maps, seed), masks, reduction="none"), exact, atol=1e-12)


def test_ranks_of_pixels_do_not_depend_on_the_last_bits():
    maps = maps_with_ties(0)
    exact = ranks(torch.from_numpy(maps))
    for seed in range(3):
        changed = torch.from_numpy(in_last_bits(maps, seed))
        assert torch.equal(ranks(changed), exact)
        assert np.array_equal(centered_ranks(changed), centered_ranks(torch.from_numpy(maps)))


def test_values_further_apart_than_the_tolerance_keep_their_order():
    apart = np.array([[1.0, 1.0 - 2 * TOLERANCE, 0.0, 1.0 - TOLERANCE / 2]])
    assert order_descending(torch.from_numpy(apart)).tolist() == [[0, 3, 1, 2]]
    assert len(np.unique(merge_ties(apart))) == 3
    assert merge_ties(apart)[0, 0] == merge_ties(apart)[0, 3]


def test_a_chain_of_near_ties_is_one_tie():
    chain = np.array([[5.0, 1.0, 1 + 4e-9, 1 + 8e-9, 2.0]])  # the tolerance is 5e-9
    assert merge_ties(chain).tolist() == [[5.0, 1.0, 1.0, 1.0, 2.0]]
    assert order_descending(torch.from_numpy(chain)).tolist() == [[0, 4, 1, 2, 3]]


def test_merged_maps_without_near_ties_are_unchanged():
    values = np.random.default_rng(0).normal(size=(5, 64))
    assert merge_ties(values) is values


def test_the_largest_floats_do_not_overflow():
    huge = np.array([[1.7e308, -1.7e308, 0.0, 1.7e308]])
    assert merge_ties(huge).tolist() == huge.tolist()
    assert order_descending(torch.from_numpy(huge)).tolist() == [[0, 3, 2, 1]]


def test_infinite_values_stay_in_order():
    infinite = torch.tensor([[-torch.inf, 1.0, -torch.inf, 1.0 + 1e-12, 4.0]], dtype=torch.float64)
    assert order_descending(infinite).tolist() == [[4, 1, 3, 0, 2]]
