import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.data.stratified_splits import stratified_split


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    weights=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1), st.floats(0.1, 1)),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_parts_are_exact_disjoint_and_stratified(counts, weights, seed):
    strata = np.repeat(np.arange(len(counts)), counts)
    fractions = [weight / sum(weights) for weight in weights]
    sizes = np.diff([0, *(round(bound * len(strata)) for bound in np.cumsum(fractions))])
    if min(sizes) == 0:
        refused(ValueError, "empty split", lambda: stratified_split(strata, fractions, np.random.default_rng(seed)))
        return
    parts = stratified_split(strata, fractions, np.random.default_rng(seed))
    assert [len(part) for part in parts] == list(sizes)
    assert sorted(np.concatenate(parts)) == list(range(len(strata)))
    for part in parts:
        shares = np.bincount(strata[part], minlength=len(counts))
        assert (np.abs(shares - len(part) * np.array(counts) / len(strata)) < 2).all()


def test_the_seed_decides():
    strata = np.arange(300) % 3
    first, again, other = (
        stratified_split(strata, (0.6, 0.2, 0.2), np.random.default_rng(seed))[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("fractions", [(0.8, 0.2), (0.8, 0.1, 0.2), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1)])
def test_fractions_that_are_none(fractions):
    refused(ValueError, "fractions", stratified_split, np.zeros(50, np.int64), fractions, np.random.default_rng(0))
