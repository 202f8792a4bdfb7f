"""Check and site get crafted results: none is fatal, none is executed, and none breaks a page."""

import dataclasses
import hashlib
import io
import json
import random
import shutil
import zipfile

import pandas as pd
import pytest
from leaderboard.forging import rewritten, with_scores
from leaderboard.site.repositories import METHODS, change_scores, write_repository
from PIL import Image

import xaibench as xb
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import read_manifest
from xaibench.leaderboard.score_files import MANIFEST, PICTURE, read_note
from xaibench.leaderboard.site.read import read_results
from xaibench.leaderboard.suite_facts import FACTS_FILE, read_facts

#: Shares of the results of which the manifest, the scores and another file are changed.
MANIFESTS, SCORES = 0.6, 0.25
SEED = 20261125

#: Values that parsers, file systems, terminals and pages stumble over.
ODD = [
    *(
        None,
        True,
        -1,
        0,
        2**70,
        1e308,
        -1e-320,
        [],
        {},
        [[[]]],
        "",
        " ",
        "\x00",
        "\ud800",
        "\x1b]0;x\x07",
        "::error::x",
    ),
    *("../../x", "/etc/passwd", "a" * 5000, "é" * 300, "=cmd()", "<script>ran()</script>", "{{ 7*7 }}", "{% raw %}"),
    *("os:system", "subprocess:getoutput", "blind:torch:load", "__import__('os')", "file:///etc/passwd", "NaN", "\n\n"),
    *("2026-13-45", "xai-tris-8x8", "verdicts", "suites", "..", ".", "con", "http://[::1", "javascript:alert(1)"),
]

