"""Whole runs of a tiny suite: what they leave behind, and that nothing but the suite decides it."""

import csv
import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from small_suites import write_suite

import xaibench as xb
from xaibench.core.messages import ParameterWarning
from xaibench.metrics import METRICS
from xaibench.models import TrainingDivergedError
from xaibench.registry.parameters import Frozen
from xaibench.registry.table import IMPORTING
from xaibench.runfolder.sample_file import read_samples
from xaibench.runfolder.schema import CLASSIFICATION
from xaibench.runner import ArgumentError, StoreError, load_suite, run
from xaibench.runner.plan import jobs as planned
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages import execute as execution
from xaibench.runner.stages import train as network_training
from xaibench.runner.stages.execute import execute, read_correct
from xaibench.runner.stages.samples import hash_images, read_test_split
from xaibench.runner.stages.train import network_seed
from xaibench.runner.store import Store

TABLES = ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv", "descriptions.json", "samples.safetensors")
TABLES = (*TABLES, "images.parquet")

COLUMNS = ["dataset", "subset", "variant", "model", "seed", "explainer", "sample", "correct", "metric", "value"]
COLUMNS += ["higher_is_better", "reason", "data_seed", "truth", "scored"]


def same_tables(a, b):
    return [name for name in TABLES if (a / name).read_bytes() != (b / name).read_bytes()] == []


@pytest.fixture
def copy(tiny_run, tmp_path):
    """The undisturbed run, to be changed."""
    return shutil.copytree(tiny_run, tmp_path / "copy")


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_scores_are_a_row_for_each_sample_and_metric(tiny_run):
    scores = pd.read_parquet(tiny_run / "scores.parquet")
    assert list(scores.columns) == COLUMNS
    counted = scores.groupby(["dataset", "model", "explainer", "metric"]).size()
    # LLR and MLP: five explainers; CNN: Guided GradCAM too. Two metrics, six samples.
    assert len(counted) == (5 + 5 + 6) * 2
    assert (counted == 6).all()
    assert scores["higher_is_better"].all()
    assert set(scores["truth"]) == {"data"}
    as_chance = scores["reason"].str.endswith(": scored as chance")
    assert ((scores["reason"] == "") == scores["value"].notna() & ~as_chance).all()
    assert as_chance.any()
    assert scores["value"].notna().all(), "no mask is empty"
    assert set(scores["subset"]) == {"lin", "rigid"}


