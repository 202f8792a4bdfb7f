"""Means over all cells with the groups of methods that do not differ significantly, compared with literal ones."""

import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
from report.known_scores import NOISE, make_board
from scipy.stats import kendalltau

from xaibench.scores import leaderboards
from xaibench.scores.leaderboards import CellTests, _groups, boards, first_places, rankings, reproducibility
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize


@pytest.fixture
def two_metrics(fresh_annotated_run):
    """A run on annotated sets with one metric of each direction."""
    scores = pd.read_parquet(fresh_annotated_run / "scores.parquet")
    scores[scores["metric"].isin(["iou", "deletion"])].to_parquet(fresh_annotated_run / "scores.parquet")
    return fresh_annotated_run


def ranked(folder):
    run = read_run(folder)
    summary, pairs = infer(run, summarize(run))
    return rankings(boards(run, summary, pairs)), pairs


def literal_groups(names, differ):
    """Return the maximal runs of neighbors of which no two differ."""
    runs = [names[i:j] for i, j in itertools.combinations(range(len(names) + 1), 2) if j - i > 1]
    runs = [run for run in runs if not any(frozenset(pair) in differ for pair in itertools.combinations(run, 2))]
    return [tuple(run) for run in runs if not any(set(run) < set(other) for other in runs)]


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_the_maximal_runs_without_a_significant_difference(seed):
    rng, names = np.random.default_rng(seed), list("abcdefg")
    tests = pd.DataFrame(itertools.combinations(names, 2), columns=["first", "second"])
    tests["p_holm"] = rng.uniform(0, 0.2, len(tests))
    differ = {frozenset(row[:2]) for row in tests.itertuples(index=False) if row[2] < 0.05}
    swapped = tests.rename(columns={"first": "second", "second": "first"})
    for table in (tests, swapped):
        assert list(_groups(names, table)) == literal_groups(names, differ)


def test_means_are_over_the_means_of_the_cells_and_groups_follow_from_the_tests(shared_run):
    rankings_by_metric, pairs = ranked(shared_run)
    found = rankings_by_metric["emd_perf"]
    assert found.cells == 18
    # One is for convolutions only, the others are the answer in some cells.
    assert set(found.left_out) == {"guided_gradcam", "input", "laplace"}
    scores = read_run(shared_run).scores.query("scored and metric == 'emd_perf'")
    cells = scores.groupby(["explainer", "subset", "variant", "model"], observed=True)["value"].mean()
    means = cells.groupby("explainer", observed=True).mean().drop(list(found.left_out))
    assert found.means == pytest.approx(means.to_dict())
    names = means.sort_values(ascending=False).index.tolist()
    assert list(found.means) == names
    tests = CellTests.read(pairs, "emd_perf").over()
    differ = {
        frozenset((first, second))
        for first, second, p in tests[["first", "second", "p_holm"]].itertuples(index=False)
        if p < 0.05
    }
    assert differ
    assert list(found.groups) == literal_groups(names, differ)


def test_an_explainer_that_one_cell_lacks_is_left_out(two_metrics):
    scores = pd.read_parquet(two_metrics / "scores.parquet")
    scores = scores[(scores["explainer"] != "cam") | (scores["dataset"] != "pet")]
    scores.to_parquet(two_metrics / "scores.parquet")
    found = ranked(two_metrics)[0]["iou"]
    assert found.left_out == ("cam",)
    assert "cam" not in found.means


def test_fewer_than_three_methods_or_runs_without_tests_are_not_ranked(two_metrics):
    scores = pd.read_parquet(two_metrics / "scores.parquet")
    scores[scores["explainer"].isin(["cam", "rise"])].to_parquet(two_metrics / "scores.parquet")
    assert ranked(two_metrics)[0] == {}
    scores.to_parquet(two_metrics / "scores.parquet")
    run = read_run(two_metrics)
    assert rankings(boards(run, infer(run, summarize(run))[0])) == {}


