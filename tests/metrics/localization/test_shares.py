"""Shares of the mass of a map."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import redrawing

from xaibench.metrics import mass_accuracy, part_shares, shares


@pytest.fixture
def reliance_case():
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, 5, 4)), rng.random((12, 5, 4)) < 0.3, rng.random((12, 5, 4))


def test_shares_are_the_oracles(reliance_case):
    found = np.stack(shares(*reliance_case, reduction="none"), axis=1)
    expected = [redrawing.shares(*(part[n].ravel() for part in reliance_case)) for n in range(12)]
    assert np.allclose(found, expected, rtol=1e-12)
    assert np.allclose(np.stack(shares(*reliance_case)), np.mean(expected, axis=0))
    assert np.allclose(found[:, 0], mass_accuracy(reliance_case[0], reliance_case[1], reduction="none"))


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


def test_a_faithful_map_has_nothing_that_is_not_relied_on(reliance_case):
    _, masks, reliance = reliance_case
    assert shares(-3 * reliance, masks, reliance).not_relied_on == pytest.approx(0, abs=1e-15)
    worse = reliance.copy()
    worse[:, 0, 0] += 5
    beside = ~masks[:, 0, 0]
    more = shares(worse, masks, reliance, reduction="none").not_relied_on
    assert (more[beside] > 0.1).all()


def test_the_scale_of_neither_counts_and_torch_is_numpy(reliance_case):
    maps, masks, reliance = reliance_case
    expected = shares(maps, masks, reliance, reduction="none")
    scaled = shares(maps * 1e300, masks, reliance * 1e-300, reduction="none")
    tensors = shares(*(torch.from_numpy(part) for part in reliance_case), reduction="none")
    for one, two, three in zip(expected, scaled, tensors, strict=True):
        assert np.allclose(one, two, rtol=1e-9)
        assert np.array_equal(one, three.numpy())


def test_undefined_and_refused(reliance_case):
    maps, masks, reliance = reliance_case
    for wrong in ((0 * maps, masks, reliance), (maps, masks, 0 * reliance), (maps, masks & False, reliance)):
        assert all(math.isnan(share) for share in shares(*wrong))
    with pytest.raises(ValueError, match=r"maps and reliance must have the same shape .* \[12, 5, 4\] .* \[3, 5, 4\]"):
        shares(maps, masks, reliance[:3])
    with pytest.raises(ValueError, match="reliance must be finite"):
        shares(maps, masks, reliance * np.nan)


@pytest.fixture
def parts_case():
    rng = np.random.default_rng(0)
    return rng.standard_normal((5, 6, 7)), rng.integers(0, 5, (5, 6, 7))


def test_shares_are_sums_of_magnitudes(parts_case):
    maps, parts = parts_case
    found = part_shares(maps, parts, reduction="none")
    for row_shares, one, numbers in zip(found, maps, parts, strict=True):
        sums = [0.0] * 5
        for row in range(6):
            for column in range(7):
                sums[numbers[row, column]] += abs(one[row, column])
        assert row_shares == pytest.approx([part / sum(sums) for part in sums], rel=1e-12)
    assert part_shares(maps, parts) == pytest.approx(found.mean(0), rel=1e-12)


def test_the_share_of_some_parts_is_the_mass_accuracy_of_their_mask(parts_case):
    maps, parts = parts_case
    found = part_shares(maps, parts, reduction="none")
    assert found[:, [2, 3]].sum(1) == pytest.approx(mass_accuracy(maps, np.isin(parts, (2, 3)), reduction="none"))


def test_noise_has_the_share_of_the_area():
    parts = np.zeros((1, 10, 10), int)
    parts[:, :3] = 1
    maps = np.random.default_rng(1).random((400, 10, 10))
    assert part_shares(maps, parts.repeat(400, 0)) == pytest.approx([0.7, 0.3], abs=0.01)


def test_a_zero_map_is_undefined_and_leaves_the_others_alone(parts_case):
    maps, parts = parts_case
    whole = part_shares(maps, parts, reduction="none")
    maps[2] = 0
    found = part_shares(maps, parts, reduction="none")
    assert np.isnan(found[2]).all()
    assert np.array_equal(np.delete(found, 2, 0), np.delete(whole, 2, 0))
    assert part_shares(maps, parts) == pytest.approx(np.delete(whole, 2, 0).mean(0))


def test_torch_single_maps_and_huge_values(parts_case):
    maps, parts = parts_case
    whole = part_shares(maps, parts, reduction="none")
    assert np.array_equal(part_shares(torch.from_numpy(maps), torch.from_numpy(parts), reduction="none"), whole)
    assert part_shares(maps[0], parts[0]) == pytest.approx(whole[0])
    for scale in (1e300, 1e-300):
        assert part_shares(maps * scale, parts, reduction="none") == pytest.approx(whole)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m, p: (m, p[:, 1:]), ValueError, r"maps \[5, 6, 7\] and parts \[5, 5, 7\]"),
        (lambda m, p: (m, p - 1), ValueError, "parts contain -1"),
        (lambda m, p: (m, p * 0.5), TypeError, "parts are float64, expected integers"),
        (lambda m, p: (m * np.nan, p), ValueError, "finite"),
    ],
)
def test_bad_input_is_refused(parts_case, change, error, message):
    with pytest.raises(error, match=message):
        part_shares(*change(*parts_case))
