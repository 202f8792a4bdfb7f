"""Damaged results of strangers: each is refused with a reason, or shows nothing that an honest one could not."""

import contextlib
import io
import json
import random
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_damage import damage as damage_file
from file_damage import places
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leaderboard.forging import ATTACKS, OF_ONE_RESULT, png, with_scores, with_text
from markupsafe import escape
from PIL import Image
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.repository import RESULT, ResultError, read_manifest
from xaibench.leaderboard.scores import read_scores
from xaibench.leaderboard.site.files import SiteError
from xaibench.leaderboard.site.write import write_site

KEY = ["dataset", "model", "data_seed", "seed", "sample", "metric"]
FIXED = ["subset", "variant", "correct", "scored", "higher_is_better", "truth"]

#: Values in JSON as bytes, which need not be JSON.
RAW = [
    b"null", b"true", b"0", b"-1", b"-0.0", b"1e999", b"-1e999", b"1e-400", b"NaN", b"Infinity", b"-Infinity",
    b"9" * 400, b"9" * 5000, b"1e15", b'""', b'"x"', b"[]", b"{}", b"[[]]", b'{"a": 1, "a": 2}', b'["a", 1]',
    b"[" * 900 + b"]" * 900, b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b'"' + b"x" * (1 << 21) + b'"',
    b'"\\ud800"', b'"\\u0000"', b'"\\u202e"', b'"\xff"', b'"a\\nb"', b'"../x"', b'"con"', b'"<script>"', b'"=1+1"',
    b"",
]  # fmt: skip
ODD_NAMES = [
    "a\nb", "\x1b[31mred", "\u202eabc", "-x", "a b", "con", "nul.", "a..b", "ä", "x" * 200, "=1", "<b>", "\udcff",
    ".x",
]  # fmt: skip


