"""A tiny suite, a method that is not part of the library, and its result."""

import functools
import shutil

import pytest
from generators.hub import hub  # noqa: F401
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.leaderboard import suites
from xaibench.leaderboard.run_splitting import split_run
from xaibench.leaderboard.suites import official_suite
from xaibench.runner.suite_run import run

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
    known = suites.load_suite
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suites, "SUITES", [*suites.SUITES, "tiny"])
        patch.setattr(
            suites,
            "load_suite",
            lambda name, quick: (None, SHIPPED[name]) if name in SHIPPED else known(name, quick=quick),
        )
        yield


@pytest.fixture
def ships(tmp_path, monkeypatch):
    """Give the tiny suite another content for one test; returns the file."""

    def ship(text):
        official_suite.cache_clear()
        monkeypatch.setitem(SHIPPED, "tiny", text)
        file = tmp_path / "tiny.toml"
        file.write_text(text)
        return file

    yield ship
    monkeypatch.undo()
    official_suite.cache_clear()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    file = tmp_path_factory.mktemp("suite") / "tiny.toml"
    file.write_text(SUITE)
    return file


@pytest.fixture(scope="session")
def finished_once(tiny, tmp_path_factory):
    """The run of the tiny suite with a method of its own; the module stays importable."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(METHOD)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        explainers = ["mine:gxi", "saliency"]
        yield run(tiny, folder / "run", engine="serial", explainers=explainers).folder


@pytest.fixture
def finished(finished_once, tmp_path):
    """A copy of the run that a test may change."""
    return shutil.copytree(finished_once, tmp_path / "run", ignore=shutil.ignore_patterns("store"))


@pytest.fixture(scope="session")
def repository_once(finished_once, tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository") / "results"
    split_run(finished_once, repository, methods=["mine:gxi", "saliency"])
    return repository


@pytest.fixture
def repository(repository_once, tmp_path):
    """A results repository with two results that a test may damage."""
    return shutil.copytree(repository_once, tmp_path / "results")


@pytest.fixture
def result(repository):
    """The result of the method that is not part of the library."""
    (folder,) = repository.glob("mine-gxi/*")
    return folder


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Run a command in an empty folder; return output and exit code."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(CliRunner().invoke, app)
