"""Fits shared by several explainers: computed once, with the same maps as separate fits."""

import pytest
import torch

from xaibench.explainers.propagation import pattern_net as pattern_methods
from xaibench.runner import run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages.execute import read_maps
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import load_suite

SUITE = """
name = "fits"
title = "Fits"

[data]
parameters = { n_samples = 60 }

[training]
method = "none"
seeds = [0, 1]

[explaining]
samples = 3
scored = "all"
trainings = "all"

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["mlp"]

[metrics]
mass_accuracy = {}

[explainers]
"""
BOTH = "pattern_net = {}\nsaliency = {}\npattern_attribution = {}\n"
OTHER = 'linear = { use = "pattern_net", signal = "linear" }\n'


@pytest.fixture
def fits(monkeypatch):
    """Record all fits."""
    calls, fit = [], pattern_methods._Patterns.fit

    def counted(self, model, loader):
        calls.append(type(self).__name__)
        return fit(self, model, loader)

    counted.__qualname__ = fit.__qualname__
    monkeypatch.setattr(pattern_methods._Patterns, "fit", counted)
    return calls


def done(folder, explainers):
    """Return the explain jobs of a run by name and training, and its store."""
    folder.mkdir(exist_ok=True)
    (folder / "suite.toml").write_text(SUITE + explainers)
    result = run(folder / "suite.toml", folder / "run", engine="serial", device="cpu")
    assert result.failures == {}
    return jobs(folder), Store(folder / "run" / "store")


def jobs(folder):
    plan = make_plan(load_suite(folder / "suite.toml")[0])
    return {(job.explainer.name, job.network.seed): job for job in plan.jobs if job.stage == "explain"}


def test_patterns_are_fitted_once_for_both_methods_of_a_network_and_not_kept(tmp_path, fits):
    found, store = done(tmp_path / "both", BOTH + OTHER)
    assert sorted(fits) == ["PatternNet"] * 4, "for each of two networks, by each of two estimators"
    assert not store.keys("fit")
    fits.clear()
    alone, other = done(tmp_path / "alone", "pattern_attribution = {}\n")
    assert fits == ["PatternAttribution"] * 2
    for seed in (0, 1):
        job = found["pattern_attribution", seed]
        assert job.key == alone["pattern_attribution", seed].key, "whether a fit is shared decides no name"
        assert torch.equal(read_maps(store, job), read_maps(other, job))


def test_a_fit_that_is_not_there_or_is_damaged_is_made_again(tmp_path, fits):
    found, store = done(tmp_path, BOTH)
    expected = read_maps(store, found["pattern_attribution", 0])
    for left in (None, b"damaged"):
        job = found["pattern_attribution", 0]
        store.files.remove(store.name("explain", job.key))
        if left:
            store.files.write(store.name("fit", job.fit_key), left)
        fits.clear()
        done(tmp_path, BOTH)
        assert fits == ["PatternAttribution"]
        assert torch.equal(read_maps(store, job), expected)
        assert not store.keys("fit")


def test_who_can_share_a_fit(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE + BOTH + OTHER)
    found = jobs(tmp_path)
    first, second, other = (found[name, 0] for name in ("pattern_net", "pattern_attribution", "linear"))
    assert (first.fit_from, second.fit_from) == (None, first)
    assert (first.shares_fit, second.shares_fit, other.shares_fit) == (True, True, False)
    assert first.fit_key == second.fit_key
    assert len({first.fit_key, other.fit_key, found["pattern_net", 1].fit_key}) == 3
    assert found["saliency", 0].waits_for == ()
