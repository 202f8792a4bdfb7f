"""Trials of metrics: whether a metric ranks the oracle before its degraded versions, and those before noise.

This is similar to the meta-evaluation of Hedström et al.: The Meta-Evaluation Problem in Explainable AI, TMLR 2023
(arXiv 2302.07265), who perturb explanations and measure how much the scores change. Here the right map is known, and so
is the order of its degraded versions; therefore a metric can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_choice, check_count
from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS, Truth
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.evaluation.protocol import DEFAULT, DEFAULT_SIGN
from xaibench.scores.nested_draws import bounded_intervals

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from xaibench.meta_evaluation.known_cases import KnownCase

#: Share of the draws in which a metric must rank all steps correctly to pass.
PASSES = 0.95
#: Relative difference below which scores are considered equal, because it is due to rounding.
_EQUAL = 1e-10

Verdict: TypeAlias = Literal["passes", "coarse", "fails"]
Metrics: TypeAlias = "str | Callable[..., Any] | Sequence[str | Callable[..., Any]] | Mapping[str, Mapping[str, Any]]"


@dataclass(frozen=True)
class MetaEvaluation:
    """Results of the trials of metrics.

    Attributes:
        trials: One row per metric, truth, degradation (``degraded``) and draw: ``case`` (the scenario, outline or
            network), ``right``, ``wrong`` (bool, for the means over the samples; both are False if two steps are equal
            or one is undefined), ``one_right`` and ``one_wrong`` (shares of the single samples).
        draws: Number of draws.
        samples: Number of samples per draw.
    """

    trials: pd.DataFrame
    draws: int
    samples: int

    def table(self, by: Sequence[str] = ("metric", "truth", "degraded")) -> pd.DataFrame:
        """Summarize how often each metric ranks correctly.

        Args:
            by: Columns of :attr:`trials` to group by; include ``"case"`` to see in which cases a metric fails.

        Returns:
            These columns; ``draws``; ``right``, the share of the draws in which the mean scores rank all steps strictly
            in the right order, with the bounds ``low`` and ``high`` of Wilson's 95 % interval; ``wrong``, the share in
            which they rank two steps in the wrong order (the rest are ties); ``one_right`` and ``one_wrong``, the same
            for single samples; and ``verdict``: ``"passes"`` if at least 95 % are right, ``"coarse"`` if at most 5 %
            are wrong and the others are ties, otherwise ``"fails"``.
        """
        grouped = self.trials.groupby(list(by), sort=False, observed=True)
        table = grouped[["right", "wrong", "one_right", "one_wrong"]].mean()
        table.insert(0, "draws", grouped.size())
        right, count = table["right"].to_numpy(), table["draws"].to_numpy(float)
        variance = np.divide(right * (1 - right), count - 1, out=np.zeros(len(count)), where=count > 1)
        ends = bounded_intervals(right, variance, count - 1, count)
        table.insert(2, "low", ends[:, 0])
        table.insert(3, "high", ends[:, 1])
        table["verdict"] = [_verdict(*shares) for shares in zip(table["right"], table["wrong"], strict=True)]
        return table.reset_index()

    def verdicts(self) -> dict[tuple[str, str], Verdict]:
        """Return the verdict of each metric.

        Returns:
            ``{(metric, truth): verdict}``, the worst verdict over the degradations.
        """
        table, verdicts = self.table(), dict[tuple[str, str], Verdict]()
        for metric, truth, verdict in zip(table["metric"], table["truth"], table["verdict"], strict=True):
            verdicts[metric, truth] = max(verdicts.get((metric, truth), "passes"), verdict, key=_VERDICTS.index)
        return verdicts


#: The verdicts from best to worst.
_VERDICTS: tuple[Verdict, ...] = ("passes", "coarse", "fails")


def _verdict(right: float, wrong: float) -> Verdict:
    return "passes" if right >= PASSES else "coarse" if wrong <= 1 - PASSES else "fails"


def meta_evaluate(
    metrics: Metrics, truth: Truth | None = None, *, draws: int = 200, samples: int = 50, seed: int = 0
) -> MetaEvaluation:
    """Test whether metrics rank maps of known quality in the right order.

    Each draw consists of samples with their *oracle*, the map that is right by construction. The oracle is degraded
    stepwise in two ways, until it is uninformative. A good metric ranks the mean scores of the steps in the right
    order, with the oracle first and the uninformative map last. The samples depend on the kind of truth:

    - ``"data"``: tetrominoes of XAI-TRIS at 8×8, from one scenario after the other; the oracle is the mask;
    - ``"human"``: outlines and boxes like human annotations, at 12×12; the oracle is the mask;
    - ``"use"``: networks with hand-set weights, and a blinded network; the masks are the pixels that they use, and the
      oracle is the exact Shapley values of the logit;
    - ``"intervention"``: the same, for metrics that evaluate the network. Metrics that call the explainer are tested
      with an explainer that is exact for the linear blinded network, and with degraded versions of it.

    Maps are degraded by moving values off the mask (``"moved"``), or by adding noise (``"noisy"``). Explainers are
    degraded by new noise at every call (``"noisy"``), or by a picture that does not depend on the model
    (``"unmoved"``).

    Args:
        metrics: One or several metrics, or ``{name: parameters}``. A metric is a name or a function, including custom
            ones. Maps are binarized at the area of the mask and compared by magnitude, as by default in
            :func:`xaibench.evaluate`.
        truth: The kind of truth, for metrics that can be used with several; None: all of them.
        draws: Number of draws.
        samples: Number of samples per draw, over which the scores are averaged.
        seed: Seed of all random numbers.

    Returns:
        The trials, with ``.table()`` and ``.verdicts()``.

    Raises:
        ValueError: If a number is out of range, the kind of truth is unknown, or one of the metrics refers to another
            kind of truth or describes the map only, so that there is no right order.
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
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    chosen = metrics.items() if isinstance(metrics, Mapping) else [(one, {}) for one in metrics]
    how: dict[str, Any] = {"protocol": DEFAULT, "sign": DEFAULT_SIGN, "device": "cpu"}
    applied = [AppliedMetric(metric, parameters, **how) for metric, parameters in chosen]
    by_truth: dict[Truth, list[AppliedMetric]] = {}
    for metric in applied:
        for kind in _select_truths(metric, truth):
            by_truth.setdefault(kind, []).append(metric)
    rows = [
        row
        for kind, group in by_truth.items()
        for draw in range(draws)
        for row in _run_trial(group, kind, draw, samples, seed)
    ]
    return MetaEvaluation(pd.DataFrame(rows), draws, samples)


