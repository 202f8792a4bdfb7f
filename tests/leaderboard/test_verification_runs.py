"""Results that are verified side by side get the verdicts that each would get alone."""

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from leaderboard.forging import with_scores
from leaderboard.sandboxes import needs_sandbox

from xaibench.leaderboard import verification_runs as module
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import find_results
from xaibench.leaderboard.run_splitting import split_run
from xaibench.leaderboard.score_files import STEP
from xaibench.leaderboard.verdicts import find_record
from xaibench.leaderboard.verification_runs import VerifiedResult, verify_all
from xaibench.runfolder.tables import JOBS
from xaibench.runner.run import run

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def repository(submitted, tiny, tmp_path_factory):
    """The result that was handed in, and those of a run of the library's own, one of them forged."""
    place = tmp_path_factory.mktemp("side-by-side")
    shutil.copytree(submitted.parent.parent, place / "results")
    run(tiny, place / "run", engine="serial")
    split_run(place / "run", place / "results")
    (forged,) = place.glob("results/uniform/*")

    def better(table):
        values = pa.array(np.minimum(1.0, table["value"].to_numpy() + 0.1))
        return table.set_column(table.column_names.index("value"), "value", values)

    with_scores(forged, better)
    return place


class OneThread(ThreadPoolExecutor):
    """In place of processes, which would not know the suite of these tests; a process has one method at a time."""

    def __init__(self, *_):
        super().__init__(1)


@pytest.mark.parametrize("engine", ["serial", pytest.param("processes", marks=pytest.mark.slow)])
def test_each_has_its_own_verdict_and_networks_are_trained_once(repository, engine, monkeypatch):
    monkeypatch.setattr(module, "ProcessPoolExecutor", OneThread)
    folders = find_results(repository / "results")
    assert [problem for folder in folders for problem in check(folder)] == [], "nothing but running it again tells"
    work = repository / engine
    found = {one.folder: one for one in verify_all(folders, work=work, workers=2, engine=engine)}
    assert not [one.refused for one in found.values() if one.refused]
    outcomes = {folder.parent.name: one.verification for folder, one in found.items()}
    verdicts = {name: outcome.verdict for name, outcome in outcomes.items()}
    assert verdicts == {"gxi": "bit-equal", "saliency": "bit-equal", "uniform": "differs"}
    assert 0.05 < outcomes["uniform"].largest_difference <= 0.1 + STEP
    honest = outcomes["gxi"]
    assert (honest.equal_rows, honest.largest_difference) == (honest.rows, 0.0)
    assert honest.changed["weights"] > 0.5, "its images are too similar, and there is no other training"
    assert honest.ignores == ()
    for folder in folders:
        assert find_record(folder, signed=False).verification == outcomes[folder.parent.name]
        assert find_record(folder) is None, "nobody has signed it"
    trained = {
        folder.parent.name: int((JOBS.read(work / folder.parent.name / folder.name / "run")["stage"] == "train").sum())
        for folder in folders
    }
    assert trained == {"gxi": 2, "saliency": 0, "uniform": 0}


@pytest.fixture
def called(monkeypatch):
    """Who was verified how, in place of verifying; a folder with `bad` in its name is refused."""
    calls = []

    def verified(folder, clone, settings):
        calls.append((folder.name, settings.get("engine", settings.get("workers", "all"))))
        return VerifiedResult(folder, None, "bad") if "bad" in folder.name else VerifiedResult(folder, object())

    monkeypatch.setattr(module, "record_outcome", lambda folder, work, found: calls.append(("recorded", folder.name)))

    def side_by_side(runs, workers, clone, shared):
        calls.extend((folder.name, "beside") for folder in runs)
        yield from (VerifiedResult(folder, object()) for folder in runs)

    monkeypatch.setattr(module, "_verify_one", verified)
    monkeypatch.setattr(module, "_verify_parallel", side_by_side)
    monkeypatch.setattr(module, "_group_by_suite", lambda folders: [list(folders)])
    return calls


@pytest.mark.parametrize(
    ("names", "workers", "how"),
    [
        ("a b c", 1, ["serial", "serial", "serial"]),
        ("a b c", 2, [2, "beside", "beside"]),
        ("a b c", 3, [3, 3, 3]),  # two would leave one of three workers idle
        ("bad a b c", 2, [2, 2, "beside", "beside"]),  # the first may have trained nothing
    ],
)
def test_the_first_of_a_suite_takes_all_workers_and_the_others_one_each(called, tmp_path, names, workers, how):
    folders = [tmp_path / name / name for name in names.split()]
    assert [one.folder for one in verify_all(folders, workers=workers, bars=nullcontext)] == folders
    recorded = [name for first, name in called if first == "recorded"]
    assert recorded == [name for name in names.split() if name != "bad"], "by this process, one after the other"
    assert [each for each in called if each[0] != "recorded"] == list(zip(names.split(), how, strict=True))


def test_suites_do_not_wait_for_the_networks_of_each_other(repository, result):
    (result / "scores.parquet").write_text("damaged")
    folders = [*find_results(repository / "results"), result]
    groups = module._group_by_suite(folders)
    assert [len(group) for group in groups] == [3, 1]
    (one,) = verify_all([result], workers=1)
    assert one.verification is None
    assert "is refused before it is run" in one.refused


def test_one_that_fails_does_not_take_the_others_down(monkeypatch, tmp_path):
    def verify(folder, **_):
        if folder.name == "full":
            raise OSError(28, "No space left on device")
        return "verdict"

    monkeypatch.setattr(module, "verify", verify)
    monkeypatch.setattr(module, "record_outcome", lambda *_: None)
    found = list(verify_all([tmp_path / name for name in ("full", "fine")], workers=1))
    assert [(one.refused, one.failed) for one in found] == [
        ("", "OSError: [Errno 28] No space left on device"),
        ("", ""),
    ]
    assert found[1].verification == "verdict"
    with pytest.raises(ValueError, match="There is no device 'abacus' here"):
        next(verify_all([tmp_path], device="abacus"))


def test_who_was_taken_along_by_a_process_that_died_is_verified_again(monkeypatch, tmp_path):
    class Broken:
        def __init__(self, *_):
            self._processes = {}

        def submit(self, *_):
            future = Future()
            future.set_exception(BrokenProcessPool("killed"))
            return future

        def shutdown(self, **_):
            pass

    monkeypatch.setattr(module, "ProcessPoolExecutor", Broken)
    monkeypatch.setattr(
        module, "_verify_one", lambda folder, clone, settings: VerifiedResult(folder, None, str(settings))
    )
    runs = {tmp_path / name: tmp_path / f"run-{name}" for name in "ab"}
    found = {one.folder: one.refused for one in module._verify_parallel(runs, 2, False, {"store": "s"})}
    assert found == {folder: str({"store": "s", "workers": 2, "work": run}) for folder, run in runs.items()}
