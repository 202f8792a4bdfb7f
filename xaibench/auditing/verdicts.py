"""Verdicts about explainers: supported, refuted, undecided, or not stable at the budget.

An explainer is *supported* if it scores significantly better than every control in each required kind of truth and
significantly better than chance in each question of these kinds, the network passed its test, and no sanity check
failed. The p-value of an explainer is the largest of these tests: an intersection-union test (Berger: Multiparameter
Hypothesis Testing and Acceptance Sampling, Technometrics 1982), which needs no correction for their number. The
p-values of the explainers are corrected by Holm's method. So the probability that an audit supports any explainer
wrongly is at most 5 %.

It is *refuted* if it fails a sanity check, or if a control scores significantly better in every required kind of truth
(Holm's method over all explainers, kinds and controls). If the kinds disagree, it is *undecided*.

It is *not stable* if another seed gives another map, or its map does not add up as it promises: with more passes, the
result could be any of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from xaibench.auditing.findings import MOST_IMAGES, POWER, NetworkTest
from xaibench.auditing.plan import Candidates
from xaibench.auditing.questions import Question
from xaibench.auditing.sanity import SanityCheck
from xaibench.core.truth_kinds import Truth
from xaibench.scores import holm, one_sided_test
from xaibench.scores.rank_tests import ALPHA

Outcome: TypeAlias = Literal["supported", "refuted", "undecided", "not stable"]
#: Kinds of truth that a supported explainer must be right about.
REQUIRED: tuple[Truth, ...] = ("intervention", "use")
#: What a comparison with random maps is called.
CHANCE = "chance"


@dataclass(frozen=True)
class Comparison:
    """An explainer against one control in all questions of a kind of truth, or against chance in one question.

    Attributes:
        about: The kind of truth, or the key of the question.
        control: The control; ``"chance"`` for the score of a random map.
        difference: Mean score of the explainer minus that of the control, over the same samples.
        low: Lower end of the 95 % confidence interval.
        high: Upper end.
        p: One-sided p-value of "not better than the control".
        p_worse: One-sided p-value of "not worse than the control".
        groups: Number of independent groups of samples.
    """

    about: str
    control: str
    difference: float
    low: float
    high: float
    p: float
    p_worse: float
    groups: int


@dataclass(frozen=True)
class Verdict:
    """The verdict on one explainer.

    Attributes:
        explainer: Its label.
        outcome: ``"supported"``, ``"refuted"``, ``"undecided"`` or ``"not stable"`` (at this budget).
        reasons: Why, a sentence each.
        p: P-value of the support, corrected for the number of explainers; nan if it was not tested.
        needed: Number of images that would probably decide, if the differences are as large as measured; None if the
            outcome is not ``"undecided"`` or more images would not help.
        comparisons: All comparisons with controls.
        passes: Passes per image; None if unknown.
    """

    explainer: str
    outcome: Outcome
    reasons: Sequence[str]
    p: float
    needed: int | None
    comparisons: Sequence[Comparison]
    passes: int | None = None


def judge(
    candidates: Candidates,
    questions: Sequence[Question],
    checks: Sequence[SanityCheck],
    network: NetworkTest,
    images: int,
    required: Sequence[Truth] = REQUIRED,
) -> list[Verdict]:
    """Judge all explainers.

    Args:
        candidates: Explainers and controls.
        questions: The questions, with scores of all of them.
        checks: The sanity checks.
        network: The test of the network.
        images: Number of images of the audit.
        required: The kinds of truth that support rests on.

    Returns:
        A verdict for each explainer.
    """
    explainers = list(candidates.explainers)
    asked = [question for question in questions if not question.skipped and question.truth in required]
    missing = [kind for kind in required if not any(q.truth == kind for q in asked)]
    compared = {one: _compare_all(one, candidates.controls, asked) for one in explainers}
    untested = bool(missing) or not network.passed
    p = [np.nan if untested else max(c.p for c in compared[one]) for one in explainers]
    corrected = dict(zip(explainers, holm(p).tolist(), strict=True))
    flat = [(one, c) for one in explainers for c in compared[one] if c.control != CHANCE]
    worse: dict[str, list[Comparison]] = {one: [] for one in explainers}
    for (one, comparison), value in zip(flat, holm([c.p_worse for _, c in flat]), strict=True):
        if value <= ALPHA and network.passed:
            worse[one].append(comparison)
    untestable = [] if network.passed else ["The network was not shown to be better than chance."]
    untestable += [f"No question about {kind} could be asked." for kind in missing]
    titles = {question.key: question.title for question in questions}
    verdicts = []
    for one in explainers:
        failed = [
            (check.outcome, f"It {check.failure} ({check.mean(one):.2f}).") for check in checks if check.has_failed(one)
        ]
        outcome, reasons = _decide(compared[one], worse[one], corrected[one], failed, untestable)
        needed = None
        if not reasons:
            undecided = [c for c in compared[one] if c.p * len(explainers) > ALPHA]
            subjects = dict.fromkeys(c.about for c in undecided)
            reasons = [_describe_closest([c for c in undecided if c.about == about], titles) for about in subjects]
            needed = _images_needed(undecided, len(explainers), images)
        if outcome != "refuted":
            reasons = [*reasons, *(f"{c.title}: {c.reasons[one]}." for c in checks if one in c.reasons and c.limit)]
        verdicts.append(
            Verdict(one, outcome, reasons, corrected[one], needed, compared[one], candidates.passes.get(one))
        )
    return verdicts


def _decide(
    compared: Sequence[Comparison],
    worse: Sequence[Comparison],
    p: float,
    failed: Sequence[tuple[str, str]],
    untestable: Sequence[str],
) -> tuple[Outcome, list[str]]:
    """Return the outcome with its reasons; no reasons if more images would probably decide."""
    lost = [f"On {c.about}, the control {c.control} is better ({-c.difference:+.2f})." for c in worse]
    kinds = {c.about for c in compared if c.control != CHANCE}
    why = [text for _, text in failed]
    # A map that changes with the seed also changes with noise, and may lose to controls: this means nothing yet.
    if unstable := [text for found, text in failed if found == "not stable"]:
        return "not stable", [*unstable, "More passes may help."]
    if failed or (lost and {c.about for c in worse} == kinds):
        return "refuted", [*why, *lost]
    if untestable:
        return "undecided", list(untestable)
    if p <= ALPHA:
        return "supported", ["Better than every control."]
    return "undecided", [*lost, "The kinds of truth disagree."] if lost else []


def _describe_closest(comparisons: Sequence[Comparison], titles: Mapping[str, str]) -> str:
    closest = min(comparisons, key=lambda c: c.difference)
    interval = f"{closest.difference:+.2f}, 95 % interval {closest.low:+.2f} to {closest.high:+.2f}"
    if closest.control == CHANCE:
        return f"Not significantly better than chance at “{titles[closest.about]}” ({interval})."
    others = f" and {len(comparisons) - 1} more" if len(comparisons) > 1 else ""
    return f"On {closest.about}, not significantly better than the control {closest.control}{others} ({interval})."


def _compare_all(explainer: str, controls: Sequence[str], questions: Sequence[Question]) -> list[Comparison]:
    """Compare with each control per kind of truth, and with chance per question; groups are images of all questions."""
    comparisons = []
    for kind in dict.fromkeys(question.truth for question in questions):
        of_kind = [question for question in questions if question.truth == kind]
        groups = np.concatenate([question.groups for question in of_kind])
        for control in controls:
            differences = np.concatenate([q.scores[explainer] - q.scores[control] for q in of_kind])
            comparisons.append(Comparison(kind, control, *one_sided_test(differences, groups)))
        comparisons += [
            Comparison(question.key, CHANCE, *one_sided_test(question.scores[explainer], question.groups))
            for question in of_kind
        ]
    return comparisons


def _images_needed(comparisons: Sequence[Comparison], explainers: int, images: int) -> int | None:
    """Return the number of images for which all comparisons would be significant with a power of 80 %, if they can be.

    Normal approximation, with the level that Holm's method asks of the first of ``explainers``. A question whose
    samples come from some of the images only needs more images in proportion.
    """
    from scipy.stats import norm, t

    quantiles = float(norm.isf(ALPHA / explainers) + norm.ppf(POWER))
    needed = 0
    for one in comparisons:
        if not one.difference > 0 or math.isnan(one.low):
            return None
        half = one.difference - one.low
        deviation = half / float(t.ppf(0.975, one.groups - 1)) * math.sqrt(one.groups)
        groups = (quantiles * deviation / one.difference) ** 2
        needed = max(needed, math.ceil(groups * images / one.groups))
    return needed if 0 < needed <= MOST_IMAGES else None


def sort_key(verdict: Verdict) -> tuple[int, float, str]:
    """Return the place of a verdict in tables: supported explainers first, the most certain first."""
    rank = ("supported", "undecided", "not stable", "refuted").index(verdict.outcome)
    return rank, 1.0 if verdict.p != verdict.p else verdict.p, verdict.explainer
