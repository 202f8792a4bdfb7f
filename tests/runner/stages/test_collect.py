"""Merging of scores: only changed shards are read again; a damaged shard is set aside and computed again."""

import html
import logging
import re
import shutil
from dataclasses import replace

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.report.page.content import left_out_text, unlearned_text
from xaibench.report.page.write import make_report
from xaibench.runfolder.schema import SCORES, TABLES
from xaibench.runner import load_suite, run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages.collect import collect
from xaibench.runner.store import Store
from xaibench.scores.results import read_run


@pytest.fixture
def copy(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "copy")


def test_all_damaged_results_are_set_aside_and_computed_again(tiny_suite, tiny_run, copy, caplog):
    files = [sorted((copy / "store" / stage).iterdir()) for stage in ("score", "explain")]
    damaged = [*files[0][::4], *files[1][::3]]
    for file in damaged:
        data = bytearray(file.read_bytes())
        data[60] ^= 255
        file.write_bytes(data)
    with caplog.at_level(logging.WARNING, "xaibench"):
        result = run(tiny_suite, copy, engine="serial")
    assert result.failures == {}
    for file in damaged:
        assert f"{file.name} is damaged" in caplog.text
        assert len(list(file.parent.glob(f"{file.name}.corrupt-*"))) == 1
        assert file.exists()
    assert (copy / "scores.parquet").read_bytes() == (tiny_run / "scores.parquet").read_bytes()
    assert (copy / "samples.safetensors").read_bytes() == (tiny_run / "samples.safetensors").read_bytes()


def test_a_failed_cell_has_no_rows(tiny_suite, copy):
    plan, store = make_plan(load_suite(tiny_suite)[0]), Store(copy / "store")
    for job in plan.jobs:
        if job.stage == "score" and job.explains[0].data == plan.cells[2].data:
            store.remove("score", job.key)
    collect(plan, store, copy, {})
    assert set(pd.read_parquet(copy / "scores.parquet")["subset"]) == {"lin"}


def test_the_runner_writes_the_schema(tiny_run):
    assert pq.read_schema(tiny_run / SCORES.name).equals(SCORES.arrow_schema())
    for table in TABLES:
        file = tiny_run / table.name
        if file.exists() and file.suffix == ".csv":
            assert file.read_text().partition("\n")[0].split(",") == list(table.columns)
    assert {"scores", "trainings", "accuracy", "failures", "jobs"} <= {path.stem for path in tiny_run.iterdir()}


def test_a_training_that_has_not_learned_counts_in_no_score_where_another_has(tiny_suite, tmp_path):
    text = tiny_suite.read_text().replace("samples = 6", 'samples = 20\ntrainings = "all"')
    suite = tmp_path / "all.toml"
    suite.write_text(text.replace('models = ["llr", "mlp"]', 'models = ["llr"]'))
    folder = run(suite, tmp_path / "run", engine="serial").folder

    def counted():
        scores = pd.read_parquet(folder / "scores.parquet").query("model == 'llr'")
        return set(scores.loc[scores["scored"], "seed"]), set(scores["seed"])

    assert counted() == ({0, 1, 2}, {0, 1, 2}), "none has learned: the cell is what it is"
    reached = pd.read_csv(folder / "trainings.csv").query("model == 'llr'").set_index("seed")["test_accuracy"]
    explained = pd.read_csv(folder / "trainings.csv").query("explained").sort_values("test_accuracy", kind="stable")
    below = explained[explained["test_accuracy"] < 80]
    warning = make_report(folder).warning
    assert warning.startswith(f"{len(below)} of {len(explained)} networks have not learned the task")
    assert [f"{x:.1f} %" for x in below["test_accuracy"].head(4)] == re.findall(r"\(([\d.]+ %)\)", warning)
    assert warning in html.unescape((folder / "report.html").read_text())
    printed = CliRunner().invoke(app, ["report", str(folder)]).output
    assert 0 <= printed.index(warning) < printed.index("place  method")
    shown = read_run(folder)
    of_use = {name: replace(part, truth="use") for name, part in shown.metrics.items()}
    assert not unlearned_text(replace(shown, metrics=of_use)), "what a network uses can be asked of any"
    older = shutil.copytree(folder, tmp_path / "older", ignore=shutil.ignore_patterns("store"))
    pd.read_csv(folder / "trainings.csv").drop(columns=["explained", "left_out"]).to_csv(
        older / "trainings.csv", index=False
    )
    assert unlearned_text(read_run(older)) == warning
    assert reached.nunique() > 1
    loaded = load_suite(suite)[0]
    stricter = replace(loaded, explaining=replace(loaded.explaining, min_accuracy=float(reached.max())))
    collect(make_plan(stricter), Store(folder / "store"), folder, {})
    assert counted() == (set(reached.index[reached == reached.max()]), {0, 1, 2})
    accuracy = pd.read_csv(folder / "accuracy.csv").query("model == 'llr'")
    assert accuracy["trainings"].item() == 3
    assert accuracy["learned"].item() == (reached == reached.max()).sum()
    trainings = pd.read_csv(folder / "trainings.csv").query("model == 'llr'").set_index("seed")
    assert (trainings["left_out"] == (reached < reached.max())).all()
    # What the networks answered does not depend on the rule.
    scores = pd.read_parquet(folder / "scores.parquet").query("model == 'llr' and metric == 'emd_perf'")
    answers = scores.groupby("seed")["correct"].sum()
    assert (answers[trainings["left_out"]] > 0).all()
    named = left_out_text(read_run(folder))
    for seed, row in trainings[trainings["left_out"]].iterrows():
        assert f"data set {row['data_seed']}, training {seed} ({row['test_accuracy']:.1f} %)" in named
    # Folders of older versions name what counts `correct`.
    scores, trainings = pd.read_parquet(folder / "scores.parquet"), pd.read_csv(folder / "trainings.csv")
    older = scores.drop(columns="correct").rename(columns={"scored": "correct"})
    older[[name for name in scores if name != "scored"]].to_parquet(folder / "scores.parquet")
    trainings.drop(columns="left_out").to_csv(folder / "trainings.csv", index=False)
    run_before = read_run(folder)
    assert run_before.scores["correct"].isna().all()
    assert run_before.scores["scored"].tolist() == scores["scored"].tolist()
    assert left_out_text(run_before) == named


