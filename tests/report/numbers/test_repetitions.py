"""Reproducibility: shares and rankings, compared with direct computations from the rows of the table."""

import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from xaibench.report.numbers import leaderboards
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import boards
from xaibench.report.numbers.rankings import first_places, reproducibility
from xaibench.report.numbers.summary import summarize
from xaibench.report.results import read_run


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
