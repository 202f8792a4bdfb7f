"""Whose doing the mass of a map is."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import redrawing

from xaibench.metrics import mass_accuracy, shares


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, 5, 4)), rng.random((12, 5, 4)) < 0.3, rng.random((12, 5, 4))


def test_shares_are_the_oracles(case):
    found = np.stack(shares(*case, reduction="none"), axis=1)
    expected = [redrawing.shares(*(part[n].ravel() for part in case)) for n in range(12)]
    assert np.allclose(found, expected, rtol=1e-12)
    assert np.allclose(np.stack(shares(*case)), np.mean(expected, axis=0))
    assert np.allclose(found[:, 0], mass_accuracy(case[0], case[1], reduction="none"))


numbers = st.floats(-1e200, 1e200, allow_nan=False)


@given(arrays(float, (2, 2, 3), elements=numbers), arrays(bool, (2, 2, 3)), arrays(float, (2, 2, 3), elements=numbers))
def test_they_sum_to_one_or_are_undefined(maps, masks, reliance):
    found = np.stack(shares(maps, masks, reliance, reduction="none"))
    undefined = ~(maps != 0).any(axis=(1, 2)) | ~(reliance != 0).any(axis=(1, 2)) | ~masks.any(axis=(1, 2))
    assert np.array_equal(np.isnan(found).all(axis=0), undefined)
    assert np.array_equal(np.isnan(found).any(axis=0), undefined)
    defined = found[:, ~undefined]
    assert np.allclose(defined.sum(axis=0), 1)
    assert ((defined >= 0) & (defined <= 1 + 1e-12)).all()


def test_a_faithful_map_has_nothing_that_is_not_relied_on(case):
    _, masks, reliance = case
    assert shares(-3 * reliance, masks, reliance).not_relied_on == pytest.approx(0, abs=1e-15)
    worse = reliance.copy()
    worse[:, 0, 0] += 5
    beside = ~masks[:, 0, 0]
    more = shares(worse, masks, reliance, reduction="none").not_relied_on
    assert (more[beside] > 0.1).all()


def test_the_scale_of_neither_counts_and_torch_is_numpy(case):
    maps, masks, reliance = case
    expected = shares(maps, masks, reliance, reduction="none")
    scaled = shares(maps * 1e300, masks, reliance * 1e-300, reduction="none")
    tensors = shares(*(torch.from_numpy(part) for part in case), reduction="none")
    for one, two, three in zip(expected, scaled, tensors, strict=True):
        assert np.allclose(one, two, rtol=1e-9)
        assert np.array_equal(one, three.numpy())


def test_undefined_and_refused(case):
    maps, masks, reliance = case
    for wrong in ((0 * maps, masks, reliance), (maps, masks, 0 * reliance), (maps, masks & False, reliance)):
        assert all(math.isnan(share) for share in shares(*wrong))
    with pytest.raises(ValueError, match=r"maps and reliance must have the same shape .* \[12, 5, 4\] .* \[3, 5, 4\]"):
        shares(maps, masks, reliance[:3])
    with pytest.raises(ValueError, match="reliance must be finite"):
        shares(maps, masks, reliance * np.nan)
