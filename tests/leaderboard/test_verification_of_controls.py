"""Controls of the library that are fitted to the masks of the training split are verified without a sandbox."""

import dataclasses

import pytest

from xaibench.leaderboard import verification
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import read_manifest
from xaibench.leaderboard.score_files import read_scores
from xaibench.leaderboard.submission import submit
from xaibench.leaderboard.verification import compare_scores, rerun_method


@pytest.fixture(scope="module")
def prior(tiny, tmp_path_factory):
    place = tmp_path_factory.mktemp("prior")
    return submit("mean_mask", tiny, place / "results", work=place / "work", engine="serial")


def test_the_prior_is_run_again_outside_of_the_sandbox(prior, tmp_path):
    assert check(prior) == []
    rows = rerun_method(prior, read_manifest(prior), tmp_path, limits={}, engine="serial").scores
    assert len(rows) > 0
    assert compare_scores(read_scores(prior), rows).verdict == "bit-equal"


class SandboxedError(Exception):
    """The method would be run in a sandbox."""


@pytest.mark.parametrize("entry", ["saliency", "uniform", "pattern_net", "mine:prior", "xaibench:Prior", "prior "])
def test_every_other_method_is_run_in_the_sandbox(prior, entry, tmp_path, monkeypatch):
    def sandboxed(*_):
        raise SandboxedError

    monkeypatch.setattr(verification, "_sandboxed_explainer", sandboxed)
    manifest = read_manifest(prior)
    other = dataclasses.replace(manifest, method=dataclasses.replace(manifest.method, entry=entry))
    with pytest.raises(SandboxedError):
        rerun_method(prior, other, tmp_path, limits={}, engine="serial")


def test_parameters_cannot_name_another_explainer(prior, tmp_path, monkeypatch):
    class RunError(Exception):
        pass

    def run(file, *_, **__):
        raise RunError(file.read_text())

    monkeypatch.setattr(verification, "run", run)
    manifest = read_manifest(prior)
    method = dataclasses.replace(manifest.method, parameters={"use": "os:system"})
    with pytest.raises(RunError) as told:
        rerun_method(prior, dataclasses.replace(manifest, method=method), tmp_path, limits={}, engine="serial")
    assert 'use = "prior"' in str(told.value)
    assert "os:system" not in str(told.value)