def bomb():
    """A small PNG file that says it has 2^31 - 1 pixels per side."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1 << 20)))
        + chunk(b"IEND", b"")
    )


def pictures():
    for kind in ("GIF", "JPEG", "TIFF", "BMP", "WEBP", "PNG"):
        content = io.BytesIO()
        Image.new("RGB", (16, 16)).save(content, kind)
        yield content.getvalue()
    yield from (
        b"",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"<svg/>",
        bomb(),
        png((9000, 1)),
        png((1, 1)),
    )
    yield bytes((1 << 20) + 1)


PICTURES = list(pictures())


def damage_bytes(draw, *files):
    damage_file(random.Random(draw(st.integers(0, 2**32))), files)


def damage_json(draw, file):
    """Replace a value, repeat a name, remove an entry or add one."""
    words = json.loads(file.read_text())
    path = draw(st.sampled_from(list(places(words))))
    owner = words
    for step in path[:-1]:
        owner = owner[step]
    kind, raw = draw(st.sampled_from(["value", "value", "repeat", "remove", "add"])), draw(st.sampled_from(RAW))
    if kind == "remove":
        del owner[path[-1]]
    elif kind == "value" or isinstance(owner, list):
        owner[path[-1]] = "MARK"
    else:
        owner["MARK NAME"] = "MARK"
    name = str(path[-1]) if kind == "repeat" else draw(st.sampled_from(["", "x", "label ", "__class__"]))
    content = json.dumps(words).encode()
    file.write_bytes(content.replace(b'"MARK NAME"', json.dumps(name).encode()).replace(b'"MARK"', raw))


NUMBERS = [
    0, -1, 1, 7, 2**31, 2**63 - 1, -(2**63), 0.5, -0.0, 1.5, 1e308, float("inf"), float("-inf"), float("nan"), None,
]  # fmt: skip
TEXTS = ["", "x", "mlp", "llr", "saliency", "use", "map is all zero", "\x1b[31m", "a\nb", "\u202e", "x" * 2000, None]
TYPES = [
    pa.string(), pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.uint64(), pa.bool_(), pa.binary(), pa.null(),
]  # fmt: skip


def damage_scores(draw, folder):
    kind = draw(st.sampled_from(["cell", "column", "type", "rows", "swap"]))

    def change(table):
        name = draw(st.sampled_from(table.column_names))
        at, column = table.column_names.index(name), table[name].combine_chunks()
        if kind in ("cell", "column"):
            values = column.to_pylist()
            value = draw(st.sampled_from(TEXTS if pa.types.is_string(column.type) else NUMBERS))
            first = draw(st.integers(0, len(values) - 1))
            values[first : first + 1 if kind == "cell" else None] = [value] * (
                1 if kind == "cell" else len(values) - first
            )
            return table.set_column(at, name, pa.array(values, column.type, safe=False))
        if kind == "type":
            return table.set_column(at, name, column.cast(draw(st.sampled_from(TYPES)), safe=False))
        rows = np.arange(len(table))
        odd = draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
        return table.take(np.delete(rows, odd) if kind == "rows" else rows[::-1])

    # Some changes cannot be written: such a value in such a column.
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError, OverflowError):
        with_scores(folder, change)


def damage_names(draw, folder):
    name = draw(st.sampled_from(ODD_NAMES))
    if draw(st.booleans()):
        return folder.rename(folder.with_name(draw(st.sampled_from([name, f"{name}@{'0' * 32}"]))))
    return folder.parent.rename(folder.parent.with_name(name)) / folder.name


def damage(draw, folder):
    """Damage a result in one to two ways; return its folder, which may have another name then."""
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["json", "json", "scores", "attack", "attack", "bytes", "picture", "names"]))
        regular = all(
            (folder / name).is_file() and not (folder / name).is_symlink() for name in (RESULT, "scores.parquet")
        )
        # Some results are damaged beyond another damage.
        errors = (ValueError, TypeError, LookupError, AttributeError, AssertionError, OSError, RecursionError)
        with contextlib.suppress(pa.ArrowException, *errors):
            if kind == "names":
                folder = damage_names(draw, folder)
            elif not regular:
                continue
            elif kind == "json":
                damage_json(draw, folder / RESULT)
            elif kind == "scores":
                damage_scores(draw, folder)
            elif kind == "picture":
                with_scores(folder, picture=draw(st.sampled_from(PICTURES)))
            elif kind == "bytes":
                damage_bytes(draw, folder / RESULT, folder / "scores.parquet")
            else:
                ATTACKS[draw(st.sampled_from([*OF_ONE_RESULT, "linked scores", "linked description"]))](folder)
    return folder


def rows_of(folder):
    return read_scores(folder, 10**6).astype(
        dict.fromkeys(("dataset", "model", "metric", "subset", "variant", "truth"), str)
    )


def assert_shows_nothing_else(folder, honest):
    """An accepted result has the rows of the honest one; only its scores may be others, in their range."""
    mine, theirs = rows_of(folder), rows_of(honest)
    assert set(mine["explainer"]) == {read_manifest(folder).method}
    theirs = theirs[theirs["model"].isin(mine["model"].unique())]
    both = mine.merge(theirs, on=KEY, how="outer", suffixes=("", "_honest"), validate="one_to_one")
    assert len(both) == len(mine) == len(theirs) > 0
    for name in FIXED:
        assert (both[name] == both[f"{name}_honest"]).all()
    assert (both["value"].between(0, 1) | (both["value"].isna() & both["reason"].ne(""))).all()


def one_line(text):
    return text and text.isprintable()


@pytest.fixture(scope="module")
def work(repository_once, tmp_path_factory):
    """A repository with an honest result, and room for the damaged ones."""
    folder = tmp_path_factory.mktemp("fuzzed") / "results"
    folder.mkdir()
    shutil.copytree(repository_once / "suites", folder / "suites")
    (honest,) = repository_once.glob("mine-gxi/*")
    shutil.copytree(honest, folder / "mine-gxi" / honest.name)
    return folder


@contextlib.contextmanager
def copies(work, count):
    """The repository with copies of the honest result under other names."""
    copy = Path(shutil.copytree(work, work.parent / "copy"))
    (honest,) = copy.glob("mine-gxi/*")
    try:
        folders = [Path(shutil.copytree(honest, copy / f"copy{number}" / honest.name)) for number in range(count)]
        for folder in folders:
            name = folder.parent.name
            column = pa.array([name] * pq.read_metadata(folder / "scores.parquet").num_rows)
            with_scores(folder, lambda t, c=column: t.set_column(t.column_names.index("explainer"), "explainer", c))
            with_text(folder, method=name)
        yield copy, honest, folders
    finally:
        shutil.rmtree(copy)
        (copy / "elsewhere").unlink(missing_ok=True)


eager = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)


@given(data=st.data())
@eager
def test_a_damaged_result_is_refused_or_shows_nothing_else(work, data):
    with copies(work, 1) as (_, honest, folders):
        folder = damage(data.draw, folders[0])
        problems = check(folder)
        assert all(map(one_line, problems))
        if not problems:
            assert_shows_nothing_else(folder, honest)


def numbers_of(page, method):
    """Own numbers of a method on the site: those that no other method can change."""
    (file,) = page.parent.glob(f"downloads/*/methods/{method}.csv")
    return pd.read_csv(file).drop(
        columns=["rank", "sample_rank", "n_ranked", "better_than", "worse_than", "compared_with"]
    )


@pytest.fixture(scope="module")
def alone(work):
    return numbers_of(write_site(work, work.parent / "alone").page, "mine-gxi")


@given(data=st.data())
@settings(eager, max_examples=settings.default.max_examples // 4)  # each builds a site of several damaged results
def test_damaged_results_take_neither_the_honest_one_nor_the_site_down(work, alone, data):
    with copies(work, 6) as (repository, honest, folders):
        folders = [damage(data.draw, folder) for folder in folders]
        printed = CliRunner().invoke(app, ["results", "check", str(repository)])
        assert printed.exit_code in (0, 1), printed.output
        assert all(line.isprintable() for line in printed.output.splitlines())
        assert f"ok       mine-gxi/{honest.name}" in printed.output
        built = write_site(repository, work.parent / "site")
        pd.testing.assert_frame_equal(numbers_of(built.page, "mine-gxi"), alone)
        assert all(one_line(one.name) and one_line(one.reason) for one in built.left_out)
        refused = [folder for folder in folders if check(folder)]
        there = [folder for folder in refused if any((folder / name).is_file() for name in (RESULT, "scores.parquet"))]
        assert len(there) <= len(built.left_out) <= len(refused)
        page = (built.page.parent / "downloads.html").read_text()
        assert all(f"<li>{escape(one.name)}: {escape(one.reason)}</li>" in page for one in built.left_out)


@given(data=st.data())
@eager
def test_damaged_facts_are_refused_with_a_reason(work, data):
    with copies(work, 0) as (repository, honest, _):
        folder = repository / "suites" / honest.name
        kind = data.draw(st.sampled_from(["json", "json", "bytes", "picture"]))
        if kind == "json":
            damage_json(data.draw, folder / "facts.json")
        elif kind == "bytes":
            damage_bytes(data.draw, folder / "facts.json", folder / "samples.png")
        else:
            (folder / "samples.png").write_bytes(data.draw(st.sampled_from(PICTURES)))
        problems = check(honest)
        assert all(map(one_line, problems))
        try:
            write_site(repository, work.parent / "site")
        except (SiteError, ResultError):
            assert problems
        else:
            assert not problems
