"""Trials of metrics: does a metric rank the oracle before what was made of it, and that before noise?

The question is that of the meta-evaluation of Hedström et al.: The Meta-Evaluation Problem in Explainable AI, TMLR 2023
(arXiv 2302.07265), who disturb explanations and look at how far the scores move. Here the right map is known, and with
it the order of what is made of it, so a metric can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_choice, check_count
from xaibench.core.truths import NO_TRUTH, TRUTHS, Truth
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.statistics.bounded_means import wilson

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from xaibench.evaluation.meta_evaluation.known_cases import KnownCase

#: A metric passes that ranks all steps rightly in this share of the draws, and does not err in more than the rest.
PASSES = 0.95
#: Scores that differ by less than this share of themselves are equal: it is rounding.
_EQUAL = 1e-10

Verdict: TypeAlias = Literal["passes", "coarse", "fails"]
Metrics: TypeAlias = "str | Callable[..., Any] | Sequence[str | Callable[..., Any]] | Mapping[str, Mapping[str, Any]]"


@dataclass(frozen=True)
class MetaEvaluation:
    """What the trials of metrics came to.

    Attributes:
        trials: A row a metric, truth, way of making maps worse (``degraded``) and draw: ``case`` (what was drawn),
            ``right``, ``wrong`` (bool: of the means over the samples; neither: two steps are equal, or one is
            undefined), ``one_right`` and ``one_wrong`` (shares of the single samples).
        draws: How many.
        samples: In each.
    """

    trials: pd.DataFrame
    draws: int
    samples: int

    def table(self, by: Sequence[str] = ("metric", "truth", "degraded")) -> pd.DataFrame:
        """How often each metric ranks rightly.

        Args:
            by: Columns of :attr:`trials`, one row for each of their values; with ``"case"`` it shows where it fails.

        Returns:
            These columns, ``draws``, ``right`` (share of the draws in which the mean over the samples puts all steps in
            their order, strictly) with the ends ``low`` and ``high`` of Wilson's 95 % interval, ``wrong`` (share in
            which it puts two steps the other way round; the rest are ties), ``one_right`` and ``one_wrong`` (the same
            of single samples), and ``verdict``: ``"passes"`` from 95 % right on, ``"coarse"`` where at most 5 % are
            wrong and the others tie, else ``"fails"``.
        """
        grouped = self.trials.groupby(list(by), sort=False, observed=True)
        table = grouped[["right", "wrong", "one_right", "one_wrong"]].mean()
        table.insert(0, "draws", grouped.size())
        right, count = table["right"].to_numpy(), table["draws"].to_numpy(float)
        variance = np.divide(right * (1 - right), count - 1, out=np.zeros(len(count)), where=count > 1)
        ends = wilson(right, variance, count - 1, count)
        table.insert(2, "low", ends[:, 0])
        table.insert(3, "high", ends[:, 1])
        table["verdict"] = [_verdict(*shares) for shares in zip(table["right"], table["wrong"], strict=True)]
        return table.reset_index()

    def verdicts(self) -> dict[tuple[str, str], Verdict]:
        """What each metric came to.

        Returns:
            ``{(metric, truth): verdict}``, that of the way of making maps worse with which it does worst.
        """
        table, found = self.table(), dict[tuple[str, str], Verdict]()
        for metric, truth, verdict in zip(table["metric"], table["truth"], table["verdict"], strict=True):
            found[metric, truth] = max(found.get((metric, truth), "passes"), verdict, key=_ORDER.index)
        return found


_ORDER: tuple[Verdict, ...] = ("passes", "coarse", "fails")


def _verdict(right: float, wrong: float) -> Verdict:
    return "passes" if right >= PASSES else "coarse" if wrong <= 1 - PASSES else "fails"


def meta_evaluate(
    metrics: Metrics, truth: Truth | None = None, *, draws: int = 200, samples: int = 50, seed: int = 0
) -> MetaEvaluation:
    """Ask metrics about maps of which it is known in what order they are right.

    In each draw there are some samples, and for each of them the *oracle*, the map that is right by construction; it is
    made worse step by step in two ways, until nothing is left of it. A metric judges well that puts the means of the
    steps in their order: the oracle first, what knows nothing last. The samples are

    - ``"data"``: tetrominoes of XAI-TRIS at 8×8, scenario by scenario; the oracle is the ground truth;
    - ``"human"``: outlines and boxes such as people draw, at 12×12; the oracle is the mask;
    - ``"use"``: networks set by hand, and blinded ones; the masks are the pixels that they use, the oracle the exact
      Shapley values of the logit;
    - ``"intervention"``: the same, for metrics that try the network. Metrics that ask the explainer get, in place of
      maps, one that is exact (of networks that are linear) and what is made of it.

    Maps become worse as their values are moved off the ground truth (``"moved"``), or noise is mixed in (``"noisy"``);
    explainers by noise, drawn anew whenever they are asked (``"noisy"``), and by a picture that stays the same whatever
    the image or the network (``"unmoved"``).

    Args:
        metrics: One, or several, or ``{name: parameters}``. A metric is a name or a function, one's own as well. What
            cuts maps at a threshold gets them stretched to [0, 1] and cuts at 0.5, as in :func:`xaibench.evaluate`.
        truth: The kind of masks that a metric with a ground truth is asked about; None: every kind. A metric that
            decides its kind itself has that one.
        draws: How often.
        samples: In each draw; a user's mean is over so many.
        seed: Of all that is drawn.

    Returns:
        The trials, with ``.table()`` and ``.verdicts()``.

    Raises:
        ValueError: If a number is out of its range, there is no such kind of truth, or one of the metrics describes the
            map alone or is of another kind of truth: there is nothing that it could be wrong about.
        UnknownNameError: If no metric has that name (did you mean).
        TypeError: If a metric is neither a name nor a function, or has no such parameter.

    Example:
        >>> import numpy as np
        >>> def brightest(maps, masks, *, reduction="mean"):  # does not look at the masks
        ...     return np.abs(maps).max(axis=(1, 2))
        >>> meta_evaluate(["mass_accuracy", brightest], "data", draws=4, samples=5).verdicts()
        {('mass_accuracy', 'data'): 'passes', ('brightest', 'data'): 'fails'}
    """
    import pandas as pd

    check_count("draws", draws)
    check_count("samples", samples)
    check_count("seed", seed, least=0)
    if truth is not None:
        check_choice("truth", truth, TRUTHS)
    given = metrics.items() if isinstance(metrics, Mapping) else [(one, {}) for one in _listed(metrics)]
    applied = [AppliedMetric(metric, parameters, protocol="scaled", device="cpu") for metric, parameters in given]
    asked: dict[Truth, list[AppliedMetric]] = {}
    for metric in applied:
        for kind in _truths(metric, truth):
            asked.setdefault(kind, []).append(metric)
    rows = [
        row for kind, some in asked.items() for draw in range(draws) for row in _trial(some, kind, draw, samples, seed)
    ]
    return MetaEvaluation(pd.DataFrame(rows), draws, samples)


def _listed(metrics: Any) -> list[Any]:
    return [metrics] if isinstance(metrics, str) or callable(metrics) else list(metrics)


def _truths(metric: AppliedMetric, truth: Truth | None) -> list[Truth]:
    """The kinds of truth that a metric is tried with."""
    own = metric.info.own_truth
    if own == NO_TRUTH:
        raise ValueError(
            f"{metric.name} describes the map and is asked for no truth, so that there is no order that it could get "
            "wrong; leave it out."
        )
    possible: list[Truth] = ["data", "use", "human"] if own is None else [own]
    if truth is not None and truth not in possible:
        raise ValueError(f"{metric.name} is of the truth {' or '.join(possible)}, got {truth!r}; leave truth out.")
    return [truth] if truth is not None else possible


def _trial(metrics: Sequence[AppliedMetric], truth: Truth, draw: int, samples: int, seed: int) -> list[dict[str, Any]]:
    """One draw: the rows of these metrics, which are the same whichever others are asked."""
    entropy = [seed, list(TRUTHS).index(truth), draw]
    of_maps = [metric for metric in metrics if metric.info.kind != "explainer"]
    found = _of_maps(of_maps, truth, draw, samples, np.random.default_rng(entropy)) if of_maps else []
    asking = [metric for metric in metrics if metric.info.kind == "explainer"]
    found += [row for metric in asking for row in _of_explainers(metric, draw, samples, np.random.default_rng(entropy))]
    return [{"metric": row.pop("metric"), "truth": truth, "draw": draw} | row for row in found]


def _of_maps(
    metrics: Sequence[AppliedMetric], truth: Truth, draw: int, samples: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    import torch

    from xaibench.evaluation.meta_evaluation.degrading import WORSE_MAPS
    from xaibench.evaluation.meta_evaluation.known_cases import CASES

    case, rows = CASES[truth](draw, samples, int(rng.integers(2**31))), []
    for degraded, worsen in WORSE_MAPS.items():
        steps = worsen(case.oracle.numpy(), case.masks.numpy(), rng)
        stacked = torch.from_numpy(np.concatenate(steps))
        scored: dict[str, pd.DataFrame] = {}
        for metric in metrics:  # a skill takes the scores of its metric
            scores = _scores(metric, case, stacked, None, scored)
            rows.append(_outcome(metric, degraded, case, scores.reshape(len(steps), samples)))
    return rows


def _of_explainers(metric: AppliedMetric, draw: int, samples: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    from xaibench.evaluation.meta_evaluation.degrading import WORSE_EXPLAINERS
    from xaibench.evaluation.meta_evaluation.known_cases import blinded

    case, rows = blinded(draw, samples, int(rng.integers(2**31))), []
    exact = AppliedExplainer("input_x_gradient", output="logit", device="cpu")
    for degraded, worsen in WORSE_EXPLAINERS.items():
        scores = [_scores(metric, case, case.oracle, explainer, {}) for explainer in worsen(exact, rng)]
        rows.append(_outcome(metric, degraded, case, np.stack(scores)))
    return rows


def _scores(
    metric: AppliedMetric, case: KnownCase, maps: torch.Tensor, explainer: Any, scored: dict[str, pd.DataFrame]
) -> NDArray[np.float64]:
    """``[n]``, turned so that higher is better, of maps ``[n, H, W]`` of the case's samples, again and again."""
    times = len(maps) // len(case.masks)
    batch = case.images.repeat(times, 1, 1, 1), case.masks.repeat(times, 1, 1), case.targets.repeat(times)
    values = metric(maps, batch, case.model, explainer, scored)["value"].to_numpy(np.float64)
    return values if metric.info.higher_is_better else -values


def _outcome(metric: AppliedMetric, degraded: str, case: KnownCase, steps: NDArray[np.float64]) -> dict[str, Any]:
    """What came of the scores ``[steps, N]``."""
    defined = np.isfinite(steps)
    count = defined.sum(axis=1)
    means = np.divide(np.where(defined, steps, 0).sum(axis=1), count, out=np.full(len(steps), np.nan), where=count > 0)
    (right,), (wrong,) = _order(means[:, None])
    one_right, one_wrong = (found.mean() for found in _order(steps))
    names = {"metric": metric.name, "degraded": degraded, "case": case.name}
    return names | {"right": right, "wrong": wrong, "one_right": one_right, "one_wrong": one_wrong}


def _order(steps: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of ``[steps, N]``, the best first: which are strictly in order, and which have two the other way round."""
    falls = steps[:-1] - steps[1:]
    least = _EQUAL * np.maximum(np.abs(steps[:-1]), np.abs(steps[1:]))
    return np.asarray((falls > least).all(axis=0)), np.asarray((falls < -least).any(axis=0))
