"""A metric that failed its trials is marked where its scores are shown, and one that passed is not."""

import json

import pandas as pd
import pytest
from refusals import refused
from report.conftest import FEW_CELLS
from report.pictures import change_samples

from xaibench.report import RunFolderError, write_report
from xaibench.scores.results import MetricVerdict, known_verdicts, read_run


def test_a_folder_without_scores_is_named(tmp_path):
    refused(RunFolderError, "", lambda: read_run(tmp_path / "nowhere"))
    refused(RunFolderError, "", write_report, tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scores.parquet", "PAR1 and then nonsense"),
        ("descriptions.json", '{"title": '),
        ("environment.json", "[1, 2]"),
        ("accuracy.csv", 'subset,variant\n"never closed'),
        ("samples.safetensors", "nonsense"),
        ("samples.safetensors", ""),
    ],
)
def test_a_damaged_file_is_named(small_run, name, content):
    (small_run / name).write_text(content)
    refused(RunFolderError, f"{name} cannot be read ", write_report, small_run)
    assert not (small_run / "report.html").exists()


def test_a_missing_column_is_named(small_run):
    scores = pd.read_parquet(small_run / "scores.parquet")
    scores.drop(columns=["correct", "reason"]).to_parquet(small_run / "scores.parquet")
    refused(RunFolderError, "reason, scored", read_run, small_run)


def test_order_of_the_parts_is_that_of_the_description(small_run):
    run = read_run(small_run)
    assert list(run.explainers)[:3] == ["pfi", "integrated_gradients", "saliency"]
    assert list(run.models) == ["llr", "mlp", "cnn"]
    assert run.scores["explainer"].cat.categories.tolist() == list(run.explainers)


def test_pictures_are_in_the_order_to_show_and_those_of_other_cells_are_left_out(small_run):
    order = sorted(FEW_CELLS, key=lambda cell: (["lin", "rigid"].index(cell[0]), ["white", "corr"].index(cell[1])))
    assert list(read_run(small_run).pictures) == order
    change_samples(small_run, lambda cell: {"model": "vit"} if cell.model == "cnn" else {})
    assert list(read_run(small_run).pictures) == order[:2]


def test_the_direction_of_a_metric_is_that_of_its_scores(small_run):
    """The leaderboards are ordered by it, also without ``descriptions.json``."""
    scores = pd.read_parquet(small_run / "scores.parquet")
    scores["higher_is_better"] = scores["metric"] != "emd_perf"
    scores.to_parquet(small_run / "scores.parquet")
    for _ in range(2):
        metrics = read_run(small_run).metrics
        assert {name: part.higher_is_better for name, part in metrics.items()} == {
            "emd_perf": False,
            "topk_precision": True,
        }
        (small_run / "descriptions.json").unlink(missing_ok=True)


def of_truth(folder, truth):
    """The run, as if its masks were of that truth."""
    pd.read_parquet(folder / "scores.parquet").assign(truth=truth).to_parquet(folder / "scores.parquet")
    return read_run(folder)


def test_what_fails_with_one_truth_is_marked_there_alone(small_run):
    assert known_verdicts()["emd_perf"]["use"].verdict == "fails"
    assert known_verdicts()["emd_perf"]["data"].verdict == "passes"
    assert "emd_perf" not in of_truth(small_run, "data").cautions
    said = of_truth(small_run, "use").cautions["emd_perf"]
    assert said.startswith(
        "On networks of which it is certain what they use it put a worse map before a better one in "
    )


def test_of_what_was_not_tried_nothing_is_said(small_run):
    assert of_truth(small_run, "").cautions == {}
    parts = json.loads((small_run / "descriptions.json").read_text())
    parts["metrics"]["emd_perf"]["own"] = True  # the user's, under a name that we have, too
    (small_run / "descriptions.json").write_text(json.dumps(parts))
    assert "emd_perf" not in of_truth(small_run, "use").cautions


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (MetricVerdict("passes", {"moved": 1.0, "noisy": 0.96}, {"moved": 0.0, "noisy": 0.04}), ""),
        (
            MetricVerdict("coarse", {"moved": 1.0, "noisy": 0.25}, {"moved": 0.0, "noisy": 0.01}),
            "On outlines and boxes it gave two maps of which one is worse the same score in 75 % of the draws where "
            "noise is mixed in.",
        ),
        (
            MetricVerdict("fails", {"moved": 0.5, "noisy": 0.25}, {"moved": 0.5, "noisy": 0.7}),
            "On outlines and boxes it put a worse map before a better one in 50 % of the draws where values are moved "
            "off the ground truth and in 70 % of the draws where noise is mixed in.",
        ),
    ],
)
def test_the_sentence_says_what_went_wrong(verdict, said):
    assert verdict.caution("human") == said