def test_adding_a_training_seed_computes_only_what_is_its_own(tmp_path):
    """Three networks that train in one go are the same as when they come one after another."""

    def suite(seeds):
        return write_suite(
            tmp_path,
            data={"seeds": [0], "parameters": {"n_samples": 200}},
            training={"seeds": seeds, "epochs": 2, "batch_size": 64, "stack": 3},
            explaining={"samples": 3, "trainings": "all"},
            explainers={"saliency": {}},
            cells=[{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr", "mlp", "cnn"]}],
        )

    kept = {}
    for seeds in ([0], [0, 1], [0, 1, 2]):
        run(suite(seeds), tmp_path / "grown", engine="serial")
        now = {path: path.stat().st_mtime_ns for path in (tmp_path / "grown" / "store").rglob("*.*")}
        assert {path: now[path] for path in kept} == kept
        kept = now
    counted = pd.read_csv(tmp_path / "grown" / "jobs.csv").groupby("stage").size()
    assert dict(counted) == {"data": 1, "train": 9, "explain": 9, "score": 9}
    run(suite([0, 1, 2]), tmp_path / "once", engine="serial")
    grown, once = (Store(tmp_path / name / "store") for name in ("grown", "once"))
    for stage in ("train", "explain"):
        assert grown.keys(stage) == once.keys(stage)
        for key in grown.keys(stage):
            (one, said), (other, also) = grown.load_tensors(stage, key), once.load_tensors(stage, key)
            assert said == also
            # A GPU multiplies larger stacks otherwise.
            same = torch.allclose if torch.cuda.is_available() else torch.equal
            assert all(same(one.pop(name), values) for name, values in other.items())
            assert one == {}
    if not torch.cuda.is_available():
        assert same_tables(tmp_path / "once", tmp_path / "grown")


def test_a_training_that_diverges_does_not_take_its_neighbors_along(tmp_path, tiny_suite, monkeypatch):
    plan = make_plan(load_suite(tiny_suite)[0])
    job = next(job for job in plan.jobs if job.stage == "train" and len(job.seeds) == 2)
    store = Store(tmp_path)
    execute(job.data, store)
    real = network_training.make_network

    def made(job, seed, store):
        network = real(job, seed, store)
        if seed == 0:
            next(network.parameters()).data.fill_(float("nan"))
        return network

    monkeypatch.setattr(network_training, "make_network", made)
    refused(TrainingDivergedError, "model 0 of 1", execute, job, store)
    assert [store.has("train", job.result(seed)) for seed in job.seeds] == [False, True]


def test_images_are_known_again_by_their_hash(tiny_run):
    images = pd.read_parquet(tiny_run / "images.parquet")
    assert list(images.groupby("dataset").size()) == [6, 6]
    data = xb.load("xai-tris/lin-white-8x8", seed=0, n_samples=200)
    first = images[images["dataset"] == "xai-tris/lin-white-8x8"]
    assert list(first["image"]) == hash_images(data.test.images[:6]).tolist()
    assert list(first["sample"]) == list(range(6))


def test_scores_are_those_of_the_library(tiny_run):
    """The whole way again, by hand, for one cell."""
    scores = pd.read_parquet(tiny_run / "scores.parquet")
    data = xb.load("xai-tris/lin-white-8x8", seed=0, n_samples=200)
    models, results = [], []
    for stacked in ([0, 1], [2]):  # the suite trains in stacks of two
        seeds = [network_seed(DataJob("xai-tris/lin-white-8x8", 0, Frozen(), ""), seed) for seed in stacked]
        stack = [xb.models.build("mlp", in_shape=(1, 8, 8), num_classes=2, seed=seed) for seed in seeds]
        splits = [data.train] * len(stack), [data.val] * len(stack)
        results += xb.models.fit_many(stack, *splits, epochs=3, lr=0.004, batch_size=64, seeds=seeds, progress=False)
        models += stack
    best = min(range(3), key=lambda i: results[i].best_val_loss)
    images, masks, targets = data.test[:6]
    maps = xb.explain("lime", models[best], images, targets, n_samples=10, seed=0)
    mine = scores.query("dataset == 'xai-tris/lin-white-8x8' and model == 'mlp' and explainer == 'lime'")
    assert set(mine["seed"]) == {best}
    for metric in ("emd_perf", "topk_precision"):
        expected = getattr(xb, metric)(maps, masks, reduction="none").numpy()
        np.testing.assert_allclose(mine.query("metric == @metric")["value"], expected, rtol=1e-6)
    # The samples to look at say what that network predicts.
    cell = next(cell for cell in read_samples(tiny_run) if cell.cell == ("lin", "white", "mlp"))
    shown = list(cell.samples)
    with torch.no_grad():
        shares = models[best](data.test.images[shown]).softmax(1)
    assert cell.classes == tuple(data.info.classes[target] for target in data.test.targets[shown])
    assert cell.predicted == tuple(data.info.classes[answer] for answer in shares.argmax(1))
    assert cell.probabilities == pytest.approx(shares.amax(1).tolist(), abs=1e-5)


def test_correct_means_the_explained_network(tiny_suite, tiny_run):
    scores = pd.read_parquet(tiny_run / "scores.parquet")
    plan, store = make_plan(load_suite(tiny_suite)[0]), Store(tiny_run / "store")
    masks = {}
    for cell in plan.cells:
        (network,) = cell.networks
        masks[cell.data.name, cell.model] = read_correct(store, network).numpy()
    for (dataset, model, sample), group in scores.groupby(["dataset", "model", "sample"], observed=True):
        assert set(group["correct"]) == {masks[dataset, model][sample]}  # of methods and controls alike
    for row in rows(tiny_run / "accuracy.csv"):
        mine = scores[(scores["subset"] == row["subset"]) & (scores["model"] == row["model"])]
        mine = mine.drop_duplicates(["seed", "sample"])
        assert (int(row["explained"]), int(row["scored"])) == (len(mine), mine["scored"].sum())


def test_accuracies_stand_beside_the_papers(tiny_run):
    found = {(row["subset"], row["model"]): row for row in rows(tiny_run / "accuracy.csv")}
    assert found["lin", "llr"]["paper"] == "88.9"
    assert found["rigid", "cnn"]["paper"] == "88.8"
    assert {row["test_samples"] for row in found.values()} == {"20"}
    assert all(row["trainings"] == "3" for row in found.values())
    trainings = rows(tiny_run / "trainings.csv")
    assert len(trainings) == 9
    llr = [float(row["test_accuracy"]) for row in trainings if row["model"] == "llr"]
    assert float(found["lin", "llr"]["mean"]) == pytest.approx(np.mean(llr))
    assert float(found["lin", "llr"]["best"]) == pytest.approx(max(llr))
    assert int(found["lin", "llr"]["learned"]) == sum(accuracy >= 80 for accuracy in llr)


def test_classifiers_have_precision_recall_and_f1_of_every_class(tiny_suite, tiny_run):
    found = {(row["subset"], row["model"]): row for row in rows(tiny_run / "accuracy.csv")}
    store = Store(tiny_run / "store")
    for cell in make_plan(load_suite(tiny_suite)[0]).cells:
        targets, scores = read_test_split(store, cell.data).targets, []
        for key in (key for job in cell.trainings for key in job.results):
            answers = store.load_tensors("train", key)[0]["answer.class"]
            for label in {*targets.tolist(), *answers.tolist()}:
                hits = int(((answers == label) & (targets == label)).sum())
                answered, there = int((answers == label).sum()), int((targets == label).sum())
                precision, recall = hits / max(answered, 1), hits / max(there, 1)
                scores.append((precision, recall, 2 * hits / (answered + there)))
        row = found[cell.subset_and_variant[0], cell.model]
        assert [float(row[name]) for name in CLASSIFICATION] == pytest.approx(100 * np.mean(scores, axis=0))
        assert float(row["precision"]) != float(row["recall"])


def test_examples_and_parts(tiny_run):
    pictures = {cell.cell: cell for cell in read_samples(tiny_run)}
    assert pictures["rigid", "corr", "cnn"].images.shape[1:] == (8, 8, 3)
    assert set(pictures["rigid", "corr", "cnn"].masks.ravel().tolist()) == {0, 1}
    linear = pictures["lin", "white", "mlp"]
    shares = linear.means[linear.explainers.index("input")]
    assert shares.sum() == pytest.approx(1, abs=1e-5)
    assert (shares >= 0).all()
    assert "guided_gradcam" not in linear.explainers
    parts = json.loads((tiny_run / "descriptions.json").read_text())
    assert list(parts["explainers"]) == ["saliency", "lime", "guided_gradcam", "pattern_net", "uniform", "input"]
    assert parts["explainers"]["uniform"]["control"]
    assert {n: part["meaning"] for n, part in parts["metrics"].items()} == {
        n: METRICS.resolve(n).info.meaning for n in parts["metrics"]
    }
    assert parts["explainers"]["lime"]["parameters"]["n_samples"] == 10
    assert parts["explainers"]["lime"]["parameters"]["kernel_width"] == 1.0  # by default
    assert not any("own" in part for part in parts["explainers"].values())
    environment = json.loads((tiny_run / "environment.json").read_text())
    assert environment["versions"]["torch"] == torch.__version__.split("+")[0]
    assert environment["seeds"]["training"] == [0, 1, 2]


def test_processes_give_the_same_tables_to_the_bit(tiny_suite, tiny_run, tmp_path):
    result = run(tiny_suite, tmp_path / "run", engine="processes", workers=3)
    assert result.failures == {}
    assert same_tables(result.folder, tiny_run)


def test_what_a_suite_states_is_not_warned_of(tiny_suite, copy):
    jobs = make_plan(load_suite(tiny_suite)[0]).jobs
    lime = next(job for job in jobs if job.stage == "explain" and job.explainer.name == "lime")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParameterWarning)
        execute(lime, Store(copy / "store"))


def test_maps_made_in_parts_are_the_maps_made_at_once(tiny_suite, tiny_run, tmp_path):
    suite = tmp_path / "cut.toml"
    suite.write_text(tiny_suite.read_text().replace("samples = 6", "samples = 6\nsamples_per_job = 4"))
    result = run(suite, tmp_path / "run", engine="serial")
    assert result.failures == {}
    cut, whole = (pd.read_parquet(folder / "scores.parquet") for folder in (result.folder, tiny_run))
    pd.testing.assert_frame_equal(cut, whole, rtol=1e-9)
    assert set(cut["sample"]) == set(range(6))


def test_parts_beyond_the_test_samples_are_empty(tiny_suite, tmp_path):
    suite = tmp_path / "beyond.toml"
    text = tiny_suite.read_text().replace("samples = 6", "samples = 40\nsamples_per_job = 15")
    suite.write_text(text.replace('"llr", "mlp"', '"llr"'))  # of 200 samples 20 are for the test
    result = run(suite, tmp_path / "run", engine="serial", quick=False)
    assert result.failures == {}
    scores = pd.read_parquet(result.folder / "scores.parquet")
    per_method = scores.groupby(["subset", "model", "explainer", "metric"])["sample"].nunique()
    assert set(per_method) == {scores["sample"].max() + 1}


def test_tables_and_lists_reach_the_parts_as_they_were_written(tmp_path):
    suite = write_suite(
        tmp_path,
        data={"parameters": {"n_samples": 200, "split": [0.5, 0.25, 0.25]}},
        explainers={"lrp_epsilon": {"rules": {"0": "epsilon", "*": "z+"}}},
        metrics={"deletion": {"steps": 4, "baseline": [0.5], "return_curves": True}},
    )
    result = run(suite, tmp_path / "run", engine="serial")
    assert result.failures == {}
    (plan,) = make_plan(load_suite(suite)[0]).cells
    rules = plan.scores[0][1].explain.explainer.parameters["rules"]
    assert list(rules.items()) == [("0", "epsilon"), ("*", "z+")], "the first that fits counts"
    assert pd.read_parquet(result.folder / "scores.parquet")["value"].notna().all()


def test_a_second_run_computes_nothing(tiny_suite, copy):
    before = {path: path.stat().st_mtime_ns for path in (copy / "store").rglob("*.*")}
    run(tiny_suite, copy, engine="serial")
    assert {path: path.stat().st_mtime_ns for path in (copy / "store").rglob("*.*")} == before


@pytest.fixture
def measured(monkeypatch):
    """Record the explainer and the metric of each computed measurement."""
    computed, real = [], execution._measure

    def measure(each, *rest):
        computed.append((each.explain.explainer.name, each.metric.name))
        return real(each, *rest)

    monkeypatch.setattr(execution, "_measure", measure)
    return computed


@pytest.mark.parametrize(
    ("old", "new", "metrics"),
    [
        ("emd_perf = {}", 'emd_perf = { diameter = "released" }', {"emd_perf"}),
        ("emd_perf = {}", "emd_perf = {}\nhit = {}", {"hit"}),
        ("uniform = {}", "sobel = {}", {"emd_perf", "topk_precision"}),
        ("topk_precision = {}", "", set()),
    ],
)
@pytest.mark.parametrize("share", [160, 4])
def test_a_changed_suite_computes_only_the_scores_that_changed(
    tiny_suite, copy, tmp_path, measured, monkeypatch, old, new, metrics, share
):
    """Whether each score has a job, or many share one."""
    monkeypatch.setattr(planned, "_SHARE", share)
    (tmp_path / "changed.toml").write_text(tiny_suite.read_text().replace(old, new))
    run(tmp_path / "changed.toml", copy, engine="serial")
    assert {metric for _, metric in measured} == metrics
    if "sobel" in new:
        assert {explainer for explainer, _ in measured} == {"sobel"}
    without_scores = shutil.ignore_patterns("score", "partial")
    other = shutil.copytree(copy, tmp_path / "other", ignore=without_scores)
    run(tmp_path / "changed.toml", other, engine="serial")
    assert same_tables(copy, other)


@pytest.mark.parametrize("share", [160, 4])
def test_a_failing_metric_loses_no_score_of_the_others(tiny_suite, copy, tmp_path, measured, monkeypatch, share):
    monkeypatch.setattr(planned, "_SHARE", share)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "failing_metric.py").write_text(
        "broken = True\n\ndef score(maps, masks, reduction='none'):\n    assert not broken, 'no score today'\n"
        "    return maps.sum((1, 2))\n"
    )
    suite = tmp_path / "failing.toml"
    suite.write_text(f'{tiny_suite.read_text()}"failing_metric:score" = {{}}\n')
    result = run(suite, copy, engine="serial")
    assert all("failing_metric:score of " in error and "no score" in error for error in result.failures.values())
    scores = pd.read_parquet(result.folder / "scores.parquet")
    assert scores["metric"].value_counts().to_dict() == {"emd_perf": 96, "topk_precision": 96}
    monkeypatch.setattr("failing_metric.broken", False)
    measured.clear()
    assert run(suite, copy, engine="serial").failures == {}
    assert {metric for _, metric in measured} == {"failing_metric:score"}
    assert set(pd.read_parquet(result.folder / "scores.parquet")["metric"].value_counts()) == {96}


