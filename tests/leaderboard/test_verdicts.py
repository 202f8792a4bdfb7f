"""A verdict is believed if a keeper of the repository has signed it, for this state of the result."""

import json

import pytest
from leaderboard.forging import rewritten
from leaderboard.keepers import give_verdict, make_key, trust

from xaibench.leaderboard import verdicts
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import ResultError, manifest_checksum
from xaibench.leaderboard.site.read import read_results
from xaibench.leaderboard.verdicts import has_verdict, read_verdict, sign_verdicts, verdict_file


@pytest.fixture
def key(result, tmp_path):
    """The key of the repository's keeper."""
    key = make_key(tmp_path / "keys")
    trust(result.parent.parent, key)
    return key


def test_a_signed_verdict_is_believed(result, key):
    assert (read_verdict(result), has_verdict(result)) == ({}, False)
    file = give_verdict(result, key)
    assert read_verdict(result)["verdict"] == "bit-equal"
    assert file == result.parent.parent / "verdicts" / f"{result.parent.name}" / f"{result.name}.json"
    assert check(result) == []
    (shown,), _ = read_results(result.parent.parent)
    assert shown.is_verified


def test_anybody_can_write_a_verdict_and_is_not_believed(result, key, tmp_path):
    """So a submitter gave himself `bit-equal` and the first place."""
    give_verdict(result)
    assert has_verdict(result)
    assert read_verdict(result) == {}
    give_verdict(result, make_key(tmp_path / "keys", "stranger"))
    assert read_verdict(result) == {}
    (shown,), _ = read_results(result.parent.parent)
    assert (shown.verdict, shown.is_verified) == ("", False)


def test_a_verdict_is_of_one_state_of_one_result(result, key):
    file = give_verdict(result, key)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"verdict": "equal"}))
    assert read_verdict(result) == {}, "it was changed after it was signed"
    give_verdict(result, key)
    rewritten(result, submitted="2026-12-30")
    assert (read_verdict(result), has_verdict(result)) == ({}, False)


def test_a_signature_for_another_purpose_is_none(result, key, monkeypatch):
    monkeypatch.setattr(verdicts, "_NAMESPACE", "file")
    give_verdict(result, key)
    monkeypatch.undo()
    assert read_verdict(result) == {}


def test_only_verdicts_without_a_signature_are_signed(result, key):
    file = give_verdict(result)
    assert sign_verdicts(result.parent.parent, key) == [file]
    assert sign_verdicts(result.parent.parent, key) == []
    give_verdict(result, verdict="differs", result=manifest_checksum(result))
    assert sign_verdicts(result.parent.parent, key) == [file]
    assert read_verdict(result)["verdict"] == "differs"


def test_without_keepers_or_ssh_nothing_is_believed(result, key, monkeypatch, caplog):
    give_verdict(result, key)
    monkeypatch.setattr(verdicts.shutil, "which", lambda name: None)
    verdicts._has_ssh_keygen.cache_clear()
    assert read_verdict(result) == {}
    assert "ssh-keygen is not installed" in caplog.text
    monkeypatch.undo()
    verdicts._has_ssh_keygen.cache_clear()
    (result.parent.parent / "keepers").unlink()
    assert read_verdict(result) == {}


@pytest.mark.parametrize("content", ["[" * 200_000, "[1]", "{", "null", '"\\ud800"'])
def test_a_damaged_verdict_is_none(content, result, key):
    file = verdict_file(result)
    give_verdict(result, key)
    file.write_text(content)
    assert (read_verdict(result), has_verdict(result)) == ({}, False)


def test_a_key_that_is_none_is_an_error(result, tmp_path):
    give_verdict(result)
    (tmp_path / "key").write_text("no key")
    with pytest.raises(ResultError, match="cannot be signed with"):
        sign_verdicts(result.parent.parent, tmp_path / "key")
