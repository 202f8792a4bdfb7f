"""The watermark suite: its cells, and the networks that come with it."""

import xaibench as xb
from xaibench.benchmarks import watermark_use
from xaibench.models import build
from xaibench.runner import load_suite
from xaibench.runner.plan.plan import make_plan


def test_every_regime_and_encoding_has_a_published_network_per_seed():
    plan = make_plan(load_suite("watermarks")[0])
    trainings = [job for job in plan.jobs if job.stage == "train"]
    assert len(trainings) == 21
    assert all(job.published for job in trainings)


def test_the_blinded_network_reads_every_row_without_watermark():
    (cell,) = (cell for cell in load_suite("watermarks")[0].cells if cell.build)
    visible = build(*cell.models, (1, 64, 64), 2, **cell.build).visible
    rows = xb.load("watermarks/confounder", n_samples=80).test.masks.any(0).any(1)
    assert not visible[: int(rows.nonzero().max()) + 1].any()
    assert visible[int(rows.nonzero().max()) + 1 :].all()


def test_only_networks_that_were_told_the_class_lean_to_it():
    test = xb.load("watermarks/confounder", seed=2).test
    told, noise = (
        watermark_use(xb.published_network(f"watermarks/{regime}", "small_cnn", data_seed=2), test)
        for regime in ("confounder", "suppressor")
    )
    assert told.change == told.magnitude > 3 * noise.magnitude  # always towards the class with the watermark
