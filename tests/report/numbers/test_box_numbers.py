import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.report_tables import quantile

from xaibench.report.numbers.box_numbers import MAX_OUTLIERS, describe, groups, lexicographic_rank

scores = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40)


@given(scores)
def test_quartiles_and_whiskers_follow_their_definitions(values):
    box = describe(np.array(values))
    ordered = sorted(values)
    assert (box.low, box.high, box.n, box.n_valid) == (ordered[0], ordered[-1], len(values), len(values))
    assert [box.q25, box.median, box.q75] == pytest.approx([quantile(ordered, q) for q in (0.25, 0.5, 0.75)])
    reach = 1.5 * (box.q75 - box.q25)
    within = [v for v in ordered if box.q25 - reach <= v <= box.q75 + reach]
    assert box.whisker_low == min([within[0], box.q25])
    assert box.whisker_high == max([within[-1], box.q75])
    outside = {v for v in ordered if v < box.q25 - reach or v > box.q75 + reach}
    assert set(box.outliers) <= outside
    if len(outside) <= MAX_OUTLIERS:
        assert set(box.outliers) == outside


def test_undefined_values_are_counted_and_left_out():
    box = describe(np.array([np.nan, 0.2, np.nan, 0.4]))
    assert (box.n, box.n_valid, box.mean) == (4, 2, pytest.approx(0.3))
    assert box.std == pytest.approx(np.sqrt(0.02))


def test_without_a_defined_value_nothing_is_defined():
    box = describe(np.full(3, np.nan))
    assert (box.n, box.n_valid, box.outliers) == (3, 0, ())
    assert np.isnan([box.mean, box.std, box.low, box.q25, box.median, box.whisker_high]).all()
    assert describe(np.empty(0)).n == 0


def test_one_value_has_no_spread():
    box = describe(np.array([0.5]))
    assert (box.median, box.whisker_low, box.whisker_high) == (0.5, 0.5, 0.5)
    assert np.isnan(box.std)


def test_few_outliers_are_kept_with_the_extreme_ones():
    values = np.concatenate([np.full(1000, 0.5), np.linspace(0.6, 1.0, 100), np.full(50, 0.1)])
    box = describe(values)
    above = [v for v in box.outliers if v > 0.5]
    assert max(above) == 1.0
    assert len(above) == MAX_OUTLIERS
    assert [v for v in box.outliers if v < 0.5] == [0.1]  # a value is drawn once, however often it occurs


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=50))
def test_groups_are_those_of_a_dictionary(pairs):
    expected: dict[int, list[float]] = {}
    for code, value in pairs:
        expected.setdefault(code, []).append(value)
    codes = np.array([code for code, _ in pairs], dtype=int)
    split = groups(codes, np.array([value for _, value in pairs]))
    assert [(code, part.tolist()) for code, part in split] == sorted(expected.items())


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, np.nan]), st.sampled_from([0.1, 0.2])), max_size=12))
def test_rank_counts_the_better_ones(pairs):
    ranks = lexicographic_rank(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
    known = [pair for pair in pairs if not np.isnan(pair[0])]
    for pair, rank in zip(pairs, ranks, strict=True):
        if np.isnan(pair[0]):
            assert np.isnan(rank)
        else:
            assert rank == sum(other > pair for other in known) + (known.count(pair) + 1) / 2


def test_a_difference_of_rounding_is_a_tie():
    assert lexicographic_rank(np.array([0.1 + 0.2, 0.3]), np.array([1.0, 1.0])).tolist() == [1.5, 1.5]