def test_a_data_set_of_which_no_training_has_learned_counts_in_no_score_where_another_has(tmp_path):
    (tmp_path / "sets.toml").write_text("""
name = "sets"
title = "Sets"
data = { seeds = [0, 1], parameters = { n_samples = 200 } }
training = { seeds = [0, 1], epochs = 3, batch_size = 64 }
explaining = { samples = 6, trainings = "all" }
cells = [{ datasets = ["xai-tris/lin-white-8x8"], models = ["llr"] }]
explainers = { saliency = {}, uniform = {} }
metrics = { topk_precision = {} }
""")
    folder = run(tmp_path / "sets.toml", tmp_path / "run", engine="serial").folder
    reached = pd.read_csv(folder / "trainings.csv").groupby("data_seed")["test_accuracy"].max()
    better = reached.idxmax()
    assert reached.nunique() == 2
    loaded = load_suite(tmp_path / "sets.toml")[0]
    stricter = replace(loaded, explaining=replace(loaded.explaining, min_accuracy=float(reached.max())))
    collect(make_plan(stricter), Store(folder / "store"), folder, {})
    scores = pd.read_parquet(folder / "scores.parquet")
    assert set(scores.loc[scores["scored"], "data_seed"]) == {better}
    assert set(scores["data_seed"]) == {0, 1}  # which is shown
    assert pd.read_csv(folder / "trainings.csv")["explained"].all()


def test_another_network_changes_no_score_unless_all_must_be_right(tiny_suite, tmp_path):
    both, alone = tiny_suite.read_text().replace("samples = 6", "samples = 20"), tmp_path / "alone.toml"
    (tmp_path / "both.toml").write_text(both)
    alone.write_text(both.replace('models = ["llr", "mlp"]', 'models = ["llr"]'))
    folder = run(tmp_path / "both.toml", tmp_path / "run", engine="serial").folder

    def counting(suite, out, **how):
        loaded = load_suite(suite)[0]
        out.mkdir()
        collect(
            make_plan(replace(loaded, explaining=replace(loaded.explaining, **how))), Store(folder / "store"), out, {}
        )
        scores = pd.read_parquet(out / "scores.parquet").query("subset == 'lin' and scored")
        return {model: set(mine["sample"]) for model, mine in scores.groupby("model", observed=True)}

    own = counting(tmp_path / "both.toml", tmp_path / "own")
    assert own["llr"] == counting(alone, tmp_path / "fewer")["llr"]
    assert own["llr"] != own["mlp"]
    by_all = counting(tmp_path / "both.toml", tmp_path / "all", scored="correct-by-all")
    assert by_all["llr"] == by_all["mlp"] == own["llr"] & own["mlp"]
