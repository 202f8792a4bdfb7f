"""The page of the transformer in the cells of XAI-TRIS: made from a run folder, other suites' sections left alone."""

import importlib
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from xaibench.report.read.results import read_run

GENERATE = Path(__file__).parents[2] / "docs" / "generate"


@pytest.fixture
def generator(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(GENERATE)
    monkeypatch.setattr(importlib.import_module("csv_tables"), "FOLDER", tmp_path / "tables")
    yield importlib.import_module("vit")
    for name in ("vit", "findings", "papers", "csv_tables"):
        sys.modules.pop(name, None)


def table(tmp_path, metric):
    """Return the rows of the table of a metric by method."""
    return pd.read_csv(tmp_path / "tables" / f"vit-xai-tris-8x8-{metric}.csv", dtype=str).set_index("method")


def row(text, start):
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_its_numbers_are_those_of_the_run(generator, four_columns, few_cells_run, tmp_path):
    run = read_run(four_columns)
    text = generator.page("", [run])
    reached = run.trainings.query("model == 'vit' and subset == 'lin'")["test_accuracy"]
    others = run.accuracy.query("model != 'vit' and subset == 'lin' and variant == 'corr'")["mean"]
    assert row(text, "LIN CORR") == [
        "LIN CORR",
        f"{reached.mean():.1f} ± {reached.std():.1f}",
        f"{reached.min():.1f} to {reached.max():.1f}",
        f"{(reached >= 80).sum()} of {len(reached)}",
        f"{others.max():.1f}",
    ]
    scores = run.scores.query("correct and metric == 'emd_perf' and explainer == 'saliency' and subset == 'lin'")
    scores = scores[scores["variant"] == "corr"]
    means = scores.groupby("model", observed=True)["value"].mean()
    assert "(tables/vit-xai-tris-8x8-emd_perf.csv)" in text
    emd = table(tmp_path, "emd_perf")
    assert emd.loc["Saliency", "LIN CORR"] == f"{means['vit']:.2f} ({means.drop('vit').max():.2f})"
    assert not any("WHITE" in name for name in emd), "a column for each cell that has it"
    with pytest.raises(SystemExit, match=r"No transformer in a run of xai-tris-8x8; run xai-tris-8x8 or"):
        generator.page("", [read_run(few_cells_run)])


def test_sections_of_other_suites_stay(generator, four_columns):
    before = f"{generator.BEGIN.format('xai-tris-64x64')}kept{generator.END.format('xai-tris-64x64')}"
    text = generator.page(before, [read_run(four_columns)])
    assert before in text
    assert text.index(generator.BEGIN.format("xai-tris-8x8")) < text.index(before)


def test_it_says_how_many_samples_were_asked_for_and_scored(generator, four_columns):
    where = four_columns / "environment.json"
    where.write_text(json.dumps(json.loads(where.read_text()) | {"choices": {"samples": 12}}))
    scores = pd.read_parquet(four_columns / "scores.parquet")
    few = scores["correct"] & (scores["subset"] == "lin") & (scores["sample"] > scores["sample"].min())
    text = generator.page("", [read_run(four_columns)])
    assert "    xaibench run xai-tris-8x8 --model llr,mlp,cnn,vit --samples 12\n" in text
    assert f"Scored: {generator.scored(read_run(four_columns))} samples per data set" in text
    scores[~few].to_parquet(four_columns / "scores.parquet")
    assert re.fullmatch(r"1 to \d+", generator.scored(read_run(four_columns)))
    scores[scores["sample"] == scores["sample"].min()].to_parquet(four_columns / "scores.parquet")
    assert generator.scored(read_run(four_columns)) == "1"


def test_what_was_tried_is_said_of_cells_that_are_not_learned(generator, four_columns, monkeypatch):
    monkeypatch.setattr(generator, "TRIED", {"xai-tris-8x8": {("lin", "corr"): "Tried in vain."}})
    rows = pd.read_csv(four_columns / "accuracy.csv")
    mine = (rows["model"] == "vit") & (rows["subset"] == "lin") & (rows["variant"] == "corr")
    assert mine.sum() == 1
    for mean, said in ((79.9, True), (80.0, False)):
        rows.loc[mine, "mean"] = mean
        rows.to_csv(four_columns / "accuracy.csv", index=False)
        assert ("\nTried in vain.\n" in generator.page("", [read_run(four_columns)])) == said


def test_a_network_that_has_not_learned_is_not_scored(generator, four_columns, tmp_path):
    rows = pd.read_csv(four_columns / "trainings.csv")
    generator.section(read_run(four_columns))
    assert "LIN CORR" in table(tmp_path, "emd_perf")
    rows.loc[(rows["model"] == "vit") & (rows["subset"] == "lin"), "test_accuracy"] = 79.9
    rows.to_csv(four_columns / "trainings.csv", index=False)
    text = generator.section(read_run(four_columns))
    assert row(text, "LIN CORR")[3].startswith("0 of ")
    assert "LIN CORR" not in table(tmp_path, "emd_perf")
