"""The estimate of a run: jobs, passes, disk space, and a time from a timed pass and training per network."""

import pytest

from xaibench.runner import estimate


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
