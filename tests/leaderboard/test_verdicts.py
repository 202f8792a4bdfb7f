"""Records of a keeper count if a keeper of the repository has signed them, for the state of the result they name."""

import json

import pytest
from leaderboard.forging import rewritten
from leaderboard.keepers import give_verdict, make_key, trust

from xaibench.leaderboard import verdicts
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.site.read import read_results
from xaibench.leaderboard.verdicts import Verification, find_record, receive, record_verification, sign_records


@pytest.fixture
def key(result, tmp_path):
    """The key of the repository's keeper."""
    key = make_key(tmp_path / "keys")
    trust(result.parent.parent, key)
    return key


def shown(result):
    ((found,), _) = read_results(result.parent.parent)
    return found


def test_a_signed_verdict_counts(result, key):
    assert find_record(result) is find_record(result, signed=False) is None
    file = give_verdict(result, key)
    assert find_record(result).verification.verdict == "bit-equal"
    assert file == result.parent.parent / "verdicts.json"
    assert check(result) == []
    assert shown(result).is_verified


def test_a_verdict_without_a_keepers_signature_does_not_count(result, key, tmp_path):
    """A submitter once gave himself `bit-equal` and the first place."""
    give_verdict(result)
    assert find_record(result, signed=False).verification.verdict == "bit-equal"
    assert find_record(result) is None
    give_verdict(result, make_key(tmp_path / "keys", "stranger"))
    assert find_record(result) is None
    assert (shown(result).verdict, shown(result).is_verified) == ("", False)


def test_a_verdict_counts_for_one_state_of_one_result(result, key):
    file = give_verdict(result, key)
    file.write_text(file.read_text().replace("bit-equal", "equal"))
    assert find_record(result) is None, "it was changed after it was signed"
    give_verdict(result, key)
    rewritten(result, submitted="2026-12-30")
    assert find_record(result) is find_record(result, signed=False) is None
    assert shown(result).verdict == ""


def test_a_signature_for_another_purpose_is_refused(result, key, monkeypatch):
    monkeypatch.setattr(verdicts, "_NAMESPACE", "file")
    give_verdict(result, key)
    monkeypatch.undo()
    assert find_record(result) is None


def test_records_are_signed_again_only_after_a_change(result, key):
    repository = result.parent.parent
    assert sign_records(repository, key) is None, "there is no record yet"
    file = give_verdict(result)
    assert sign_records(repository, key) == file
    assert sign_records(repository, key) is None
    give_verdict(result, verdict="differs")
    assert find_record(result) is None
    assert sign_records(repository, key) == file
    assert find_record(result).verification.verdict == "differs"


def test_the_day_of_receipt_is_the_keepers_and_kept(result, key):
    """The manifest contains a date too, which its author chooses."""
    rewritten(result, submitted="2001-01-01")
    assert receive([result], day="2026-03-03") == [result]
    assert receive([result], day="2026-04-04") == []
    sign_records(result.parent.parent, key)
    assert find_record(result).received == shown(result).received == "2026-03-03"
    record_verification(result, Verification("equal", 1, 1, 0.0, "", "0.2.0", "2026-05-05"))
    sign_records(result.parent.parent, key)
    assert (find_record(result).received, shown(result).verdict) == ("2026-03-03", "equal")
    rewritten(result, submitted="2001-01-02")
    assert receive([result], day="2026-06-06") == [result], "another state of the result is received anew"


@pytest.mark.parametrize(
    ("changed", "ignores"),
    [
        ({}, ()),
        ({"weights": 1.0, "training": 0.9, "image": 1.0}, ()),
        ({"weights": 0.0, "training": 0.9, "image": 1.0}, ("network",)),
        ({"weights": 1.0, "training": 0.01}, ("network",)),
        ({"weights": 0.0, "image": 0.0}, ("network", "image")),
        ({"weights": 1.0, "image": 0.0}, ("image",)),
    ],
)
def test_what_maps_do_not_depend_on_follows_from_the_shares(changed, ignores, result, key):
    give_verdict(result, key, changed=changed)
    assert shown(result).ignores == ignores
    assert shown(result).is_control == ("network" in ignores)


def test_without_keepers_or_ssh_nothing_counts(result, key, monkeypatch, caplog):
    give_verdict(result, key)
    monkeypatch.setattr(verdicts.shutil, "which", lambda name: None)
    verdicts._has_ssh_keygen.cache_clear()
    assert find_record(result) is None
    assert "ssh-keygen is not installed" in caplog.text
    monkeypatch.undo()
    verdicts._has_ssh_keygen.cache_clear()
    (result.parent.parent / "keepers").unlink()
    assert find_record(result) is None


@pytest.mark.parametrize("content", ["[" * 200_000, "[1]", "{", "null", '"\\ud800"', '{"results": {"a/b": 1}}'])
def test_a_damaged_file_of_records_is_an_error_of_the_keeper(content, result, key):
    file = give_verdict(result, key)
    file.write_text(content)
    assert find_record(result) is None, "its signature does not fit"
    with pytest.raises(ResultError, match=r"verdicts\.json cannot be read"):
        find_record(result, signed=False)


def test_a_record_is_json_without_nan(result):
    give_verdict(result, largest_difference=None)
    json.loads((result.parent.parent / "verdicts.json").read_text(), parse_constant=pytest.fail)


def test_a_file_that_is_no_key_is_an_error(result, tmp_path):
    give_verdict(result)
    (tmp_path / "key").write_text("no key")
    with pytest.raises(ResultError, match="cannot be signed with"):
        sign_records(result.parent.parent, tmp_path / "key")