def _select_truths(metric: AppliedMetric, truth: Truth | None) -> list[Truth]:
    """Return the kinds of truth that a metric is tested with."""
    own = metric.info.own_truth
    if own == NO_TRUTH:
        raise ValueError(
            f"{metric.name} describes the map without a ground truth, so there is no right order to test; omit it."
        )
    possible: list[Truth] = ["data", "use", "human"] if own is None else [own]
    if truth is not None and truth not in possible:
        raise ValueError(f"{metric.name} has the truth {' or '.join(possible)}, got {truth!r}; omit truth.")
    return [truth] if truth is not None else possible


def _run_trial(
    metrics: Sequence[AppliedMetric], truth: Truth, draw: int, samples: int, seed: int
) -> list[dict[str, Any]]:
    """Run one draw and return the rows of the metrics, which do not depend on the other metrics."""
    entropy = [seed, list(TRUTHS).index(truth), draw]
    of_maps = [metric for metric in metrics if metric.info.kind != "explainer"]
    rows = _test_on_maps(of_maps, truth, draw, samples, np.random.default_rng(entropy)) if of_maps else []
    of_explainers = [metric for metric in metrics if metric.info.kind == "explainer"]
    for metric in of_explainers:
        rows += _test_on_explainers(metric, draw, samples, np.random.default_rng(entropy))
    return [{"metric": row.pop("metric"), "truth": truth, "draw": draw} | row for row in rows]


def _test_on_maps(
    metrics: Sequence[AppliedMetric], truth: Truth, draw: int, samples: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    import torch

    from xaibench.meta_evaluation.degradation import WORSE_MAPS
    from xaibench.meta_evaluation.known_cases import CASES

    case, rows = CASES[truth](draw, samples, int(rng.integers(2**31))), []
    for degraded, worsen in WORSE_MAPS.items():
        steps = worsen(case.oracle.numpy(), case.masks.numpy(), rng)
        stacked = torch.from_numpy(np.concatenate(steps))
        scored: dict[str, pd.DataFrame] = {}
        for metric in metrics:  # chance-corrected metrics reuse the scores of the underlying metric
            scores = _score_steps(metric, case, stacked, None, scored)
            rows.append(_row(metric, degraded, case, scores.reshape(len(steps), samples)))
    return rows


def _test_on_explainers(
    metric: AppliedMetric, draw: int, samples: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    from xaibench.meta_evaluation.degradation import WORSE_EXPLAINERS
    from xaibench.meta_evaluation.known_cases import blinded

    case, rows = blinded(draw, samples, int(rng.integers(2**31))), []
    exact = AppliedExplainer("input_x_gradient", output="logit", device="cpu")
    for degraded, worsen in WORSE_EXPLAINERS.items():
        scores = [_score_steps(metric, case, case.oracle, explainer, {}) for explainer in worsen(exact, rng)]
        rows.append(_row(metric, degraded, case, np.stack(scores)))
    return rows


def _score_steps(
    metric: AppliedMetric, case: KnownCase, maps: torch.Tensor, explainer: Any, scored: dict[str, pd.DataFrame]
) -> NDArray[np.float64]:
    """Score maps ``[n, H, W]``, which repeat the case's samples once per step; higher is better in the result."""
    n_steps = len(maps) // len(case.masks)
    batch = case.images.repeat(n_steps, 1, 1, 1), case.masks.repeat(n_steps, 1, 1), case.targets.repeat(n_steps)
    values = metric(maps, batch, case.model, explainer, scored)["value"].to_numpy(np.float64)
    return values if metric.info.higher_is_better else -values


def _row(metric: AppliedMetric, degraded: str, case: KnownCase, steps: NDArray[np.float64]) -> dict[str, Any]:
    """Return the row of :attr:`MetaEvaluation.trials` for scores ``[steps, N]``."""
    defined = np.isfinite(steps)
    count = defined.sum(axis=1)
    means = np.divide(np.where(defined, steps, 0).sum(axis=1), count, out=np.full(len(steps), np.nan), where=count > 0)
    (right,), (wrong,) = _check_order(means[:, None])
    one_right, one_wrong = (found.mean() for found in _check_order(steps))
    names = {"metric": metric.name, "degraded": degraded, "case": case.name}
    return names | {"right": right, "wrong": wrong, "one_right": one_right, "one_wrong": one_wrong}


def _check_order(steps: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which columns of ``[steps, N]`` decrease strictly, and which increase somewhere."""
    decreases = steps[:-1] - steps[1:]
    tolerance = _EQUAL * np.maximum(np.abs(steps[:-1]), np.abs(steps[1:]))
    return np.asarray((decreases > tolerance).all(axis=0)), np.asarray((decreases < -tolerance).any(axis=0))
