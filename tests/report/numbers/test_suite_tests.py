"""Tests over all cells of a suite: the literal formula, and how often they find a difference where there is none."""

import itertools

import numpy as np
import pandas as pd
import pytest
from oracles.report_tables import holm
from scipy.stats import t

from xaibench.report.numbers.inference import pair_tests
from xaibench.report.numbers.leaderboards import pairs_over_cells
from xaibench.statistics import SamplingDesign

NAMES = list("abcdefgh")
SHAPE = (3, 2, 12)  # data sets, trainings in each, samples
DRAWN = SamplingDesign.of(
    72, **dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(SHAPE)), strict=True))
)


def comparisons(cells):
    """What a run has of these cells: ``{(subset, variant, model): [72, M] scores}``."""
    tables = [
        pair_tests(NAMES[: values.shape[1]], [False] * values.shape[1], values, DRAWN, 36).assign(
            subset=cell[0], variant=cell[1], model=cell[2], metric="iou"
        )
        for cell, values in cells.items()
    ]
    return pd.concat(tables, ignore_index=True)


def suite(rng, shared=1.0, methods=8, places=4, models=2, favors=0.0):
    """Scores about 0, or about ``favors`` for the first method; the networks of a place share so much of its draws."""
    found = {}
    for place in range(places):
        common = rng.normal(size=(3, 1, 1, methods))
        for model in range(models):
            own = rng.normal(size=(3, 1, 1, methods))
            draws = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
            values = draws + 0.5 * rng.normal(size=(3, 2, 1, methods)) + rng.normal(size=(*SHAPE, methods))
            values[..., 0] += favors
            found[f"s{place}", "white", f"m{model}"] = values.reshape(72, methods)
    return found


def literal(pairs, first, second):
    """Return the mean difference of a pair, and the variance and degrees of freedom of each subset and variant."""
    mine = pairs[(pairs["first"] == first) & (pairs["second"] == second)]
    variances, freedoms = [], []
    for _, place in mine.groupby(["subset", "variant"]):
        own = [(row.high - row.low) / 2 / t.ppf(0.975, row.df) / len(mine) for row in place.itertuples()]
        variances.append(sum(own) ** 2)
        freedoms.append(place["df"].min())
    return mine["difference"].mean(), np.array(variances), np.array(freedoms)


def satterthwaite(variances, freedoms):
    return variances.sum() ** 2 / (variances**2 / freedoms).sum()


def test_every_pair_is_the_literal_one():
    pairs = comparisons(suite(np.random.default_rng(0), favors=3.0))
    found = pairs_over_cells(pairs.sample(frac=1, random_state=0), "iou").set_index(["first", "second"])
    assert sorted(found.index) == list(itertools.combinations(NAMES, 2))
    parts = {pair: literal(pairs, *pair) for pair in found.index}
    pooled = satterthwaite(np.mean([variances for _, variances, _ in parts.values()], axis=0), np.full(4, 2.0))
    p = []
    for pair, (mean, variances, freedoms) in parts.items():
        row, freedom = found.loc[pair], min(satterthwaite(variances, freedoms), pooled)
        assert (row["difference"], row["df"]) == pytest.approx((mean, freedom))
        p.append(2 * t.sf(abs(mean) / np.sqrt(variances.sum()), freedom))
        assert row["p"] == pytest.approx(p[-1])
    assert found["p_holm"].tolist() == pytest.approx(holm(p))
    assert found["p"].min() < 0.05 < found["p"].max()


def test_a_cell_that_dominates_has_the_degrees_of_freedom_of_its_data_sets():
    """Its variance is small by chance in some pairs, whose degrees of freedom would be those of all cells."""
    rng = np.random.default_rng(5)
    cells = suite(rng, models=1)
    cells["s0", "white", "m0"] = 30 * cells["s0", "white", "m0"]
    found = pairs_over_cells(comparisons(cells), "iou")
    assert found["df"].max() == pytest.approx(2, abs=0.1)


def test_a_pair_that_a_cell_does_not_have_is_left_out_and_so_is_one_without_a_spread():
    pairs = comparisons(suite(np.random.default_rng(1)))
    last = (pairs["subset"] == "s3") & (pairs["model"] == "m1")
    fewer = pairs[~(last & (pairs["second"] == "h"))].copy()
    fewer.loc[(fewer["first"] == "a") & (fewer["second"] == "b") & last, ["low", "high", "df"]] = np.nan
    found = pairs_over_cells(fewer, "iou")
    kept = set(itertools.combinations(NAMES[:-1], 2)) - {("a", "b")}
    assert set(zip(found["first"], found["second"], strict=True)) == kept
    assert found.notna().all(axis=None)
    assert pairs_over_cells(pairs, "another").empty


def test_differences_that_do_not_vary_have_the_p_value_of_the_sign_test():
    pairs = comparisons(suite(np.random.default_rng(2), methods=3))
    pairs["low"] = pairs["high"] = pairs["difference"] = np.where(pairs["first"] == "a", 0.1, 0.0)
    found = pairs_over_cells(pairs, "iou").set_index(["first", "second"])["p_holm"]
    sign = 2.0 ** (1 - 36 * 8)  # 36 groups of samples in each of eight cells
    assert found.to_dict() == pytest.approx({("a", "b"): 3 * sign, ("a", "c"): 3 * sign, ("b", "c"): 1}, abs=0)
    few = pairs_over_cells(pairs[pairs["subset"] == "s0"].assign(n_groups=2), "iou").set_index(["first", "second"])
    assert few.loc[("a", "b"), "p"] == 2.0**-3  # four samples in two cells are not significant


def alarms(shared, runs=50, change=lambda pairs: pairs):
    """In how many suites of methods that do not differ any two are told apart."""
    rng = np.random.default_rng(3)
    drawn = (change(comparisons(suite(rng, shared, methods=6, places=3))) for _ in range(runs))
    return np.mean([(pairs_over_cells(pairs, "iou")["p_holm"] < 0.05).any() for pairs in drawn])


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_of_methods_that_do_not_differ_hardly_any_are_told_apart(shared):
    assert alarms(shared) <= 0.1


def test_that_test_can_fail():
    # As if each network had images of its own.
    assert alarms(1.0, change=lambda pairs: pairs.assign(subset=pairs["subset"] + pairs["model"])) > 0.15


def test_a_difference_of_all_cells_is_found_that_no_cell_shows():
    rng, found, alone = np.random.default_rng(4), [], []
    for _ in range(5):
        pairs = comparisons(suite(rng, shared=0.3, favors=3.0))
        tests = pairs_over_cells(pairs, "iou")
        found += (tests["p_holm"] < 0.05)[tests["first"] == "a"].tolist()
        alone += (pairs["p_holm"] < 0.05)[pairs["first"] == "a"].tolist()
    assert np.mean(found) > 2 * np.mean(alone)
