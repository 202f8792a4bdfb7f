"""The committed verdicts are of registered metrics, at their current revision; a new metric may have none yet."""

import json

from xaibench.core.truth_kinds import NO_TRUTH
from xaibench.metrics import METRICS
from xaibench.scores.results import VERDICTS, known_verdicts

TRIED = json.loads(VERDICTS.read_text(encoding="utf-8"))
AGAIN = "run `python docs/generate/metric_trials.py`"


def test_verdicts_are_of_registered_metrics():
    assert set(TRIED["metrics"]) <= set(METRICS), AGAIN


def test_each_was_tried_as_it_is_with_each_truth_that_it_can_be_of():
    for name, found in TRIED["metrics"].items():
        info = METRICS.resolve(name).info
        assert found["revision"] == info.revision, f"{name}: {AGAIN}"
        own = {None: {"data", "use", "human"}, NO_TRUTH: set()}.get(info.own_truth, {info.own_truth})
        assert set(found["truths"]) == own, name
        ways = {"noisy", "unmoved"} if info.kind == "explainer" else {"moved", "noisy"}
        for verdict in known_verdicts()[name].values():
            assert set(verdict.right) == set(verdict.wrong) == ways, name
            passed = all(share >= 0.95 for share in verdict.right.values())
            assert verdict.verdict == "passes" if passed else verdict.verdict in ("coarse", "fails"), name


def test_enough_was_drawn():
    assert TRIED["draws"] >= 200
    assert TRIED["samples"] >= 20


def test_a_metric_that_must_fail_did():
    """Which map is right is not what these ask: one that takes no notice of the image is the most stable."""
    for name in ("data_consistency", "sensitivity_max"):
        assert known_verdicts()[name]["intervention"].verdict == "fails"
    assert known_verdicts()["mass_outside"]["use"].verdict == "passes"
