"""The scheduler: order, failures, retries and damaged results, with fake jobs."""

import random
from dataclasses import dataclass
from typing import ClassVar

import pytest

from xaibench.runner.plan.job_base import Job, Outcome
from xaibench.runner.scheduling import MAX_TRIES, Schedule
from xaibench.runner.store import Store, StoreError


@dataclass(frozen=True)
class Pretend(Job):
    name: str
    after: tuple[Job, ...] = ()
    stage: ClassVar[str] = "data"
    disk_mb, memory_mb = 0.0, 0.0

    @property
    def needs(self):
        return self.after

    def about(self):
        return {}

    def __str__(self) -> str:
        return self.name


class Later(Pretend):
    stage: ClassVar[str] = "score"


def failures(jobs, store, engine, seen=lambda job: None):
    schedule = Schedule(jobs, store, seen)
    schedule.run(engine)
    return schedule.failures


class PretendEngine:
    """Finishes jobs in a random order; ``behavior`` maps a name to the outcomes of its tries."""

    def __init__(self, store, behavior=None, capacity=3, seed=0):
        self.store, self.capacity = store, capacity
        self.behavior = {name: list(outcomes) for name, outcomes in (behavior or {}).items()}
        self.running, self.order, self.random = [], [], random.Random(seed)

    def has_room(self, job):
        return len(self.running) < self.capacity

    def submit(self, job):
        assert self.has_room(job)
        self.running.append(job)

    def wait(self):
        job = self.running.pop(self.random.randrange(len(self.running)))
        self.order.append(job.name)
        script = self.behavior.get(job.name)
        act = script.pop(0) if script else "well"
        if callable(act):
            act = act(job)
        if act == "well":
            for need in job.needs:
                assert self.store.has(need.stage, need.key), f"{job} ran before {need}"
            self.store._write(self.store.name(job.stage, job.key), job.name.encode())
            return [Outcome(job)]
        return [Outcome(job, f"it {act}", fatal=act == "filled the disk", died=act == "died")]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def diamond():
    a = Pretend("a")
    b, c = Pretend("b", (a,)), Pretend("c", (a,))
    d = Later("d", (b, c))
    return a, b, c, d


@pytest.mark.parametrize("seed", range(5))
def test_every_job_runs_once_after_those_it_needs(store, seed):
    jobs = []
    for i in range(40):
        jobs.append(Pretend(str(i), tuple(random.Random(seed * 100 + i).sample(jobs, min(len(jobs), i % 4)))))
    engine, seen = PretendEngine(store, seed=seed), []
    assert failures(jobs, store, engine, seen.append) == {}
    assert sorted(engine.order) == sorted(job.name for job in jobs)
    assert sorted(seen, key=lambda job: job.name) == sorted(jobs, key=lambda job: job.name)


def test_what_is_there_is_not_run_again(store):
    jobs = diamond()
    failures(jobs, store, PretendEngine(store))
    engine, seen = PretendEngine(store), []
    failures(jobs, store, engine, seen.append)
    assert engine.order == []
    assert set(seen) == set(jobs), "but it is counted as done"


def test_a_failure_stops_only_what_needs_it(store):
    _, b, _, d = jobs = diamond()
    engine = PretendEngine(store, {"b": ["broke"]})
    failed = failures(jobs, store, engine)
    assert sorted(engine.order) == ["a", "b", "c"]
    assert failed == {b: "it broke (1 jobs that need it were not run)"}
    assert failures(jobs, store, engine) == {}, "the next run tries it again"
    assert store.has(d.stage, d.key)


def test_a_killed_worker_gets_its_jobs_tried_again_but_not_for_ever(store):
    jobs = diamond()
    assert failures(jobs, store, PretendEngine(store, {"b": ["died", "died"]})) == {}
    other = Pretend("always dies")
    engine = PretendEngine(store, {"always dies": ["died"] * 10})
    failed = failures([other], store, engine)
    assert list(failed) == [other]
    assert engine.order == ["always dies"] * MAX_TRIES


def test_an_input_that_turns_out_damaged_is_made_again(store):
    a, b, _, d = jobs = diamond()

    def lose(*lost):
        def act(job):
            for one in lost:
                store.files.remove(store.name(one.stage, one.key))
            return "found its input damaged"

        return act

    engine = PretendEngine(store, {"d": [lose(b)]})
    assert failures(jobs, store, engine) == {}
    assert engine.order.count("b") == 2
    assert engine.order[-1] == "d"

    # An indirect dependency: d reads the result that b needed, and both are missing.
    store.files.remove(store.name(d.stage, d.key))
    engine = PretendEngine(store, {"d": [lose(a, b)]})
    assert failures(jobs, store, engine) == {}
    assert engine.order == ["d", "a", "b", "d"]


def test_a_full_disk_ends_the_run(store):
    jobs = diamond()
    with pytest.raises(StoreError, match="it filled the disk"):
        failures(jobs, store, PretendEngine(store, {"c": ["filled the disk"]}))


def test_later_stages_do_not_keep_earlier_ones_waiting(store):
    firsts = [Pretend(f"first {i}") for i in range(6)]
    lasts = [Later(f"last {i}", (first,)) for i, first in enumerate(firsts)]
    engine = PretendEngine(store, capacity=1)
    failures([*firsts, *lasts], store, engine)
    assert engine.order == [job.name for job in (*firsts, *lasts)]


@dataclass(frozen=True)
class Patient(Later):
    before: tuple[Job, ...] = ()

    @property
    def waits_for(self):
        return self.before


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("outcomes", [[], ["it broke"]])
def test_a_job_waits_for_another_and_does_without_it(store, outcomes, seed):
    first = Later("first")
    second = Patient("second", before=(first,))
    third = Patient("third", after=(Pretend("data"),), before=(second,))
    engine = PretendEngine(store, {"first": outcomes}, seed=seed)
    failed = failures([Pretend("data"), first, second, third], store, engine)
    assert sorted(map(str, failed)) == ["first"] * len(outcomes)
    order = [name for name in engine.order if name != "data"]
    assert order == ["first", "second", "third"]
    # A second pass waits neither for stored results nor for jobs that are not part of it.
    again = PretendEngine(store)
    assert failures([Pretend("data"), second, third], store, again) == {}
    assert again.order == []


def test_a_job_that_waits_for_one_that_is_skipped_is_run(store):
    lost = Later("lost", after=(Pretend("broken"),))
    second = Patient("second", before=(lost,))
    engine = PretendEngine(store, {"broken": ["it broke"]})
    failures([Pretend("broken"), lost, second], store, engine)
    assert engine.order == ["broken", "second"]
