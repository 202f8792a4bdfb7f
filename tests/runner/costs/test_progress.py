"""Progress of a run: finished jobs count by their duration, kinds of jobs not yet run by their estimated cost."""

import re
from dataclasses import replace

import pytest

from xaibench.runner import load_suite
from xaibench.runner.costs.calibration import Cost
from xaibench.runner.costs.progress import StageProgress
from xaibench.runner.plan.job_base import Outcome
from xaibench.runner.plan.plan import make_plan


@pytest.fixture
def trainings(tiny_suite):
    """Four jobs of one kind, on data of different seeds, and three of another kind."""
    jobs = {job.kind(): job for job in make_plan(load_suite(tiny_suite)[0]).jobs if job.stage == "train"}
    first, second, *_ = jobs.values()
    return [
        [replace(job, data=replace(job.data, seed=seed)) for seed in range(count)]
        for job, count in ((first, 4), (second, 3))
    ]


def end(work, job, seconds=None, error=""):
    if seconds is not None:
        work.ran(Outcome(job, error, seconds=seconds))
    work.ended(job)


def test_work_is_counted_by_what_jobs_of_the_kind_took(trainings):
    quick, slow = trainings
    work = StageProgress([*quick, *slow], "cpu", {slow[0].kind(): Cost(1.0, 9.0 / slow[0].amount)})
    assert work.share("train") == 0.0
    end(work, quick[0], 1.0)
    left = (len(quick) - 1) * 1.0 + len(slow) * 10.0  # from the cache
    assert work.share("train") == pytest.approx(1 / (1 + left))
    end(work, slow[0], 30.0)
    left = (len(quick) - 1) * 1.0 + (len(slow) - 1) * 30.0  # from this run
    assert work.share("train") == pytest.approx(31 / (31 + left))
    for job in (*quick[1:], *slow[1:]):
        end(work, job, 5.0)
    assert work.share("train") == 1.0


def test_a_kind_of_which_nothing_is_known_counts_like_the_others(trainings):
    one, other = trainings
    work = StageProgress([*one, *other], "cpu", {})
    for job in one:
        end(work, job, 2.0)
    assert work.share("train") == pytest.approx(len(one) / (len(one) + len(other)))


def test_what_was_there_and_what_failed_is_no_pace(trainings):
    one, other = trainings
    work = StageProgress([*one, *other], "cpu", {})
    for job in one:
        end(work, job)  # found
    end(work, other[0], 100.0, error="no such thing")
    assert work.share("train") == 0.0
    end(work, other[1], 3.0)
    end(work, other[1], 3.0)  # run again, because its result was damaged
    assert work.share("train") == pytest.approx(1 / (len(other) - 1))


def test_larger_jobs_of_a_kind_take_longer(tiny_suite):
    suite = load_suite(tiny_suite)[0]
    (job,) = [job for job in make_plan(suite).jobs if job.stage == "train"][:1]
    long = job.small(10)
    short = job.small(1)
    assert long.kind() == short.kind()
    work = StageProgress([short, long], "cpu", {})
    end(work, short, 1.0)
    assert work.share("train") == pytest.approx(1 / 11)


def test_a_budget_that_is_still_to_come_counts_by_its_passes(tiny_suite, tmp_path):
    text = tiny_suite.read_text()
    budgets = {f"ig-{n}": f'ig-{n} = {{ use = "integrated_gradients", budget = {n} }}' for n in (10, 1000)}
    suite = tmp_path / "budgets.toml"
    suite.write_text(
        re.sub(r"(?ms)^\[explainers\].*?^(?=\[)", "[explainers]\n" + "\n".join(budgets.values()) + "\n\n", text)
    )
    jobs = [job for job in make_plan(load_suite(suite)[0]).jobs if job.stage == "explain"]
    few, many = ([job for job in jobs if job.explainer.name == name] for name in budgets)
    work = StageProgress(jobs, "cpu", {})
    for job in few:
        end(work, job, 1.0)
    assert len({job.kind() for job in jobs}) > 2  # the networks are different, too
    assert work.share("explain") == pytest.approx(1 / (1 + many[0].passes / few[0].passes), rel=0.01)
    assert work.share("explain") < 0.02
