"""An explainer that says it cannot treat a network is not applicable there: no failure, and the others go on."""

import json

import pandas as pd
import pytest
from small_suites import write_suite
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.runner import RunRequest, run
from xaibench.types import ExplainerInfo


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return write_suite(
        tmp_path_factory.mktemp("applies"),
        cells=[{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr", "cnn"]}],
        explainers={"oracles.simple_explainers:convolutions_only": {}, "uniform": {}},
        metrics={"iou": {}, "hit": {}},
    )


def test_what_an_explainer_refuses_is_not_applicable(suite, tmp_path):
    seen = {}
    result = run(suite, tmp_path, engine="serial", progress=lambda stage, *counts: seen.update({stage: counts}))
    assert result.failures == {}
    ((job, why),) = result.inapplicable.items()
    assert "convolutions_only for llr" in job
    assert why == "convolutions_only needs a convolution, and the network has none."
    assert seen["explain"] == (3, 3)  # two of the explainer, one of the control
    assert seen["score"] == (6, 6)
    scores = pd.read_parquet(tmp_path / "scores.parquet")
    assert set(scores[scores["explainer"].str.contains("only")]["model"]) == {"cnn"}
    assert pd.read_csv(tmp_path / "failures.csv").empty
    assert pd.read_csv(tmp_path / "jobs.csv")["failed"].sum() == 0
    assert json.loads((tmp_path / "environment.json").read_text())["inapplicable"] == result.inapplicable


def test_the_command_says_so_and_ends_well(suite, tmp_path):
    result = CliRunner().invoke(app, ["run", str(suite), "--out", str(tmp_path), "--engine", "serial"])
    assert result.exit_code == 0, result.output
    assert "Not applicable: oracles.simple_explainers:convolutions_only for llr" in result.output


@ExplainerInfo("Convolutions only", needs_convolution=True)
def convolutions_only(model, images, targets):
    return images[:, 0]


def test_what_is_known_beforehand_is_not_even_planned(suite, tmp_path):
    with RunRequest(suite, tmp_path, explainers=[f"{__name__}:convolutions_only"]).opened() as opened:
        explained = {str(job.network) for job in opened.plan.jobs if job.stage == "explain" and job.network}
    assert explained == {"cnn (seed best)"}
