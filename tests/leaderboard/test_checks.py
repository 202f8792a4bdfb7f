"""What is seen without running anything: each way to spoil a result is refused, with its reason."""

import dataclasses
import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from leaderboard.forging import png, rewritten, with_scores
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.leaderboard import score_files
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import SuiteVersion, read_manifest
from xaibench.leaderboard.score_files import MANIFEST, PICTURE, read_note


def _change_picture(folder, picture):
    with_scores(folder, notes={PICTURE: picture})


def _change_manifest(folder, change):
    with_scores(folder, notes={MANIFEST: change(read_note(folder, MANIFEST))})


def _misspell_a_column(folder):
    file = folder / "scores.parquet"
    file.write_bytes(file.read_bytes().replace(b"dataset", b"da\xc9aset"))


def _value(table, number, value):
    values = table["value"].to_pylist()
    values[number] = value
    return table.set_column(table.column_names.index("value"), "value", pa.array(values))


def _say(reason):
    def change(table):
        first = table["value"].to_pylist().index(next(filter(None, table["value"].to_pylist())))
        reasons = [reason if number == first else said for number, said in enumerate(table["reason"].to_pylist())]
        return table.set_column(table.column_names.index("reason"), "reason", pa.array(reasons))

    return change


def _later(table):
    place = table.column_names.index("sample")
    return table.set_column(place, "sample", pc.add(table["sample"], 6))


def test_a_whole_result_is_taken(result):
    assert check(result) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda at: (at / "method" / "mine.py").write_text("x = 1\n"), "the files below method were modified"),
        (lambda at: (at / "method" / "more.py").write_text("x = 1\n"), "the files below method were modified"),
        (lambda at: (at / "scores.parquet").unlink(), "scores.parquet cannot be read"),
        (lambda at: (at / "link").symlink_to("/etc/passwd"), "link are links"),
        (lambda at: _change_manifest(at, lambda _: b"{}"), "lacks 'method'"),
        (lambda at: _change_manifest(at, lambda _: b""), "has no manifest; `xaibench submit`"),
    ],
)
def test_what_was_changed_is_seen(spoil, said, result):
    spoil(result)
    assert said in "\n".join(check(result))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda at: with_scores(at, lambda t: _value(t, 0, 1.5)), "such as 1.5, are outside its range [0, 1]"),
        (lambda at: with_scores(at, lambda t: pa.concat_tables([t, t[:2]])), "has 2 duplicate rows"),
        (lambda at: with_scores(at, lambda t: _value(t, 0, None)), "1 undefined scores without a reason"),
        (
            lambda at: with_scores(at, _say("map is all zero")),
            "1 defined scores with the reason of an undefined one",
        ),
        (lambda at: with_scores(at, _say("map is all zero: scored as chance")), ""),
        (
            lambda at: with_scores(at, lambda t: t.filter(pc.not_equal(t["model"], "mlp"))),
            "",  # a method may refuse a network, which then has no scores
        ),
        (
            lambda at: with_scores(at, _later),
            "the suite explains the first 6",
        ),
        (lambda at: (at / "notes.md").write_text("x"), "notes.md is not part of a result"),
        (
            lambda at: (at / "suites").mkdir() or (at / "suites" / "a").write_text("x"),
            "suites/a is not part of a result",
        ),
        (lambda at: (at / "maps.png").write_bytes(b"\x89PNG"), "maps.png is not part of a result"),
        (_misspell_a_column, "scores.parquet cannot be read ('utf-8' codec can't decode byte 0xc9"),
        (lambda at: _change_picture(at, b"GIF89a"), "The picture in scores.parquet is not a PNG picture"),
        (lambda at: _change_picture(at, png((9000, 9))), "9000 × 9 pixels in mode L; expected a small one"),
        (lambda at: _change_picture(at, bytes(1 << 20) + b"x"), "has 1,048,577 bytes; expected at most 1,048,576"),
        (lambda at: (at / "method" / "notes.md").write_text("hf_" + "a" * 34), "contains what looks like a token"),
        (lambda at: (at / "method" / "mine.py").write_text("def gxi(:\n"), "is not valid Python"),
        (lambda at: shutil.rmtree(at / "method"), "there is no method/mine.py"),
    ],
)
def test_what_a_careful_forger_writes_is_seen_by_what_it_says(spoil, said, result):
    spoil(result)
    found = "\n".join(check(rewritten(result)))
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    "suite",
    [
        'name = "tiny"\ncells = [{ datasets = ["x"], models = ["disconnected:subprocess:getoutput"] }]',
        'name = "tiny"\ncells = [{ datasets = ["imported_by_a_check:data"], models = ["blind:torch:load"] }]',
        "x = " + "[" * 200_000,
        "a = 1\na = 2",
    ],
    ids=["disconnected", "blind", "deep", "invalid"],
)
def test_a_suite_that_came_along_is_not_read(suite, result, monkeypatch):
    """A result names its suite. What once was built from the suite in the result ran code of others."""
    (result / "imported_by_a_check.py").write_text("raise SystemExit('imported')\n")
    (result / "suite.toml").write_text(suite)
    monkeypatch.syspath_prepend(result)
    found = "\n".join(check(rewritten(result)))
    assert "imported_by_a_check.py is not part of a result" in found
    assert "suite.toml is not part of a result" in found
    (result / "imported_by_a_check.py").rename(result / "method" / "imported_by_a_check.py")
    (result / "suite.toml").rename(result / "method" / "suite.toml")
    monkeypatch.syspath_prepend(result / "method")
    assert check(rewritten(result)) == []
    # Nor is the method itself imported.
    entry = dataclasses.replace(read_manifest(result).method, entry="imported_by_a_check:gxi")
    assert check(rewritten(result, method=entry)) == []


