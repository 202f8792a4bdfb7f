"""Verdicts: what is supported, refuted or undecided, and how often wrongly."""

import dataclasses

import numpy as np
import pytest

from xaibench.auditing.findings import NetworkTest
from xaibench.auditing.plan import Candidates
from xaibench.auditing.questions import Question
from xaibench.auditing.sanity import SanityCheck
from xaibench.auditing.verdicts import judge

CONTROLS = ("noise", "edges")
GOOD_NETWORK = NetworkTest("labels", 1.0, 0.5, 0.001)


def question(key, truth, groups=None, **means):
    """Scores of 20 samples with a standard deviation of 0.1 around the given means; the controls are around 0."""
    rng = np.random.default_rng(sum(map(ord, key)))
    labels = dict.fromkeys(CONTROLS, 0.0) | means
    scores = {label: mean + rng.normal(0, 0.1, 20) for label, mean in labels.items()}
    return Question(key, truth, key, "?", scores, np.arange(20) if groups is None else np.asarray(groups))


def judged(questions, checks=(), network=GOOD_NETWORK, required=("intervention", "use")):
    candidates = Candidates({label: label for label in questions[0].scores if label not in CONTROLS}, controls=CONTROLS)
    found = judge(candidates, questions, checks, network, len(questions[0].groups), required)
    return {verdict.explainer: verdict for verdict in found}


@pytest.mark.parametrize(
    ("means", "outcome", "reason"),
    [
        ({"intervention": 0.5, "use": 0.5}, "supported", "Better than every control."),
        ({"intervention": 0.5, "use": 0.0}, "undecided", "On use, not significantly better"),
        # On average over the kind it is far ahead, but in one question it is not better than chance.
        ({"intervention": 0.5, "use": 0.9, "use again": 0.0}, "undecided", "better than chance at “use again”"),
        ({"intervention": -0.5, "use": -0.5}, "refuted", "On intervention, the control"),
        ({"intervention": -0.5, "use": 0.5}, "undecided", "The kinds of truth disagree."),
        ({"intervention": 0.5, "use": None}, "undecided", "No question about use could be asked."),
        ({"intervention": 0.5, "use": 0.5, "human": -0.9}, "supported", "Better than every control."),
    ],
)
def test_the_outcome_follows_from_the_scores_of_each_kind(means, outcome, reason):
    skipped = {key: Question(key, key, key, "?", skipped="no region decides") for key in means if means[key] is None}
    asked = [skipped.get(key) or question(key, key.split()[0], ig=mean) for key, mean in means.items()]
    found = judged(asked)["ig"]
    assert found.outcome == outcome
    assert found.needed is None or -0.5 not in means.values()
    assert any(reason in text for text in found.reasons)


def test_one_control_that_is_as_good_prevents_support():
    scores = question("a", "intervention", ig=0.5)
    scores = dataclasses.replace(scores, scores=scores.scores | {"edges": scores.scores["ig"]})
    assert judged([scores, question("b", "use", ig=0.5)])["ig"].outcome == "undecided"


def test_a_failed_sanity_check_refutes_the_best_scores():
    check = SanityCheck("weights", "w", "", "ignores the weights", 0.9, "above", {"ig": np.array([1.0, 0.96])})
    found = judged([question("a", "intervention", ig=0.5), question("b", "use", ig=0.5)], [check])["ig"]
    assert found.outcome == "refuted"
    assert found.reasons == ["It ignores the weights (0.98)."]


def test_a_map_that_changes_with_the_seed_is_not_stable_rather_than_refuted():
    seed = SanityCheck("seed", "s", "", "changes", 0.3, "below", {"ig": np.array([0.1, 0.0])}, "not stable")
    noise = SanityCheck("noise", "n", "", "changes", 0.1, "below", {"ig": np.array([0.1, 0.0])})
    questions = [question("a", "intervention", ig=-0.5), question("b", "use", ig=-0.5)]
    assert judged(questions, [seed, noise])["ig"].outcome == "not stable"
    assert judged(questions, [noise])["ig"].outcome == "refuted"


def test_nothing_is_supported_or_lost_to_controls_for_a_network_that_knows_nothing():
    network = NetworkTest("labels", 0.5, 0.5, 0.6)
    found = judged(
        [question("a", "intervention", ig=0.5, bad=-0.5), question("b", "use", ig=0.5, bad=-0.5)], network=network
    )
    assert {verdict.outcome for verdict in found.values()} == {"undecided"}
    assert all(np.isnan(verdict.p) for verdict in found.values())


def test_samples_of_one_image_count_once():
    same = [0] * 10 + [1] * 10
    alone = judged([question("a", "intervention", ig=0.5), question("b", "use", ig=0.5)])["ig"]
    found = judged([question("a", "intervention", same, ig=0.5), question("b", "use", same, ig=0.5)])["ig"]
    assert {comparison.groups for comparison in found.comparisons} == {2}
    assert found.p > 1000 * alone.p


def test_images_needed_follow_from_effect_and_spread():
    # Differences of 0.1 with a standard deviation of 1.0: (1.645 + 0.842)² (1.0 / 0.1)² is 618 images.
    spread = np.array([1.0, -1.0] * 10) * np.sqrt(19 / 20)
    zero = np.zeros(20)
    use = Question("b", "use", "b", "?", {"ig": 0.1 + spread, "noise": zero, "edges": zero}, np.arange(20))
    found = judged([question("a", "intervention", ig=0.5), use])["ig"]
    assert found.outcome == "undecided"
    assert found.needed == pytest.approx(618, abs=2)


def test_images_are_needed_where_only_the_correction_for_several_explainers_prevents_support():
    spread = np.array([1.0, -1.0] * 10) * np.sqrt(19 / 20)
    zero = np.zeros(20)
    use = {"ig": 0.42 + spread, "cam": spread, "noise": zero, "edges": zero}
    asked = [question("a", "intervention", ig=0.5, cam=0.5), Question("b", "use", "b", "?", use, np.arange(20))]
    found = judged(asked)["ig"]
    assert 0.05 / 2 < max(comparison.p for comparison in found.comparisons) <= 0.05 < found.p
    assert found.outcome == "undecided"
    assert "use" in found.reasons[0]
    assert found.needed > 20


def test_no_number_of_images_helps_an_explainer_that_is_behind():
    found = judged([question("a", "intervention", ig=0.5), question("b", "use", ig=0.5, edges=0.5)])["ig"]
    behind = judged([question("a", "intervention", ig=0.5), question("b", "use", ig=0.45, edges=0.5)])["ig"]
    assert "undecided" in (found.outcome, behind.outcome)
    assert behind.needed is None


@pytest.mark.parametrize("correlated", [False, True])
def test_false_support_is_at_most_five_percent(correlated):
    # Six explainers like the controls, in 60 audits; on intervention they are truly better, on use they are not.
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, correlated])
        labels = [f"e{i}" for i in range(6)] + list(CONTROLS)
        shared = rng.normal(0, 0.2, 16)[:, None] * correlated
        use = shared + rng.normal(0, 0.1, (16, len(labels))) + 0.5  # all better than chance
        change = rng.normal(0, 0.1, (16, len(labels))) + np.array([1.0] * 6 + [0.0] * 2)
        groups = np.arange(16)
        questions = [
            Question("a", "intervention", "a", "?", dict(zip(labels, change.T, strict=True)), groups),
            Question("b", "use", "b", "?", dict(zip(labels, use.T, strict=True)), groups),
        ]
        wrong += any(verdict.outcome == "supported" for verdict in judged(questions).values())
    assert wrong / 60 <= 0.05
