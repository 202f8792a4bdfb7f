"""Map-independent model outputs of a metric: computed once for all methods, with the same scores as separately."""

import pandas as pd
import pytest

from xaibench.metrics.faithfulness import idsds
from xaibench.runner import run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.store.result_store import Store
from xaibench.runner.suites.files import load_suite

SUITE = """
name = "answers"
title = "Answers"

[data]
parameters = { n_samples = 60 }

[training]
method = "none"
seeds = [0, 1]

[explaining]
samples = 3
scored = "all"
trainings = "all"

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["mlp"]

[metrics]
idsds = {}
halves = { use = "idsds", grid_size = 2 }
hit = {}

[explainers]
"""
FIVE = (
    'saliency = {}\nsobel = {}\ninput_x_gradient = {}\nuniform = {}\nmargin = { use = "saliency", channels = "sum" }\n'
)


@pytest.fixture
def asked(monkeypatch):
    """The rows that networks are asked about deletions."""
    rows, ask = [], idsds.perturbed_scores_in_order

    def counted(model, samples, places, spans, **how):
        rows.append(len(samples) * len(spans))
        return ask(model, samples, places, spans, **how)

    monkeypatch.setattr(idsds, "perturbed_scores_in_order", counted)
    return rows


def done(folder, explainers):
    folder.mkdir(exist_ok=True)
    (folder / "suite.toml").write_text(SUITE + explainers)
    result = run(folder / "suite.toml", folder / "run", engine="serial", device="cpu")
    assert result.failures == {}
    scores = pd.read_parquet(folder / "run" / "scores.parquet")
    return scores[scores["metric"] != "hit"], Store(folder / "run" / "store")


def values(scores):
    columns = ["explainer", "metric", "seed", "sample"]
    return scores.astype(dict.fromkeys(columns, str)).set_index(columns)["value"].sort_index()


def jobs(folder):
    plan = make_plan(load_suite(folder / "suite.toml")[0])
    return [job for job in plan.jobs if job.stage == "score"]


def test_a_network_is_asked_once_whatever_the_number_of_methods(tmp_path, asked):
    five, store = done(tmp_path / "five", FIVE)
    once = 2 * 3 * (17 + 5)  # two networks, three samples, a grid of 4×4 and one of 2×2
    assert sum(asked) == once
    assert not store.keys("answers")  # removed after the last job that uses them
    asked.clear()
    one, _ = done(tmp_path / "one", "input_x_gradient = {}\n")
    assert sum(asked) == once
    pd.testing.assert_series_equal(values(five)[["input_x_gradient"]], values(one))


def test_answers_that_are_not_there_or_are_damaged_are_asked_again(tmp_path, asked):
    expected, store = done(tmp_path, FIVE)
    last = [job for job in jobs(tmp_path) if job.answers_from and not job.leaves_answers]
    assert len(last) == 4  # of two networks and two grids
    for left in (None, b"damaged"):
        store.files.remove(store.name("score", last[0].key))
        if left:
            store.files.write(store.name("answers", last[0].answers_key), left)
        asked.clear()
        again, _ = done(tmp_path, FIVE)
        assert len(asked) == 1
        pd.testing.assert_series_equal(values(again), values(expected))
        assert not store.keys("answers")


def test_whether_answers_are_shared_decides_no_name(tmp_path):
    for name, explainers in (("five", FIVE), ("one", "sobel = {}\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "suite.toml").write_text(SUITE + explainers)
    five, one = (
        {(job.explain.explainer.name, job.metric.name, job.key) for job in jobs(tmp_path / name)}
        for name in ("five", "one")
    )
    assert one <= five
    assert all(job.answers_from is None for job in jobs(tmp_path / "five") if job.metric.name == "hit")