@pytest.mark.parametrize("stage", ["data", "train", "explain", "score"])
def test_a_damaged_result_is_made_again(tiny_suite, tiny_run, copy, stage):
    jobs = [job for job in make_plan(load_suite(tiny_suite)[0]).jobs if job.stage == stage]
    damaged = next(iter((copy / "store" / stage).glob(f"{jobs[0].results[0]}.*")))
    damaged.write_bytes(damaged.read_bytes()[:-50])
    # The scores are taken away, so that everything is read again.
    for path in (copy / "store" / "score").iterdir():
        if path != damaged:
            path.unlink()
    result = run(tiny_suite, copy, engine="serial")
    assert result.failures == {}
    assert same_tables(copy, tiny_run)


def test_a_failing_part_is_named_and_the_rest_goes_on(tiny_suite, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "failing_part.py").write_text(
        "def broken(model, images, targets):\n    raise RuntimeError('no map today')\n"
    )
    suite = tmp_path / "failing.toml"
    suite.write_text(tiny_suite.read_text().replace("lime = { n_samples = 10 }", '"failing_part:broken" = {}'))
    result = run(suite, tmp_path / "run", engine="serial")
    assert len(result.failures) == 3, "one for each network"
    listed = rows(result.folder / "failures.csv")
    assert [row["stage"] for row in listed] == ["explain"] * 3
    assert "no map today" in listed[0]["error"]
    scores = pd.read_parquet(result.folder / "scores.parquet")
    assert set(scores["explainer"]) == {"saliency", "guided_gradcam", "pattern_net", "uniform", "input"}
    # Mended, the same command runs only what failed.
    (tmp_path / "failing_part.py").write_text("def broken(model, images, targets):\n    return images[:, 0]\n")
    import linecache
    import sys

    from xaibench.registry.component import COMPONENTS

    sys.modules.pop("failing_part")
    linecache.clearcache()
    COMPONENTS.clear()
    assert run(suite, result.folder, engine="serial").failures == {}
    assert "failing_part:broken" in set(pd.read_parquet(result.folder / "scores.parquet")["explainer"])