@pytest.mark.parametrize("name", ["photographs", "mine", "subprocess", "saliency-bench-quick-quick", "mosaic"])
def test_only_suites_of_the_library_that_everybody_can_run_have_results(name, result):
    place = result.with_name(result.name.replace("tiny", name))
    suite = dataclasses.replace(read_manifest(result).suite, name=name)
    (fault,) = check(rewritten(result, suite=suite).rename(place))
    assert "A result is of a suite of the library" in fault or "uses images of a local folder" in fault


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda at: _change_manifest(at, lambda _: b"[" * 200_000), "cannot be read (RecursionError"),
        (lambda at: _change_manifest(at, lambda _: b" " * (2 << 20)), "expected at most"),
        (
            lambda at: _change_manifest(at, lambda it: it.replace(b"Gradient", b"\\ud800")),
            "surrogates not allowed",
        ),
        (lambda at: (at / "method" / "mine.py").write_text("-" * 200_000 + "1"), "is not valid Python"),
        (lambda at: (at / "method" / "mine.py").write_text("#" * (2 << 20)), "has more than 1,048,576 bytes"),
    ],
    ids=["depth", "length", "surrogate", "deep-code", "long-code"],
)
def test_a_bomb_is_refused(spoil, said, result):
    before = read_note(result, MANIFEST)
    spoil(result)
    if read_note(result, MANIFEST) == before:
        rewritten(result)
    assert said in "\n".join(check(result))


def test_a_table_of_too_many_rows_is_not_read(result, monkeypatch):
    rows = pq.read_metadata(result / "scores.parquet").num_rows
    monkeypatch.setattr(score_files, "MAX_ROWS", rows - 1)
    monkeypatch.setattr(pq, "read_table", lambda *_, **__: pytest.fail("it was read"))
    assert f"has {rows} rows; expected at most {rows - 1}" in "\n".join(check(result))


def test_a_result_lies_where_it_says(result, tmp_path):
    moved = tmp_path / "results" / "other" / result.name
    moved.parent.mkdir()
    result.rename(moved)
    (fault,) = check(moved)
    assert f"it is at other/{result.name}, but its manifest says gxi/{result.name}" in fault
    assert check(moved, in_repository=False) == []


def test_another_version_is_another_suite(result, verdict):
    manifest = read_manifest(result)
    place = result.with_name(f"tiny@{'0' * 32}")
    rewritten(result, suite=SuiteVersion("tiny", "0" * 32)).rename(place)
    (fault,) = check(place)
    assert f"tiny of this xaibench is version {manifest.suite.version}, not {'0' * 32}" in fault
    assert check(place, earlier=True) == [fault], "it was not verified"

    # A result that was verified at that version is kept for the history of its method.
    verdict(place, verdict="equal")
    assert check(place) == [fault]
    assert check(place, earlier=True) == []
    said = CliRunner().invoke(app, ["results", "check", str(place.parent.parent)])
    assert (said.exit_code, said.output.split()[0]) == (0, "earlier")
    assert fault in said.output

    verdict(place, verdict="differs")
    assert check(place, earlier=True) == [fault]
    verdict(place, verdict="equal")
    with_scores(place, lambda t: _value(t, 0, 0.99))
    assert check(place, earlier=True) == [fault], "the verdict is on other scores"
