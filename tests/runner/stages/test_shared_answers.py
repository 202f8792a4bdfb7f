"""Map-independent model outputs of a metric: computed once for all methods, with the same scores as separately."""

import pandas as pd
import pytest
from small_suites import write_suite

from xaibench.metrics.faithfulness import idsds
from xaibench.runner import run

TABLES = {
    "training": {"method": "none", "seeds": [0, 1]},
    "explaining": {"samples": 3, "scored": "all", "trainings": "all"},
    "metrics": {"idsds": {}, "halves": {"use": "idsds", "grid_size": 2}, "hit": {}},
}
FIVE = {name: {} for name in ("saliency", "sobel", "input_x_gradient", "uniform")}
FIVE["margin"] = {"use": "saliency", "channels": "sum"}


@pytest.fixture
def asked(monkeypatch):
    """The rows that networks are asked about deletions."""
    rows, ask = [], idsds.perturbed_scores_in_order

    def counted(model, samples, places, spans, *settings):
        rows.append(len(samples) * len(spans))
        return ask(model, samples, places, spans, *settings)

    monkeypatch.setattr(idsds, "perturbed_scores_in_order", counted)
    return rows


def done(folder, explainers):
    result = run(write_suite(folder, explainers=explainers, **TABLES), folder / "run", engine="serial", device="cpu")
    assert result.failures == {}
    scores = pd.read_parquet(folder / "run" / "scores.parquet")
    return scores[scores["metric"] != "hit"]


def values(scores):
    columns = ["explainer", "metric", "seed", "sample"]
    return scores.astype(dict.fromkeys(columns, str)).set_index(columns)["value"].sort_index()


def test_a_network_is_asked_once_whatever_the_number_of_methods(tmp_path, asked):
    five = done(tmp_path / "five", FIVE)
    once = 2 * 3 * (17 + 5)  # two networks, three samples, a grid of 4×4 and one of 2×2
    assert sum(asked) == once
    asked.clear()
    one = done(tmp_path / "one", {"input_x_gradient": {}})
    assert sum(asked) == once
    pd.testing.assert_series_equal(values(five)[["input_x_gradient"]], values(one))