def test_two_runs_do_not_share_a_folder(tiny_suite, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(
            ArgumentError, ("Another run ", " is using"), lambda: run(tiny_suite, tmp_path / "run", engine="serial")
        )


def test_a_folder_that_cannot_be_made(tiny_suite, tmp_path):
    (tmp_path / "file").write_text("")
    refused(
        ArgumentError,
        ("Cannot write to the run folder ", "--out"),
        lambda: run(tiny_suite, tmp_path / "file" / "run", engine="serial"),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "threads"}, "Unknown engine 'threads'. Known: serial, processes, ray"),
        ({"workers": 0, "engine": "processes"}, "workers is 0; expected 1 or more"),
        ({"device": "abacus"}, "There is no device 'abacus' here"),
        ({"device": None}, "device is None; expected a text such as"),
    ],
)
def test_bad_arguments(tiny_suite, tmp_path, arguments, message):
    refused(ArgumentError, message, lambda: run(tiny_suite, tmp_path / "run", **arguments))


def test_without_ray_the_command_is_named(tiny_suite, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xaibench.runner.ray_cluster", None)
    refused(
        ArgumentError,
        ("engine='ray' needs Ray", 'pip install "xaibench[ray]".'),
        lambda: run(tiny_suite, tmp_path / "run", engine="ray"),
    )


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_is_finished(tiny_suite, tiny_run, tmp_path, monkeypatch):
    from xaibench.runner import store as module

    written = []
    real = module.write_atomic

    def write_until_full(path, data, durable=True):
        if len(written) == 8:
            raise StoreError(f"no space left to write {path}")
        written.append(path)
        real(path, data, durable=durable)

    monkeypatch.setattr(module, "write_atomic", write_until_full)
    refused(StoreError, "no space left", lambda: run(tiny_suite, tmp_path / "run", engine="serial"))
    monkeypatch.setattr(module, "write_atomic", real)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "store").rglob("*.*")}
    assert len(kept) >= 7
    run(tiny_suite, tmp_path / "run", engine="serial")
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    assert same_tables(tmp_path / "run", tiny_run)


@pytest.mark.parametrize("name", ["jobs.csv", ".owner"])
def test_a_full_disk_is_said_with_the_file_that_could_not_be_written(tiny_suite, tmp_path, name):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to("/dev/full")
    with pytest.raises(StoreError, match=f"No space is left to write .*{name}; free some"):
        run(tiny_suite, tmp_path / "run", engine="serial")


def test_a_script_with_a_part_that_runs_a_suite_when_it_is_imported_is_told_so(tmp_path, monkeypatch):
    """Workers import the script to find the part; each would run the suite once more."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = (
        "from xaibench.runner import run\n\ndef squared(model, images, targets):\n    return images.square().sum(1)\n\n"
    )
    (tmp_path / "script_of_the_test.py").write_text(
        text + "run('xai-tris-8x8', explainers=['script_of_the_test:squared'])"
    )
    with pytest.raises(
        ArgumentError, match=r"'script_of_the_test:squared' runs a suite while it is imported.*__main__"
    ):
        run("xai-tris-8x8", explainers=["script_of_the_test:squared"], out=tmp_path / "run")
    assert IMPORTING.get() == ""