#: Tables of a suite's facts.
TABLES = {
    "accuracy": pd.DataFrame([{"subset": "lin", "variant": "white", "model": "mlp", "trainings": 2, "mean": 90.0}]),
    "trainings": pd.DataFrame(
        [{"subset": "lin", "variant": "white", "model": "mlp", "data_seed": 0, "seed": 1, "test_accuracy": 90.0}]
    ),
    "samples": pd.DataFrame([{"dataset": "lin-white", "data_seed": 0, "sample": i, "group": i // 2} for i in range(4)]),
}

TRAP = "import pathlib\npathlib.Path(__file__).with_name('EXECUTED').touch()\n"


def paths_of(value, place=()):
    """Every place in a JSON value."""
    yield place
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths_of(child, (*place, key))


def mutate(content, rng):
    """Replace, remove, add or nest one to three values."""
    for _ in range(rng.randint(1, 3)):
        *outer, last = rng.choice([path for path in paths_of(content) if path])
        parent = content
        for key in outer:
            parent = parent[key]
        how = rng.randrange(4)
        if how == 0 and isinstance(parent, dict):
            del parent[last]
        elif how == 1 and isinstance(parent, dict):
            parent[str(rng.choice(ODD))] = rng.choice(ODD)
        elif how == 2:
            parent[last] = [parent[last]]
        else:
            parent[last] = rng.choice(ODD)
    return content


def spoil_bytes(content, rng):
    """Cut, flip, repeat or replace bytes."""
    how = rng.randrange(5)
    place = rng.randrange(max(1, len(content)))
    if how == 0:
        return content[:place]
    if how == 1:
        return content[:place] + bytes(rng.randrange(256) for _ in range(8)) + content[place + 8 :]
    if how == 2:
        return content + content
    if how == 3:
        return rng.choice(
            [b"", b"PAR1", b"PAR1PAR1", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", b"[" * 100_000, b"\xff" * 99]
        )
    return archive(rng)


def archive(rng):
    """A zip with a path that leads out, or a picture that claims to be huge."""
    stream = io.BytesIO()
    if rng.random() < 0.5:
        with zipfile.ZipFile(stream, "w") as file:
            file.writestr("../../EXECUTED", "x")
    else:
        Image.new("L", (6000, 6000)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def example(submitted):
    """A real result with its repository, and a trap as its source."""
    return submitted


def craft(place, result, rng):
    """Damage one result in one way, which depends on its place in [0, 1); the checksum of its code fits in half of the
    cases."""
    (result / "method" / "mine.py").write_text(TRAP + (result / "method" / "mine.py").read_text())
    fits = rng.random() < 0.5
    if fits:
        rewritten(result)
    if place < MANIFESTS:
        with_scores(result, notes={MANIFEST: json.dumps(mutate(json.loads(read_note(result, MANIFEST)), rng))})
        return
    if place < MANIFESTS + SCORES:
        file = result / "scores.parquet"
        file.write_bytes(spoil_bytes(file.read_bytes(), rng))
    else:
        name = rng.choice(["picture", "method/mine.py", "method/x.zip", "method/y.pkl", "extra.txt", "suite.toml"])
        file = result / name
        content = read_note(result, PICTURE) if name == "picture" else file.read_bytes() if file.exists() else b""
        spoiled = spoil_bytes(content or archive(rng), rng)
        if name == "picture":
            with_scores(result, notes={PICTURE: spoiled})
        else:
            file.write_bytes(spoiled)
            if fits:
                rewritten(result)


def assert_pages_run_nothing(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script>ran()" not in text
        assert 'href="javascript:' not in text


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_crafted_results_are_refused_or_harmless(example, tmp_path, count):
    base = tmp_path / "results"
    write_repository(base, methods=METHODS[:3])  # what the site shows in any case
    shutil.copytree(example.parent.parent / "suites", base / "suites", dirs_exist_ok=True)
    rng, accepted = random.Random(SEED), 0
    for number in range(count):
        result = base / f"crafted-{number}" / example.name
        shutil.copytree(example, result)
        name = f"crafted-{number}"
        change_scores(result, lambda rows, name=name: rows.assign(explainer=name))
        rewritten(result, method=dataclasses.replace(read_manifest(result).method, name=name))
        assert number or check(result) == []
        craft(number / count, result, rng)
        found = check(result)
        accepted += not found
        assert all(isinstance(each, str) and each for each in found)
    assert accepted < 0.3 * count, "of those, every change is in a text or in a number that may be so"
    _, left_out = read_results(base)
    assert len(left_out) > 0.3 * count
    built = xb.leaderboard.write_site(base, tmp_path / "site")
    assert (tmp_path / "site" / "index.html").is_file()
    assert {one.name.partition("/")[0] for one in built.left_out} >= {one.name.partition("/")[0] for one in left_out}
    assert list(tmp_path.rglob("EXECUTED")) == []
    assert_pages_run_nothing(tmp_path / "site")


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_crafted_facts_take_only_their_own_suite_from_the_site(tmp_path, count):
    """The first result of a suite brings the facts about it, which are a stranger's until a keeper runs the method."""
    base, rng = tmp_path / "results", random.Random(SEED)
    write_repository(base, methods=METHODS[:3])
    for number in range(count):
        write_repository(base, methods=METHODS[:2], suite=f"crafted-{number}", samples=4)
        (folder,) = (base / "suites").glob(f"crafted-{number}@*")
        facts = dataclasses.replace(read_facts(folder), images={"a of seed 0": "00"}, **TABLES)
        content = json.loads(facts.to_json())
        text = json.dumps(mutate(content, rng)).encode() if number % 4 else spoil_bytes(facts.to_json(), rng)
        (folder / FACTS_FILE).write_bytes(text)
    built = xb.leaderboard.write_site(base, tmp_path / "site")
    left_out = {one.name.split("/")[1].partition("@")[0] for one in built.left_out}
    assert "tiny" not in left_out
    assert 0.3 * count < len(left_out) < count
    assert built.suites == 1 + count - len(left_out)
    assert_pages_run_nothing(tmp_path / "site")


def test_the_crafting_is_the_same_every_time(example):
    def craft_once():
        rng = random.Random(SEED)
        content = json.loads(read_note(example, MANIFEST))
        texts = [json.dumps(mutate(json.loads(json.dumps(content)), rng)) for _ in range(50)]
        return hashlib.sha256("".join(texts).encode()).hexdigest()

    assert craft_once() == craft_once()
