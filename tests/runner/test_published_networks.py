"""Published networks are used instead of training, and only where nothing about the training differs."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from refusals import refused
from typer.testing import CliRunner

import xaibench as xb
from xaibench.cli import app
from xaibench.registry.table import UnknownNameError
from xaibench.report import write_report
from xaibench.runner import published_networks as module
from xaibench.runner import run
from xaibench.runner.network_publishing import write_networks
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.published_networks import (
    LARGE,
    RANKS,
    STEP,
    NetworkFileError,
    decode,
    encode,
    is_published,
    read_network,
)
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import SUITES, load_suite
from xaibench.scores.results import read_run
from xaibench.scores.run_comparison import compare_trainings

SUITE = """
name = "small"
title = "Small"
data = { seeds = [0], parameters = { n_samples = 200, alpha = 0.9 } }
training = { seeds = [0, 1], epochs = 20, lr = 0.02, stack = 2 }
explaining = { samples = 8, trainings = "all" }
cells = [{ datasets = ["xai-tris/lin-white-8x8"], models = ["llr", "mlp"] }]
explainers = { saliency = {}, input_x_gradient = {}, integrated_gradients = {}, uniform = {} }
metrics = { topk_precision = {} }
"""


def fitted_cells(suite):
    """Return the cells of a suite whose networks are trained from scratch, on data that are generated."""
    open_names = [cell for cell in suite.cells if any("$" in word for word in (*cell.datasets, *cell.models))]
    return tuple(cell for cell in suite.cells if cell not in open_names and suite.training_of(cell).method == "fit")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    file = tmp_path_factory.mktemp("small") / "small.toml"
    file.write_text(SUITE)
    return file


@pytest.fixture(scope="module")
def trained(suite):
    return run(suite, suite.parent / "trained", engine="serial", train=True).folder


@pytest.fixture
def published(suite, trained, tmp_path, monkeypatch):
    """The networks of the run as the only published ones."""
    index = tmp_path / "networks" / "small.json"
    index.parent.mkdir()
    records = write_networks(make_plan(load_suite(suite)[0], train=True), Store(trained / "store"), index)
    assert len(records) == 4
    monkeypatch.setattr(module, "benchmark_files", lambda pattern: [index])
    for cached in (module._index, module._read_weights):
        cached.cache_clear()
    yield index
    monkeypatch.undo()
    for cached in (module._index, module._read_weights):
        cached.cache_clear()


def trainings(folder):
    return pd.read_csv(folder / "trainings.csv")


def scores(folder):
    keys = ["model", "seed", "sample", "explainer", "metric"]
    return pd.read_parquet(folder / "scores.parquet").set_index(keys)["value"].sort_index()


def test_a_run_uses_published_networks(suite, trained, published, tmp_path, monkeypatch):
    monkeypatch.setattr("xaibench.models.fit_many", lambda *_, **__: pytest.fail("a network was trained"))
    folder = run(suite, tmp_path / "run", engine="serial").folder
    assert trainings(folder)["published"].all()
    assert not trainings(trained)["published"].any()
    same = ["val_loss", "best_epoch", "network_seed"]
    pd.testing.assert_frame_equal(trainings(folder)[same], trainings(trained)[same])
    # The weights are rounded.
    rounded = ["test_accuracy", "val_accuracy"]
    pd.testing.assert_frame_equal(trainings(folder)[rounded], trainings(trained)[rounded], atol=0.05)
    pd.testing.assert_series_equal(scores(folder), scores(trained), atol=0.2)
    assert "4 published classifiers were used" in write_report(folder).read_text(encoding="utf-8")


def test_train_trains_them(suite, published, tmp_path):
    result = run(suite, tmp_path / "run", engine="serial", train=True, models=["llr"])
    assert not trainings(result.folder)["published"].any()
    environment = json.loads((result.folder / "environment.json").read_text())
    assert environment["choices"] == {"models": ["llr"], "train": True}
    assert "2 classifiers were trained" in write_report(result.folder).read_text(encoding="utf-8")


def test_any_other_training_is_run(suite, published):
    def used(text):
        file = published.parent / "other.toml"
        file.write_text(text)
        return {job.published for cell in make_plan(load_suite(file)[0]).cells for job in cell.trainings}

    assert used(SUITE) == {True}
    assert used(SUITE.replace("samples = 8", "samples = 9")) == {True}
    for other in ("epochs = 21", "epochs = 20, batch_size = 64"):
        assert used(SUITE.replace("epochs = 20", other)) == {False}
    assert used(SUITE.replace("alpha = 0.9", "alpha = 0.8")) == {False}
    assert used(SUITE.replace("data = { seeds = [0]", "data = { seeds = [0, 1]")) == {True, False}
    assert used(SUITE.replace("seeds = [0, 1], epochs", "seeds = [0, 1, 2], epochs")) == {True, False}


def test_networks_on_photographs_are_found_for_the_same_photographs(suite, published, tmp_path, monkeypatch):
    for folder, shade in (("photographs", 0), ("copied", 0), ("others", 0), ("others", 90)):
        (tmp_path / folder).mkdir(exist_ok=True)
        Image.new("L", (64, 64), shade).save(tmp_path / folder / f"{shade}.png")
    file = published.parent / "photographs.toml"
    text = SUITE.replace("lin-white-8x8", "lin-imagenet-64x64")
    file.write_text(text.replace("n_samples", 'images_dir = "$PICTURES", n_samples'))
    records = json.loads(published.read_text())

    def job(folder):
        monkeypatch.setenv("PICTURES", str(tmp_path / folder))
        return make_plan(load_suite(file)[0]).cells[0].trainings[0]

    networks = dict(zip(job("photographs").published_keys, records["networks"].values(), strict=False))
    published.write_text(json.dumps(records | {"networks": networks}))
    module._index.cache_clear()
    assert [job(folder).published for folder in ("photographs", "copied", "others")] == [True, True, False]
    Image.new("L", (64, 64), 90).save(tmp_path / "copied" / "90.png")
    assert not job("copied").published


def test_published_networks_are_found_without_kernels(suite, published, monkeypatch):
    compiled = make_plan(load_suite(suite)[0])
    keys = {job.stage: job.key for job in compiled.jobs}
    monkeypatch.setenv("XAIBENCH_KERNELS", "0")
    plain = make_plan(load_suite(suite)[0])
    assert all(job.published for cell in plain.cells for job in cell.trainings)
    found = {job.stage: job.key for job in plain.jobs}
    assert [stage for stage in keys if keys[stage] != found[stage]] == ["explain", "score"]


def test_trained_and_published_networks_have_keys_of_their_own(suite, published):
    loaded = load_suite(suite)[0]
    keys = [{key for job in make_plan(loaded, train=train).jobs for key in job.results} for train in (False, True)]
    data = {job.key for job in make_plan(loaded).jobs if job.stage == "data"}
    controls = keys[0] & keys[1] - data
    assert data <= keys[0] & keys[1]
    assert len(controls) < len(keys[0]) / 2


def test_a_damaged_file_is_an_error(suite, published, tmp_path):
    weights = published.with_suffix(".safetensors.xz")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    key = next(iter(module._index()))
    refused(NetworkFileError, "small.safetensors.xz are damaged: SHA-256", read_network, key)


def test_the_published_files_are_whole():
    """Every network that comes with the library can be read, and belongs to a training of its suite."""
    table = module.published_records()
    for name, records in table[~table["suite"].str.endswith("-imagenet")].groupby("suite"):
        plan = make_plan(load_suite(name)[0])
        trained = (job for cell in plan.cells for job in cell.trainings if job.parameters["method"] != "none")
        jobs = [job for job in trained if "imagenet" not in job.data.name]  # those depend on the user's photographs
        assert all(job.published for job in jobs), name
        keys = {key for job in jobs for key in job.published_keys}
        assert len(keys) == len(records)
        for key in keys:
            tensors, record = read_network(key)
            assert is_published(key)
            assert 0 <= record["test_accuracy"] <= 1
            assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_retraining_is_compared_by_accuracy_and_order(trained):
    table = compare_trainings(read_run(trained), read_run(trained))
    assert set(table["model"]) == {"llr", "mlp"}
    assert table["tau"].dropna().tolist() == pytest.approx([1, 1])
    assert (table["accuracy"] == table["accuracy_trained"]).all()
    assert (table["largest"] == 0).all()


def test_the_command_checks_a_suite(suite, published, tmp_path):
    out = tmp_path / "check"
    found = CliRunner().invoke(app, ["networks", "check", str(suite), "--out", str(out), "--workers", "1"])
    assert found.exit_code == 0, found.output
    assert "Kendall's tau of the methods' orders: median" in found.output
    assert len(pd.read_csv(out / "retraining.csv")) == 2


def test_the_command_lists_networks(published):
    found = CliRunner().invoke(app, ["networks", "list"])
    assert found.exit_code == 0, found.output
    assert "small" in found.output
    assert "llr" in found.output


def test_a_published_network_classifies_as_recorded():
    dataset = xb.load("xai-tris/lin-corr-8x8", seed=1)
    network = xb.published_network("xai-tris/lin-corr-8x8", "cnn", data_seed=1)
    table = module.published_records()
    asked = (table["dataset"] == "xai-tris/lin-corr-8x8") & (table["data_seed"] == 1) & (table["seed"] == 0)
    (recorded,) = table[asked & (table["suite"] == "xai-tris-8x8") & (table["model"] == "cnn")]["test_accuracy"]
    assert not network.training
    assert xb.models.accuracy(network, dataset.test) == pytest.approx(recorded)


def test_an_unknown_published_network_names_the_nearest():
    with pytest.raises(UnknownNameError, match=r"did you mean 'mlp of xai-tris/xor-corr-8x8, data seed 0, tr.* list`"):
        xb.published_network("xai-tris/xor-corr-8x8", "mpl")
    with pytest.raises(UnknownNameError, match=r"blind:cnn of xai-tris/lin-white-8x8"):  # built with parameters
        xb.published_network("xai-tris/lin-white-8x8", "blind:cnn")


RANK = RANKS[0]
GENERATOR = np.random.default_rng(0)
SHAPE = (64, 300)


def matrix(*shape):
    return torch.from_numpy(GENERATOR.normal(size=shape)).float()


@pytest.fixture
def start():
    assert SHAPE[0] * SHAPE[1] >= LARGE
    return {"0.weight": matrix(*SHAPE), "0.bias": matrix(64), "2.weight": matrix(2, 64)}


@pytest.fixture
def encoded_from(start):
    change = matrix(SHAPE[0], RANK) @ matrix(RANK, SHAPE[1])
    return {"0.weight": start["0.weight"] + change, "2.weight": start["2.weight"] + 0.1}


def test_only_weights_that_changed_are_encoded(start, encoded_from):
    for rank in (*RANKS, None):
        restored = decode(start, encode(start, encoded_from, rank))
        assert set(restored) == set(encoded_from)
        assert all(restored[name].dtype == torch.float32 for name in restored)
        assert torch.equal(restored["2.weight"], encoded_from["2.weight"].half().float())


def test_a_change_of_low_rank(start, encoded_from):
    encoded = encode(start, encoded_from, RANK)
    left, right, scale = (encoded[f"0.weight:{part}"] for part in ("left", "right", "scale"))
    assert (left.shape, left.dtype, right.shape, right.dtype) == (
        (64, RANK),
        torch.int16,
        (RANK, 300),
        torch.int8,
    )
    restored = decode(start, encoded)["0.weight"]
    exact = np.empty(SHAPE, dtype=np.float32)
    for row in range(SHAPE[0]):
        for column in range(SHAPE[1]):
            sum_ = sum(int(left[row, k]) * int(right[k, column]) for k in range(RANK))
            exact[row, column] = float(start["0.weight"][row, column]) + sum_ * float(scale)
    assert np.array_equal(restored.numpy(), exact)
    change = encoded_from["0.weight"] - start["0.weight"]
    assert (restored - encoded_from["0.weight"]).norm() < 0.02 * change.norm()


def test_weights_in_steps(start, encoded_from):
    encoded = encode(start, encoded_from, None)
    scale = encoded["0.weight:scale"]
    steps = np.frombuffer(zlib.decompress(encoded["0.weight:steps"].numpy().tobytes()), np.int8).reshape(SHAPE)
    restored = decode(start, encoded)["0.weight"]
    assert np.array_equal(restored.numpy(), (steps * scale.numpy()).astype(np.float32))
    assert ((restored - encoded_from["0.weight"]).abs() <= 0.5001 * scale).all()
    assert scale.flatten().numpy() == pytest.approx(STEP * encoded_from["0.weight"].double().std(1).numpy())
    # The entropy of a normal number in steps of a fifth of its standard deviation is 4.37 bits.
    assert 8 * encoded["0.weight:steps"].numel() < 4.8 * encoded_from["0.weight"].numel()


def test_extreme_rows(start):
    odd = torch.zeros(SHAPE)
    odd[1, 3] = 1e4  # one weight of a row that is otherwise zero
    odd[2] = 1e-20
    restored = decode(start, encode(start, {"0.weight": odd}, None))["0.weight"]
    assert torch.equal(restored[0], odd[0])
    assert restored[1, 3] == pytest.approx(1e4, rel=0.01)
    assert restored[2].numpy() == pytest.approx(np.full(300, 1e-20), rel=0.01)


def test_large_sums_are_exact():
    """Single precision would lose their last bits."""
    left = torch.full((1, 32), 32767, dtype=torch.int16)
    left[0, 31] = 1
    encoded = {"w:left": left, "w:right": torch.full((32, 1), 127, dtype=torch.int8)}
    encoded["w:scale"] = torch.tensor([2.0**-20], dtype=torch.float64)
    sum_ = 31 * 32767 * 127 + 127
    assert int(np.float32(sum_)) != sum_
    (restored,) = decode({"w": torch.full((1, 1), -123.0)}, encoded).values()
    assert restored.item() == np.float32(sum_ * 2.0**-20 - 123)


TRAINING = [name for name in SUITES if (read := load_suite(name)[0]).explainers and fitted_cells(read)]


@pytest.mark.parametrize("name", TRAINING)
def test_a_quick_run_uses_published_networks_if_the_suite_has_any(name, monkeypatch):
    def trainings(*, quick):
        suite, _ = load_suite(name, quick=quick)
        jobs = make_plan(replace(suite, cells=fitted_cells(suite))).jobs
        return [job for job in jobs if job.stage == "train"]

    monkeypatch.setenv("XAIBENCH_IMAGES", "missing")
    if any(job.published for job in trainings(quick=False)):
        assert all(job.published for job in trainings(quick=True))
