"""The estimate of a run: jobs, passes, disk space, and a time from a timed pass and training per network."""

import pytest

from xaibench.registry.parameters import Frozen
from xaibench.runner import estimate
from xaibench.runner.cost_estimate import _time_stack as _real_time_stack
from xaibench.runner.cost_estimate import _time_training
from xaibench.runner.parts import ModelPart
from xaibench.runner.plan.jobs import DataJob, TrainJob


@pytest.fixture(autouse=True)
def a_pass_takes_a_millisecond(monkeypatch):
    monkeypatch.setattr("xaibench.runner.cost_estimate._time_pass", lambda *network: 1e-3)
    monkeypatch.setattr("xaibench.runner.cost_estimate._time_stack", lambda *network: 1e-3)


def test_passes_jobs_and_disk_of_a_run(tiny_suite, tmp_path):
    cost = estimate(tiny_suite, tmp_path / "new", workers=2, device="cpu")
    assert cost.stages["jobs"].to_dict() == {"data": 2, "train": 6, "explain": 14, "score": 28}
    assert (cost.stages["done"] == 0).all()
    assert (cost.stages["disk_mb"] > 0).all()
    assert cost.stages.loc["train", "passes"] == 3 * 160 * 3 * (3 + 3 + 2)
    assert cost.stages.loc["explain", "passes"] > 3 * 6 * (1 + 10)
    assert cost.seconds == pytest.approx(cost.stages["passes"].sum() * 1e-3 / 2)
    assert cost.unknown == {}


def test_finished_results_cost_nothing(tiny_suite, tiny_run):
    cost = estimate(tiny_suite, tiny_run, device="cpu")
    assert (cost.stages["done"] == cost.stages["jobs"]).all()
    assert (cost.seconds, cost.unknown) == (0, {})


def test_large_images_are_timed_in_small_batches(monkeypatch):
    timed = []
    monkeypatch.setattr("xaibench.runner.cost_estimate._time_stack", lambda *given: timed.append(given[4]) or 1e-3)
    fit = Frozen({"batch_size": 512, "loss": "logits"})
    for dataset in ("xai-tris/lin-white-8x8", "xai-tris/lin-white-64x64", "pet"):
        _time_training(TrainJob(DataJob(dataset, 0, Frozen(), "1"), "mlp", (0,), fit, Frozen(), "1"), "cpu")
    assert timed == [512, 512, 2**21 // (3 * 224 * 224)]


def test_a_timed_training_takes_some_time():
    model = ModelPart.of("llr").source
    assert _real_time_stack(model, (1, 8, 8), 2, 2, 16, "logits", "cpu") > 0
