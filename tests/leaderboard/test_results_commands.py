"""``xaibench submit`` and ``xaibench results``, as one types them."""

import dataclasses
import json
import re
import shutil

import pytest
from leaderboard.forging import rewritten

from xaibench.leaderboard import verification_runs
from xaibench.leaderboard.manifest import find_results, read_manifest
from xaibench.leaderboard.verdicts import Verification, record_verification

METHOD = "def mine(model, images, targets, power=1.0):\n    return images.abs().sum(1) ** power\n"


def test_a_method_is_submitted_checked_and_would_be_sent(typed, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", token := "hf_" + "x" * 34)
    (tmp_path / "mine.py").write_text(METHOD)
    told = ["--label", "Mine", "--author", "Ann", "--set", "power=2.0"]
    said = typed(["submit", "mine.py", "--suite", str(tiny), *told, "--publish", "ann/results"])
    assert said.exit_code == 0, said.output
    assert "Trial: " in said.output
    assert re.search(r"topk_precision +\d\.\d{3}  \(higher is better; 2 cells\)", said.output)
    assert "Not given: --citation, --license." in said.output
    assert "Would open a pull request on ann/results with mine/tiny@" in said.output
    assert "Nothing was sent (--dry-run)." in said.output
    (folder,) = find_results(tmp_path / "results")
    assert read_manifest(folder).method.authors == ("Ann",)
    assert read_manifest(folder).method.parameters == {"power": 2.0}
    found = [path for path in tmp_path.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert found == []
    assert token not in said.output

    assert typed(["results", "check", "results"]).output.startswith("ok")
    other = read_manifest(folder)
    copy = folder.parent.parent / "other" / folder.name
    shutil.copytree(folder, copy)
    rewritten(copy, method=dataclasses.replace(other.method, name="other"))
    files = sum(path.is_file() for path in [*folder.rglob("*"), *copy.rglob("*")])
    assert f"tiny: 2 results, {files} files, 0.0 MB" in typed(["results", "check", "results"]).output
    shutil.rmtree(copy.parent)
    (folder / "scores.parquet").write_bytes(b"other")
    refused = typed(["results", "check", "results"])
    assert refused.exit_code == 1
    assert "scores.parquet cannot be read" in refused.output


def test_the_manifest_is_shown_with_control_characters_escaped(typed, result):
    method = dataclasses.replace(read_manifest(result).method, label="G\x1b]0;x\x07\u202e")
    said = typed(["results", "show", str(rewritten(result, method=method))]).output
    assert json.loads(said) == json.loads(read_manifest(result).to_json())
    assert said.isascii()
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("verdict", "code", "difference", "scores"),
    [
        ("bit-equal", 0, 0.0, "1,100 of 1,200 scores bit-identical maps"),
        ("equal", 0, 1e-7, "scores bit-identical; largest difference of a score 1e-07 (lin-white mlp)"),
        ("differs", 1, None, "scores bit-identical; largest difference of a score undefined (lin-white mlp)"),
    ],
)
def test_verify_says_what_came_of_each_result(typed, result, monkeypatch, verdict, code, difference, scores):
    asked = []

    def verified(folder, **settings):
        asked.append(settings)
        return Verification(verdict, 1200, 1100, difference, "lin-white mlp", "0.1", "2026-12-31", {"weights": 0.0})

    monkeypatch.setattr(verification_runs, "verify", verified)
    monkeypatch.setattr(verification_runs, "require_sandbox", lambda: None)
    monkeypatch.setattr(
        verification_runs, "record_outcome", lambda folder, _, found: record_verification(folder, found)
    )
    said = typed(["results", "verify", str(result), "--workers", "1", "--work", "again"])
    assert said.exit_code == code, said.output
    assert f"{verdict}  {result}" in said.output
    assert scores in " ".join(said.output.split())
    assert "randomized weights; the maps do not depend on the network, so that the method is a control" in (
        " ".join(said.output.split())
    )
    typed(["results", "verify", str(result)])
    assert [one.get("engine", one.get("workers")) for one in asked] == ["serial", None]
    assert str(asked[0]["store"]) == "again/store"
    assert asked[1]["store"].parent != asked[0]["store"].parent


def test_only_what_has_no_verdict_is_verified_when_asked_so(typed, result, monkeypatch):
    def verified(folder, **settings):
        return Verification("bit-equal", 9, 9, 0.0, "", "0.1", "2026-12-31")

    monkeypatch.setattr(verification_runs, "verify", verified)
    monkeypatch.setattr(verification_runs, "require_sandbox", lambda: None)
    monkeypatch.setattr(
        verification_runs, "record_outcome", lambda folder, _, found: record_verification(folder, found)
    )
    new = ["results", "verify", str(result), "--new", "--workers", "1"]
    assert "bit-equal" in typed(new).output
    again = typed(new)
    assert (again.exit_code, "Every result in" in again.output, "bit-equal" in again.output) == (0, True, False)
    assert "bit-equal" in typed(new[:3] + new[4:]).output, "else all are"
    rewritten(result, submitted="2026-12-30")
    assert "bit-equal" in typed(new).output, "a verdict of another state is none"


def test_what_is_wrong_is_said_in_a_line(typed, tmp_path):
    for command, what in (
        (["results", "check", "nowhere"], "nowhere contains no results: no such folder"),
        (["submit", "none.py"], "there is no file none.py"),
        (["submit", "saliency", "--set", "x"], "--set 'x': expected NAME=VALUE"),
        (["results", "add", "nowhere"], "nowhere is not a run folder"),
        (["results", "fresh", ".", "winter"], ". has no round 'winter'"),
    ):
        said = typed(command)
        assert said.exit_code == 2, command
        assert said.output.startswith("Error: ")
        assert what in said.output


def test_a_round_is_promised_and_not_shown_too_early(typed, tmp_path):
    asked = ["winter", "--suite", "xai-tris-8x8", "--deadline", "2999-12-31", "--secret", "seed.json"]
    said = typed(["results", "commit", "results", *asked])
    assert said.exit_code == 0, said.output
    assert json.loads((tmp_path / "results" / "rounds.json").read_text())[0]["commitment"] in said.output
    early = typed(["results", "reveal", "results", "seed.json"])
    assert early.exit_code == 2
    assert "Round winter is open until 2999-12-31" in early.output


def test_the_schema_is_printed(typed):
    assert json.loads(typed(["results", "schema"]).output)["properties"]["schema"] == {
        "description": "The version of this schema.",
        "const": 5,
    }