def test_groups_of_ranked_methods_follow_from_the_tests_of_their_places(tmp_path):
    """The pair of two ranked methods has p = 0.02, which is 0.08 after the correction with the pairs of controls."""
    means = {"a": 0.9, "b": 0.9 - 0.00583} | dict.fromkeys(("c", "d", "e"), 0.1)
    _, found = make_board(tmp_path, means, {"b": NOISE, "d": NOISE, "e": -NOISE}, controls=("c", "d", "e"))
    tests = found[""].standings.tests["k"]
    assert 0.01 < tests.over(pairs=[("a", "b")])["p_holm"].item() < 0.025
    assert tests.over().set_index(["first", "second"]).loc[("a", "b"), "p_holm"] > 0.05
    place = pd.DataFrame(found[""].columns((None, None, None))).set_index("explainer")["place"]
    assert (place["a"], place["b"]) == (1, 2)
    assert rankings(found)["k"].groups == (("c", "d", "e"),)


@pytest.fixture
def repeated_run(few_cells_run, tmp_path, no_figures):
    """Two data sets of three trainings each, every one of which moves each method by something of its own."""
    folder = shutil.copytree(few_cells_run, tmp_path / "repeated")
    scores, rng = pd.read_parquet(folder / "scores.parquet"), np.random.default_rng(0)
    parts = []
    for data_seed, seed in itertools.product(range(2), range(3)):
        moved = scores["explainer"].map({name: rng.normal(0, 0.05) for name in scores["explainer"].unique()})
        parts.append(scores.assign(data_seed=data_seed, seed=seed, value=scores["value"] + moved))
    pd.concat(parts).to_parquet(folder / "scores.parquet")
    return folder


def test_the_order_of_two_trainings_is_compared_literally(repeated_run):
    run = read_run(repeated_run)
    found = {(*row.cell, row.metric): row for row in reproducibility(run)}
    assert len(found) == 4 * 2
    rows = pd.read_parquet(repeated_run / "scores.parquet").query("correct and subset == 'rigid'")
    rows = rows[
        (rows["metric"] == "emd_perf")
        & ~rows["explainer"].isin([n for n in run.explainers if run.explainers[n].control])
    ]
    means = rows.groupby(["data_seed", "seed", "explainer"])["value"].mean().unstack("explainer")
    taus = [kendalltau(one, other).statistic for one, other in itertools.combinations(means.to_numpy(), 2)]
    mine = found["rigid", "corr", "cnn", "emd_perf"]
    assert mine.trainings == 6
    assert mine.tau == pytest.approx((np.median(taus), min(taus), max(taus)))


def test_the_shares_say_what_was_moved(repeated_run):
    """The same samples in all: what differs by training is the training's, and nothing is left over."""
    for row in reproducibility(read_run(repeated_run)):
        assert sum(row.shares) == pytest.approx(1)
        assert row.shares[1] > 0.02
        assert row.shares[3] < 1e-9


def test_one_training_has_nothing_to_compare(few_cells_run):
    assert reproducibility(read_run(few_cells_run)) == []


def test_who_is_first_is_counted_over_the_repetitions(repeated_run, few_cells_run, monkeypatch):
    monkeypatch.setattr(leaderboards, "RESAMPLES", 60)
    found = {}
    for folder in (repeated_run, few_cells_run):
        run = read_run(folder)
        (mine,) = boards(run, infer(run, summarize(run))[0]).values()
        found[folder] = first_places(mine)
        for k, metric in enumerate(mine.standings.metrics):
            counts = dict.fromkeys(mine.standings.explainers, 0.0)
            for means in mine.means[:, :, k]:
                whole = [m for m, name in enumerate(counts) if not np.isnan(means[:, m]).any()]
                over_cells = means.mean(axis=0)
                own = [m for m in whole if not run.explainers[mine.standings.explainers[m]].control]
                best = [m for m in own if over_cells[m] == over_cells[own].max()]
                for m in best:
                    counts[mine.standings.explainers[m]] += 1 / len(best) / len(mine.means)
            expected = {name: share for name, share in counts.items() if share >= 0.005}
            assert dict(found[folder][metric]) == pytest.approx(expected)
            shares = [share for _, share in found[folder][metric]]
            assert shares == sorted(shares, reverse=True)
