"""Shares of a map on the parts of an object."""

import numpy as np
import pytest
import torch

from xaibench.metrics import mass_accuracy, part_shares


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    return rng.standard_normal((5, 6, 7)), rng.integers(0, 5, (5, 6, 7))


def test_shares_are_sums_of_magnitudes(case):
    maps, parts = case
    found = part_shares(maps, parts, reduction="none")
    for shares, one, numbers in zip(found, maps, parts, strict=True):
        sums = [0.0] * 5
        for row in range(6):
            for column in range(7):
                sums[numbers[row, column]] += abs(one[row, column])
        assert shares == pytest.approx([part / sum(sums) for part in sums], rel=1e-12)
    assert part_shares(maps, parts) == pytest.approx(found.mean(0), rel=1e-12)


def test_the_share_of_some_parts_is_the_mass_accuracy_of_their_mask(case):
    maps, parts = case
    found = part_shares(maps, parts, reduction="none")
    assert found[:, [2, 3]].sum(1) == pytest.approx(mass_accuracy(maps, np.isin(parts, (2, 3)), reduction="none"))


def test_noise_has_the_share_of_the_area():
    parts = np.zeros((1, 10, 10), int)
    parts[:, :3] = 1
    maps = np.random.default_rng(1).random((400, 10, 10))
    assert part_shares(maps, parts.repeat(400, 0)) == pytest.approx([0.7, 0.3], abs=0.01)


def test_a_zero_map_is_undefined_and_leaves_the_others_alone(case):
    maps, parts = case
    whole = part_shares(maps, parts, reduction="none")
    maps[2] = 0
    found = part_shares(maps, parts, reduction="none")
    assert np.isnan(found[2]).all()
    assert np.array_equal(np.delete(found, 2, 0), np.delete(whole, 2, 0))
    assert part_shares(maps, parts) == pytest.approx(np.delete(whole, 2, 0).mean(0))


def test_torch_single_maps_and_huge_values(case):
    maps, parts = case
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
def test_bad_input_is_refused(case, change, error, message):
    with pytest.raises(error, match=message):
        part_shares(*change(*case))
