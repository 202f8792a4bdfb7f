"""Methods that were handed in are run on seeds that were hidden, and their results pass the check."""

from datetime import date
from hashlib import sha256

import numpy as np
import pytest
from leaderboard.forging import rewritten
from leaderboard.sandboxes import needs_sandbox
from leaderboard.site.repositories import change_scores

from xaibench.data import load
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.fresh_runs import run_round
from xaibench.leaderboard.manifest import ResultError, find_results, read_manifest
from xaibench.leaderboard.rounds import commit_round, reveal_round
from xaibench.leaderboard.suite_facts import read_facts
from xaibench.leaderboard.verification import verify
from xaibench.runfolder.tables import SCORES
from xaibench.runner.stages.samples import hash_images
from xaibench.runner.suites.files import SUITES

pytestmark = needs_sandbox


@pytest.fixture
def named(monkeypatch):
    """The tiny suite under its name, as one that comes with the library."""
    known = SUITES.canonical
    monkeypatch.setattr(type(SUITES), "canonical", lambda self, name: name if name == "tiny" else known(name))


def test_a_round_runs_what_was_received_on_time(named, result, verdict, tmp_path):
    repository = result.parent.parent
    today = date.fromisoformat(read_manifest(result).submitted)
    verdict(result, received=today.isoformat())
    commit_round(repository, "winter", "tiny", today, tmp_path / "seed.json")
    with pytest.raises(ResultError, match="The seed of round winter is revealed after"):
        run_round(repository, "winter", engine="serial")
    shown = reveal_round(repository, tmp_path / "seed.json", today=date.max)
    said = []
    (fresh,) = run_round(repository, "winter", engine="serial", on_message=said.append)
    assert said == ["gxi: done"]
    assert fresh.name == f"{result.name}+winter"
    assert check(fresh) == []
    manifest = read_manifest(fresh)
    assert (manifest.method, manifest.code) == (read_manifest(result).method, read_manifest(result).code)
    assert set(SCORES.read(fresh)["data_seed"]) == {*shown.seeds(1)}
    data = load("xai-tris/lin-white-8x8", seed=shown.seeds(1)[0], n_samples=200, alpha=0.9, layout=shown.layout)
    numbers = np.column_stack([np.arange(6), hash_images(data.test.images[:6])]).astype("<i8")
    facts = read_facts(repository / "suites" / fresh.name)
    assert list(facts.images.values()) == [sha256(numbers.tobytes()).hexdigest()]
    assert len(find_results(repository)) == 2
    assert verify(fresh, engine="serial").verdict == "bit-equal", "on the seeds of the round"
    # Scores of other seeds than the round's are refused.
    change_scores(fresh, lambda rows: rows.assign(data_seed=5))
    assert "has scores of the data seeds 5; expected" in "\n".join(check(fresh))


@pytest.mark.parametrize(
    ("received", "reason"),
    [("2020-01-02", "received on 2020-01-02, after the deadline 2020-01-01"), (None, "no signed record says when")],
)
def test_what_the_keeper_received_too_late_is_not_run(named, result, verdict, tmp_path, received, reason):
    """The submitter's own date does not count."""
    rewritten(result, submitted="2001-01-01")
    if received:
        verdict(result, received=received)
    repository = result.parent.parent
    commit_round(repository, "winter", "tiny", date(2020, 1, 1), tmp_path / "seed.json", today=date(2020, 1, 1))
    reveal_round(repository, tmp_path / "seed.json")
    said = []
    with pytest.raises(ResultError, match="has no result of tiny that can be run for round winter"):
        run_round(repository, "winter", engine="serial", on_message=said.append)
    assert reason in said[0]
