"""Tune PatternLocal on validation images with known masks, as in its paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.explainers.api import explain
from xaibench.explainers.perturbation.pattern_local import PatternLocal
from xaibench.explainers.shared.fitting import NotFittedError
from xaibench.network.answers import OutputOrFunction

#: Ranges of the package ``patternlocal``; that of the kernel width, which the package leaves out, is the library's.
_NEIGHBOR_FRACTION, _SHRINKAGE = (0.05, 0.3), (0.0, 0.5)
_ALPHA, _KERNEL_WIDTH = (1e-4, 10.0), (0.1, 10.0)


@dataclass(frozen=True)
class TunedPatternLocal:
    """The result of :func:`tune_pattern_local`.

    Attributes:
        explainer: The explainer with the best parameters, fitted.
        score: Its score on the validation images.
        trials: The parameters and the score of each trial, in order.
    """

    explainer: PatternLocal
    score: float
    trials: tuple[tuple[dict[str, float], float], ...]


def tune_pattern_local(
    explainer: PatternLocal,
    model: nn.Module,
    images: Tensor,
    masks: Tensor,
    targets: Tensor,
    score: Callable[[Any, Any], Any],
    *,
    n_trials: int = 20,
    seed: int = 0,
    output: OutputOrFunction | None = None,
    device: str = "auto",
) -> TunedPatternLocal:
    """Choose the parameters of PatternLocal by random search on validation images with known masks.

    The first trial has the parameters of ``explainer``; the others draw ``neighbor_fraction`` from [0.05, 0.3] and
    ``shrinkage`` from [0, 0.5] uniformly, ``alpha`` from [10⁻⁴, 10] and, for the surrogate ``"lime"``,
    ``kernel_width`` from [0.1, 10] log-uniformly. The paper searches such ranges by tree-structured Parzen estimators;
    its package also offers random search. A method that is tuned on masks must be submitted with ``--tuned-on``, and
    compared with methods that are tuned in the same way.

    Args:
        explainer: A fitted explainer; it determines surrogate, samples and seed.
        model: Returns logits ``[N, K]`` for images.
        images: ``[N, C, H, W]``, not the images that are evaluated later.
        masks: ``[N, H, W]``, the ground truth of these images.
        targets: ``[N]``.
        score: Maps ``(maps, masks)`` to one number, or to one per image, of which the mean counts; higher is better.
            For example :func:`xaibench.emd_skill`.
        n_trials: Number of trials, at least 1.
        seed: Seed of the parameters that are drawn.
        output: The explained output, as in :func:`xaibench.explain`.
        device: The device, as in :func:`xaibench.explain`.

    Returns:
        The best explainer with its score, and all trials. Of equal scores, the first counts. Undefined scores (NaN)
        are left out of the mean; a trial without any is never the best.

    Raises:
        NotFittedError: If the explainer is not fitted.
        ValueError: If no trial has a score.
    """
    check_count("n_trials", n_trials, owner="tune_pattern_local")
    if not explainer.fitted:
        raise NotFittedError(
            "tune_pattern_local: got an explainer that is not fitted, expected PatternLocal().fit(model, loader)."
        )
    rng, best, trials = np.random.default_rng(seed), None, []
    for number in range(n_trials):
        parameters: dict[str, Any] = _draw_parameters(rng, explainer) if number else {}
        candidate = replace(explainer, **parameters)
        maps = explain(candidate, model, images, targets, output=output, device=device, progress=False)
        found = np.asarray(score(maps, masks), dtype=np.float64)
        value = float(found[~np.isnan(found)].mean()) if (~np.isnan(found)).any() else math.nan
        trials.append((parameters, value))
        if not math.isnan(value) and (best is None or value > best[1]):
            best = candidate, value
    if best is None:
        raise ValueError(
            f"tune_pattern_local: score returned no number in {n_trials} trials, expected one that is defined for "
            "these maps and masks. Check that the masks are not empty."
        )
    return TunedPatternLocal(best[0], best[1], tuple(trials))


def _draw_parameters(rng: np.random.Generator, explainer: PatternLocal) -> dict[str, float]:
    """Draw the parameters of one trial."""
    drawn = {
        "neighbor_fraction": float(rng.uniform(*_NEIGHBOR_FRACTION)),
        "shrinkage": float(rng.uniform(*_SHRINKAGE)),
        "alpha": math.exp(rng.uniform(*np.log(_ALPHA))),
    }
    if explainer.surrogate == "lime":
        drawn["kernel_width"] = math.exp(rng.uniform(*np.log(_KERNEL_WIDTH)))
    return drawn
