"""Published metrics that do not order maps of known quality, so that they are not part of the library.

They are written from their papers, as plainly as possible, for ``rejected_trials.py`` only: parameters are fixed,
inputs are not checked, and an undefined score is NaN without a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import ConvexHull
from scipy.spatial.distance import pdist, squareform
from torch import Tensor, nn

from xaibench.component.info import MetricInfo
from xaibench.metrics.faithfulness.monotonicity_correlation import monotonicity_correlation_model_scores
from xaibench.metrics.shared.explainer_calls import ExplainerCaller
from xaibench.metrics.shared.model_inputs import as_samples, random_generator
from xaibench.metrics.shared.perturb import perturbed_scores, score_drops, unit_scaled

_LIPSCHITZ = "Alvarez-Melis, Jaakkola: On the Robustness of Interpretability Methods, 2018, arXiv 1806.08049"
_STABILITY = "Agarwal et al.: Rethinking Stability for Attribution-based Explanations, 2022, arXiv 2203.06877"
_NGUYEN = "Nguyen, Martínez: On quantitative aspects of model interpretability, 2020, arXiv 2007.07584"

#: Relative tolerance of a difference that is rounding, and of the loss that effective complexity accepts.
_ROUNDING, _ACCEPTED = 1e-6, 0.1
#: The change of the image and the number of draws of the stability metrics, as ``sensitivity_max``, and the smallest
#: denominator.
_RADIUS, _DRAWS, _SMALLEST = 0.02, 10, 1e-6


@MetricInfo(
    "Monotonicity",
    "model",
    higher_is_better=True,
    range=(0.0, 1.0),
    pitfalls="One step down among all pixels is a score of 0, and nearly every map has one.",
    citation="Arya et al.: One Explanation Does Not Fit All, 2019, arXiv 1909.03012",
)
def monotonicity(model: nn.Module, images: Tensor, maps: Tensor, targets: Tensor, *, reduction: str) -> Tensor:
    """Return whether the probability never falls while pixels are added to zeros, the least important first."""
    samples = as_samples(model, images, targets)
    spans = [(samples.pixels - added, samples.pixels) for added in range(samples.pixels + 1)]
    curve = _curve(model, samples, maps, spans)
    rises: Tensor = curve.diff(dim=1) >= -_ROUNDING * curve[:, 1:].abs()
    return rises.all(1).double()


@MetricInfo(
    "Effective complexity",
    "model",
    higher_is_better=False,
    range=(0.0, 1.0),
    pitfalls="Evidence against the class has to be kept as well before the score is back within the tolerance, and "
    "one pixel decides; with other tolerances it fails too.",
    citation=_NGUYEN,
)
def effective_complexity(model: nn.Module, images: Tensor, maps: Tensor, targets: Tensor, *, reduction: str) -> Tensor:
    """Return the smallest share of the most important pixels that alone give the probability, within 10 % of it.

    The paper replaces the other pixels by samples of their distribution; here they are zero.
    """
    samples = as_samples(model, images, targets)
    curve = _curve(model, samples, maps, [(0, kept) for kept in range(samples.pixels + 1)])
    enough = (curve - curve[:, -1:]).abs() <= _ACCEPTED * curve[:, -1:]
    return enough.double().argmax(1) / samples.pixels


def _curve(model: nn.Module, samples: Any, maps: Tensor, spans: list[tuple[int, int]]) -> Tensor:
    settings: dict[str, Any] = {"reveal": True, "output": "probability", "batch_size": None}
    return perturbed_scores(model, samples, maps.abs(), spans, baseline=0.0, **settings)


@MetricInfo(
    "Non-sensitivity",
    "model",
    higher_is_better=False,
    range=(0.0, 1.0),
    pitfalls="Only exact zeros count: maps with a little and with a lot of noise have the same score.",
    citation=_NGUYEN,
)
def non_sensitivity(model: nn.Module, images: Tensor, maps: Tensor, targets: Tensor, *, reduction: str) -> Tensor:
    """Return the share of the pixels that are zero in the map but matter to the model, or the reverse."""
    draws, (height, width) = 5, images.shape[-2:]
    scores = monotonicity_correlation_model_scores(
        model, images, targets, grid_size=max(height, width), n_samples=draws
    )
    matters = (score_drops(scores).unflatten(1, (draws, height * width)) != 0).any(1)
    return ((maps.flatten(1) != 0) != matters).double().mean(1)


@MetricInfo(
    "MST-C",
    "ground-truth",
    higher_is_better=True,
    range=(0.0, math.inf),
    map_sign="own",
    pitfalls="It looks at the map alone: a compact map is best, wherever it is. What a network uses need not be "
    "compact.",
    citation="Mesgari et al.: Structural Compactness as a Complementary Criterion for Explanation Quality, 2026, "
    "arXiv 2603.29491",
)
def mst_c(maps: NDArray[np.float64], masks: NDArray[np.bool_], *, reduction: str) -> NDArray[np.float64]:
    """Return the compactness of the top 20 % of the pixels; the masks are not used.

    The number of pixels over the length of their minimum spanning tree, times the diagonal of the image over the square
    root of the area of their convex hull, times 100. Quantus takes the tree within a graph of nearest neighbors, and
    includes zeros if fewer pixels are nonzero, which then are the whole image.
    """
    return np.array([_compactness(one) for one in np.abs(maps)])


def _compactness(magnitude: NDArray[np.float64]) -> float:
    points = np.argwhere((magnitude >= np.percentile(magnitude, 80)) & (magnitude > 0)).astype(float)
    if len(points) < 2:
        return math.nan
    diagonal = math.hypot(*magnitude.shape)
    flat = len(points) < 3 or np.linalg.matrix_rank(points - points[0]) < 2  # on one line, there is no hull
    spread = diagonal if flat else math.sqrt(ConvexHull(points).volume)
    length = float(minimum_spanning_tree(squareform(pdist(points))).sum())
    return 100 * diagonal / spread * len(points) / length


#: Change of the map relative to the change of something else: ``(maps, other maps, images, other images, logits, other
#: logits) -> [N]``, all flat.
_Ratio: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def _relative(one: Tensor, other: Tensor) -> Tensor:
    """Return the norm of the change relative to each value; zeros count as the smallest denominator."""
    return ((one - other) / torch.where(one == 0, _SMALLEST, one)).norm(dim=1)


_RATIOS: dict[str, _Ratio] = {
    "local_lipschitz": lambda e, e2, x, x2, h, h2: (e - e2).norm(dim=1) / (x - x2).norm(dim=1),
    "relative_input_stability": lambda e, e2, x, x2, h, h2: _relative(e, e2) / _relative(x, x2).clamp_min(_SMALLEST),
    "relative_output_stability": lambda e, e2, x, x2, h, h2: (
        _relative(e, e2) / (h - h2).norm(dim=1).clamp_min(_SMALLEST)
    ),
    # The network of the trials is linear: its logits are its only representation.
    "relative_representation_stability": lambda e, e2, x, x2, h, h2: (
        _relative(e, e2) / _relative(h, h2).clamp_min(_SMALLEST)
    ),
}


def _stability(name: str, label: str, citation: str, pitfalls: str) -> Callable[..., Tensor]:
    info = MetricInfo(
        label, "explainer", higher_is_better=False, range=(0.0, math.inf), pitfalls=pitfalls, citation=citation
    )
    metric: Any = partial(_largest_ratio, _RATIOS[name])
    metric.__name__ = name
    described_metric: Callable[..., Tensor] = info(metric)
    return described_metric


def _largest_ratio(
    ratio: _Ratio, explainer: Any, model: nn.Module, images: Tensor, targets: Tensor, *, reduction: str
) -> Tensor:
    """Return the largest ratio over noisy images that the model assigns to the same class."""
    samples = as_samples(model, images, targets, "logit")
    explain = ExplainerCaller(explainer, model, samples, None, "logit")

    def look(at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            return explain(at).flatten(1), at.double().flatten(1), model(at).double()

    maps, pixels, logits = look(samples.images)
    largest = torch.full((len(samples),), math.nan, dtype=torch.float64)
    for index in range(_DRAWS):
        noise = random_generator(0, index).uniform(-_RADIUS, _RADIUS, samples.images.shape[1:])
        other_maps, other_pixels, other_logits = look(samples.images + torch.from_numpy(noise).to(samples.images))
        found = ratio(maps, other_maps, pixels, other_pixels, logits, other_logits)
        same = logits.argmax(1) == other_logits.argmax(1)
        largest = torch.where(same, torch.fmax(largest, found), largest)
    return largest


@MetricInfo(
    "ADCC",
    "explainer",
    higher_is_better=True,
    range=(0.0, 1.0),
    pitfalls="An explainer whose maps do not depend on the image is perfectly coherent.",
    citation="Poppi, Cornia, Baraldi, Cucchiara: Revisiting the Evaluation of Class Activation Mapping for "
    "Explainability, CVPR Workshops 2021, arXiv 2104.10252",
)
def adcc(explainer: Any, model: nn.Module, images: Tensor, targets: Tensor, *, reduction: str) -> Tensor:
    """Return the harmonic mean of coherency, one minus complexity, and one minus average drop.

    Maps are scaled to [0, 1]. Coherency: correlation with the map of the image times the map, from 0 to 1. Complexity:
    the mean of the map.
    """
    samples = as_samples(model, images, targets)
    explain = ExplainerCaller(explainer, model, samples, None)
    maps = unit_scaled(explain(samples.images))
    dimmed = samples.images * maps[:, None].to(samples.images)
    again = unit_scaled(explain(dimmed))
    correlation = [np.corrcoef(one.flatten(), other.flatten())[0, 1] for one, other in zip(maps, again, strict=True)]
    with torch.no_grad():
        before, after = (
            model(at).double().softmax(1).gather(1, samples.targets[:, None])[:, 0] for at in (samples.images, dimmed)
        )
    coherency, drop = (1 + torch.tensor(correlation)) / 2, (before - after).clamp_min(0) / before
    return 3 / (1 / coherency + 1 / (1 - maps.mean((1, 2))) + 1 / (1 - drop))


_UNMOVED = "An explainer that ignores the image and the network is the most stable."
_ZEROS = f"{_UNMOVED} Changes are relative to each pixel of the map, so that pixels near zero decide."

REJECTED: tuple[Callable[..., Any], ...] = (
    *(monotonicity, effective_complexity, non_sensitivity),
    _stability("local_lipschitz", "Local Lipschitz estimate", _LIPSCHITZ, _UNMOVED),
    _stability("relative_input_stability", "Relative input stability", _STABILITY, _ZEROS),
    _stability("relative_output_stability", "Relative output stability", _STABILITY, _ZEROS),
    _stability("relative_representation_stability", "Relative representation stability", _STABILITY, _ZEROS),
    *(adcc, mst_c),
)
