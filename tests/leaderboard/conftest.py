"""A tiny suite, a method that is not part of the library, and its result."""

import functools
import shutil

import pytest
from generators.hub import hub  # noqa: F401
from leaderboard.keepers import give_verdict, make_key, trust
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.leaderboard import submission, suite_text
from xaibench.leaderboard.submission import SubmissionInfo, submit
from xaibench.leaderboard.verdicts import KEEPERS
from xaibench.runner.run import run

SUITE = """
name = "tiny"
title = "Tiny"

[data]
seeds = [0]
parameters = { n_samples = 200, alpha = 0.9 }

[training]
seeds = [0]
epochs = 20
batch_size = 64
lr = 0.02

[explaining]
samples = 6

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["llr", "mlp"]

[explainers]
saliency = {}
uniform = {}

[metrics]
topk_precision = {}
"""

METHOD = '''
"""Methods of somebody."""


def gxi(model, images, targets, power=1.0):
    """Gradient times input. Written for a test."""
    images = images.clone().requires_grad_()
    model(images).gather(1, targets[:, None]).sum().backward()
    return (images.grad * images).sum(1).detach().abs() ** power
'''


#: Suites that come with the library as far as these tests go: name -> TOML.
SHIPPED = {"tiny": SUITE}


@pytest.fixture(scope="session", autouse=True)
def shipped():
    """The tiny suite comes with the library. Results are of such suites only."""
    known = suite_text._shipped_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite_text, "_shipped_text", lambda name: SHIPPED.get(name) or known(name))
        yield


@pytest.fixture
def ships(tmp_path, monkeypatch):
    """Give the tiny suite another content for one test; returns the file."""

    def ship(text):
        for cached in CACHED:
            cached.cache_clear()
        monkeypatch.setitem(SHIPPED, "tiny", text)
        file = tmp_path / "tiny.toml"
        file.write_text(text)
        return file

    yield ship
    monkeypatch.undo()
    for cached in CACHED:
        cached.cache_clear()


CACHED = (suite_text.official_suite, suite_text.suite_version, suite_text.official_plan)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    file = tmp_path_factory.mktemp("suite") / "tiny.toml"
    file.write_text(SUITE)
    return file


@pytest.fixture(scope="session")
def submitted(tiny, tmp_path_factory):
    """The result of the method, in a results repository."""
    place = tmp_path_factory.mktemp("submitted")
    (place / "mine.py").write_text(METHOD)
    info = SubmissionInfo(label="Gradient × input", authors=("Ann Other",), license="mit", citation="Other: It. 2026.")
    where = {"info": info, "work": place / "work", "engine": "serial"}
    return submit(f"{place / 'mine.py'}:gxi", tiny, place / "results", **where)


@pytest.fixture
def result(submitted, tmp_path):
    """A copy of the result that a test may damage."""
    repository = submitted.parent.parent
    shutil.copytree(repository, tmp_path / "results")
    return tmp_path / "results" / submitted.relative_to(repository)


@pytest.fixture
def verdict(tmp_path):
    """Give a verdict on a result, signed by the keeper of its repository."""
    key = make_key(tmp_path / "keys")

    def give(folder, **changes):
        if not (folder.parent.parent / KEEPERS).exists():
            trust(folder.parent.parent, key)
        return give_verdict(folder, key, **changes)

    return give


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Run a command in an empty folder; return output and exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "run", functools.partial(run, engine="serial"))
    return functools.partial(CliRunner().invoke, app)
