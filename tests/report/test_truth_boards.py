"""Scores of several kinds of truth in one run: a leaderboard for each, and no number over two of them."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from report.annotated import VISUAL_METRICS, write_annotated_run
from report.conftest import draw_nothing, make_scores
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.core.truth_kinds import TRUTHS, question_of
from xaibench.report import best_methods, ranked_methods
from xaibench.report.page.tables import grid_tables
from xaibench.scores import leaderboards as numbers
from xaibench.scores.leaderboards import boards, leaderboard, leaderboards_by_truth
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, summarize

#: The metrics of the made-up run that ask people; the others change pixels.
HUMAN = ("iou", "precision", "recall", "f1", "average_precision", "hit")
OF = {name: "human" if name in HUMAN else "intervention" for name in VISUAL_METRICS}


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory):
    """A small run of annotated sets whose scores say of which truth they are."""
    folder = write_annotated_run(tmp_path_factory.mktemp("mixed") / "run", samples=12)
    scores = pd.read_parquet(folder / "scores.parquet")
    scores.assign(truth=scores["metric"].map(OF)).to_parquet(folder / "scores.parquet")
    return folder


@pytest.fixture(scope="module")
def printed(mixed_run):
    """The output of ``xaibench report``, which also writes the page."""
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        patch.setattr(numbers, "RESAMPLES", 20)
        result = CliRunner().invoke(app, ["report", str(mixed_run)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def page(mixed_run, printed):
    return (mixed_run / "report.html").read_text(encoding="utf-8")


def test_every_leaderboard_is_over_the_metrics_of_one_truth(mixed_run):
    run = read_run(mixed_run)
    assert run.truths == {truth: tuple(name for name in OF if OF[name] == truth) for truth in ("human", "intervention")}
    summary = summarize(run)
    found = leaderboards_by_truth(run, summary)
    assert list(found) == ["human", "intervention"]
    for truth, board in found.items():
        mine = [name for name in OF if OF[name] == truth]
        assert {str(name).partition(":")[2] for name in board if ":" in str(name)} == set(mine)
        means = summary[summary["metric"] == mine[0]].groupby("explainer", observed=True)["mean"].mean()
        assert board["explainer"].tolist() == means.sort_values(ascending=False).index.tolist()


def test_a_leaderboard_over_several_truths_is_refused(mixed_run):
    run = read_run(mixed_run)
    refused(ValueError, "truth=None: expected one of 'human', 'intervention'", lambda: leaderboard(run, summarize(run)))


def test_resampled_means_are_each_of_their_own_truth(mixed_run, monkeypatch):
    monkeypatch.setattr(numbers, "RESAMPLES", 20)
    run = read_run(mixed_run)
    found = boards(run, infer(run, summarize(run))[0])
    for truth, board in found.items():
        assert board.standings.metrics == run.truths[truth]
        assert board.means.shape[2] == len(run.truths[truth])
        middle, means = np.nanmean(board.means, axis=0), board.standings.numbers["mean"]
        spread = np.nanmax(np.abs(means), axis=(0, 2), keepdims=True)
        assert np.nanmax(np.abs(middle - means) / spread) < 0.2


def test_the_page_has_a_table_for_each_truth_below_its_question(page):
    tables = re.findall(r'<table class="board.*?</table>', page, re.S)
    assert len(tables) == 2
    for truth, table in zip(("human", "intervention"), tables, strict=True):
        assert f"<h3>{question_of(truth)}</h3>" in page
        assert TRUTHS[truth].silent in page
        assert f'id="board-{truth}" data-file="leaderboard-{truth}"' in table
        heads = re.findall(r'class="group".*?>([^<]+)<span', table)
        assert heads == [VISUAL_METRICS[name][0] for name in OF if OF[name] == truth]
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', page, re.S)[1])
    own = {truth: [data["metrics"][k]["name"] for k in found["own"]] for truth, found in data["truths"].items()}
    assert own == {truth: [name for name in OF if OF[name] == truth] for truth in ("human", "intervention")}
    assert "nothing is averaged over two of them" in page


def test_tables_and_prints_are_each_of_one_truth(mixed_run, printed):
    for truth in ("human", "intervention"):
        table = pd.read_csv(mixed_run / "tables" / f"leaderboard-{truth}.csv")
        assert len(table) == 13
        assert f"\n{question_of(truth)}\n" in printed
    assert {truth: set(table.columns[2:]) for truth, table in ranked_methods(mixed_run).items()} == {
        truth: {VISUAL_METRICS[name][0] for name in OF if OF[name] == truth} for truth in ("human", "intervention")
    }
    last, run = best_methods(mixed_run).iloc[-1], read_run(mixed_run)
    for truth, board in leaderboards_by_truth(run, *infer(run, summarize(run))).items():
        for name in (name for name in OF if OF[name] == truth):
            placed = board.dropna(subset=[f"first:{name}"])
            ascending = not run.metrics[name].higher_is_better
            best = placed.sort_values(f"mean:{name}", ascending=ascending, kind="stable").to_dict("records")[:1]
            shown = [f"{run.explainers[row['explainer']].label} {row[f'mean:{name}']:.3f}" for row in best]
            assert last[run.metrics[name].label] == (shown[0] if shown else "-")


def test_a_metric_that_is_of_two_truths_is_two_metrics(tmp_path):
    scores = make_scores(12, [("lin", "white", "mlp"), ("mult", "white", "mlp")])
    scores["truth"] = np.where(scores["subset"] == "lin", "data", "use")
    skill = scores[scores["metric"] == "emd_perf"].assign(metric="emd_skill")
    pd.concat([scores, skill], ignore_index=True).to_parquet(tmp_path / "scores.parquet")
    words = {"emd_perf": {"label": "EMD"}, "emd_skill": {"label": "Skill", "skill_of": "emd_perf"}}
    (tmp_path / "descriptions.json").write_text(json.dumps({"metrics": words}))
    run = read_run(tmp_path)
    names = ("emd_perf", "emd_skill", "topk_precision")
    assert run.truths == {truth: tuple(f"{name} ({truth})" for name in names) for truth in ("data", "use")}
    assert run.metrics["emd_skill (use)"].skill_of == "emd_perf (use)"
    assert run.metrics["emd_perf (data)"].label == "EMD (data)"
    assert set(run.scores["metric"].cat.categories) == set(run.metrics)
    counted = run.scores.groupby(["subset", "metric"], observed=True).size().index
    assert {(subset, metric.split("(")[1]) for subset, metric in counted} == {("lin", "data)"), ("mult", "use)")}
    assert set(leaderboard(run, summarize(run), "use")["of"]) == {1}


def test_the_columns_of_a_cell_stand_below_their_truth(mixed_run):
    run = read_run(mixed_run)
    for table in grid_tables(run, infer(run, summarize(run))[0]):
        (line,) = table.head_lines()
        assert [(group and group.label, span) for group, span in line] == [
            (None, 1),
            ("Human", 6),
            ("Intervention", 5),
        ]
        assert [column.label for column in table.columns[1:]] == [label for label, *_ in VISUAL_METRICS.values()]
