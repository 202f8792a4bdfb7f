"""Does the explanation follow what it should follow, and nothing else?

Metrics of an explainer rather than of its maps: they make maps of other images, or of another model. All are called
``(explainer, model, images, targets)`` with any callable ``explainer(model, images, targets) -> maps``, such as
``functools.partial(xaibench.explain, "saliency")``. The explainer gets a private copy of the model in evaluation mode,
so that whatever it does to it, the model given comes back as it was.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.metrics.inputs import Scores
from xaibench.metrics.perturbation import Curves
from xaibench.metrics.samples import (
    Samples,
    check_amount,
    check_common,
    check_count,
    check_finite,
    check_samples,
    check_share,
    draw,
    in_kind_of,
    reduced,
    share_of,
)
from xaibench.types import MetricInfo, Reduction, described

if TYPE_CHECKING:
    from xaibench.types import Array

#: Makes the maps ``[N, H, W]`` of a model for images ``[N, C, H, W]`` and targets ``[N]``.
Explainer: TypeAlias = "Callable[[nn.Module, Tensor, Tensor], Array]"


@described(
    MetricInfo(
        "Data consistency",
        "explainer",
        higher_is_better=False,
        range=(0.0, math.inf),
        citation="Zhang et al.: XAI Benchmark for Visual Explanation, 2023, arXiv 2310.08537",
    )
)
def data_consistency(
    explainer: Explainer,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    fraction: float = 0.1,
    n_samples: int = 10,
    relative: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""How much the map changes when random pixels of the image are removed.

    .. math:: \mathbb E_M\; \frac{1}{HW} \sum_{\text{pixels}} |g(f(I)) - g(f(I \odot M))|

    with masks M that set k random pixels (in all channels) to zero. Zhang et al. (2023), Section 5.3, who leave open
    how the difference of two maps becomes a number: here the mean over the pixels. In [0, inf), lower is better, 0 for
    an explainer that does not look at the image. In the units of the map: explainers with maps of other sizes can only
    be compared with ``relative=True``.

    Departures: Captum, Quantus, torch-cam and pytorch-grad-cam have no such metric (Quantus' ``Consistency`` compares
    predictions of samples that share an explanation).

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The network that is explained.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        fraction: Share of the pixels that a mask removes (rounded, at least one pixel).
        n_samples: Masks.
        relative: Divide by the mean magnitude of the map of the whole image.
        seed: Of the masks, which are the same for all samples.
        batch_size: Images that the explainer gets at a time; ``None``: all.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The mean change; with ``relative``, ``nan`` for an image whose map is all zero.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite in images or maps, or a parameter out of its
            range.
        TypeError: For images or targets of another kind.

    Example:
        >>> import torch
        >>> explainer = lambda model, images, targets: images[:, 0]  # the image is its own map
        >>> round(data_consistency(explainer, torch.nn.Flatten(), torch.ones(1, 1, 2, 4), torch.tensor([0])), 6)
        0.125
    """
    check_common(batch_size, reduction, seed)
    check_share("fraction", fraction)
    check_count("n_samples", n_samples)
    samples = check_samples(model, images, targets)
    explain = _Explain(explainer, model, samples, batch_size)
    original = explain(samples.images)
    change = torch.zeros(len(samples), dtype=torch.float64)
    k, shape = share_of(fraction, samples.pixels), samples.images.shape[-2:]
    for index in range(n_samples):
        removed = torch.zeros(samples.pixels, dtype=torch.bool)
        removed[draw(seed, index).permutation(samples.pixels)[:k]] = True
        maps = explain(samples.images.masked_fill(removed.reshape(shape).to(samples.images.device), 0.0))
        change += (original - maps).abs().flatten(1).mean(1)
    scores = change / n_samples
    if relative:
        scores = scores / original.abs().flatten(1).mean(1)  # 0/0 is nan, and a zero map that changes is no number
        scores[original.flatten(1).abs().amax(1) == 0] = math.nan
    return reduced(scores, reduction, images)


@described(
    MetricInfo(
        "Sensitivity (max)",
        "explainer",
        higher_is_better=False,
        range=(0.0, math.inf),
        citation="Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (In)fidelity and Sensitivity of Explanations, "
        "NeurIPS 2019, arXiv 1901.09392",
    )
)
def sensitivity_max(
    explainer: Explainer,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    radius: float = 0.02,
    n_samples: int = 10,
    seed: int = 0,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""The largest relative change of the map when a little noise is added to the image.

    .. math:: \max_{\|\delta\|_\infty \le r} \|g(f(x + \delta)) - g(f(x))\|_2 \,/\, \|g(f(x))\|_2

    Yeh et al. (2019), Definition 3.1, divided by the norm of the map as in their code and Captum's; the maximum is
    taken over ``n_samples`` uniform draws. In [0, inf), lower is better, 0 for an explainer that does not look at the
    image.

    Departures: Captum's ``sensitivity_max`` divides by 1 where the map is all zero. It and Quantus' ``MaxSensitivity``
    draw from the global generator, and by the place in the batch. The authors' loop divides by the norm again in every
    round.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The network that is explained.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        radius: r, in the units of the images (0.02 as Captum's default).
        n_samples: Draws.
        seed: Of the noise, which is the same for all samples.
        batch_size: Images that the explainer gets at a time; ``None``: all.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The largest change; ``nan`` for an image whose map is all zero.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite in images or maps, or a parameter out of its
            range.
        TypeError: For images or targets of another kind.

    Example:
        >>> import torch
        >>> explainer = lambda model, images, targets: images[:, 0]  # the image is its own map
        >>> score = sensitivity_max(explainer, torch.nn.Flatten(), torch.ones(1, 1, 2, 4), torch.tensor([0]))
        >>> 0.01 < score <= 0.02
        True
    """
    check_common(batch_size, reduction, seed)
    check_amount("radius", radius)
    check_count("n_samples", n_samples)
    samples = check_samples(model, images, targets)
    explain = _Explain(explainer, model, samples, batch_size)
    original = explain(samples.images)
    peak = original.abs().amax((1, 2), keepdim=True)  # so that the squares of tiny and of huge maps are numbers
    largest = torch.zeros(len(samples), dtype=torch.float64)
    for index in range(n_samples):
        noise = torch.from_numpy(draw(seed, index).uniform(-radius, radius, samples.images.shape[1:]))
        maps = explain(samples.images + noise.to(samples.images))
        largest = torch.maximum(largest, ((maps - original) / peak).flatten(1).norm(dim=1))
    # A zero map gives 0/0 or a number over 0 above; norm and maximum let nan pass.
    scores = torch.where(peak[:, 0, 0] > 0, largest / (original / peak).flatten(1).norm(dim=1), math.nan)
    return reduced(scores, reduction, images)


@described(
    MetricInfo(
        "Parameter randomisation",
        "explainer",
        higher_is_better=False,
        range=(-1.0, 1.0),
        citation="Adebayo, Gilmer, Muelly, Goodfellow, Hardt, Kim: Sanity Checks for Saliency Maps, NeurIPS 2018, "
        "arXiv 1810.03292",
    )
)
def parameter_randomisation(
    explainer: Explainer,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    magnitude: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""How alike the map stays while the model forgets what it has learned, layer by layer from the top.

    .. math:: \frac{1}{L} \sum_{l=1}^{L} \rho\bigl(g(f)(x),\; g(f_l)(x)\bigr)

    with Spearman's rank correlation over the pixels, ties at their mean rank, and :math:`f_l` the network whose last l
    layers are random. Cascading randomisation of Adebayo et al.
    (2018), Section 3.1, whose curves the mean over the layers sums up. In [-1, 1]; lower is better: a map that survives
    the loss of the parameters does not explain them.

    Layers are the modules with parameters of their own, in the reverse of the order in which the network registers
    them. Each is drawn anew as it draws itself when it is made (``reset_parameters``; a normalisation forgets its
    running statistics too); the parameters of a module without that method from a normal distribution with their mean
    and standard deviation. The paper draws from the initial distribution likewise.

    Departures: Quantus' ``MPRT`` returns the correlations of each layer unless it is asked for averages.
    Captum, torch-cam and pytorch-grad-cam have no such metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The network that is explained; a copy of it is randomised.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        magnitude: Rank pixels by ``|map|`` instead of by the map (the paper reports both).
        seed: Of the new parameters.
        batch_size: Images that the explainer gets at a time; ``None``: all.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.
        return_curves: Return ``(scores, curves)``: at the share of layers that are random, the correlation.

    Returns:
        The mean correlation; ``nan`` where one of the maps is constant, which has no ranks.

    Raises:
        ValueError: For shapes that do not fit, numbers that are not finite in images or maps, or a model without
            parameters.
        TypeError: For images or targets of another kind, or a model that is no ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # knows no model
        >>> parameter_randomisation(weights, model, images, targets) < 1
        True
        >>> round(parameter_randomisation(edges, model, images, targets), 6)
        1.0
    """
    check_common(batch_size, reduction, seed)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, whose parameters are drawn anew, got {type(model).__name__}."
        )
    samples = check_samples(model, images, targets)
    explain = _Explain(explainer, model, samples, batch_size)
    layers = [module for module in explain.model.modules() if any(True for _ in module.parameters(recurse=False))]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters to draw anew.")
    original = _ranked(explain(samples.images), magnitude)
    correlations = []
    for index, layer in enumerate(reversed(layers)):
        _draw_anew(layer, seed, index)
        correlations.append(_correlation(original, _ranked(explain(samples.images), magnitude)))
    curve = torch.from_numpy(np.stack(correlations, 1))
    result = reduced(curve.mean(1), reduction, images)
    if return_curves:
        fractions = torch.arange(1, len(layers) + 1, dtype=torch.float64) / len(layers)
        return result, Curves(in_kind_of(images, fractions), in_kind_of(images, curve))
    return result


class _Explain:
    """The explainer, asked about a copy of the model; maps are checked, ``[N, H, W]`` float64 on the CPU."""

    def __init__(self, explainer: Explainer, model: nn.Module, samples: Samples, batch_size: int | None) -> None:
        if not callable(explainer):
            raise TypeError(
                f"explainer must be callable, (model, images, targets) -> maps, got {type(explainer).__name__}. "
                "For a name pass functools.partial(xaibench.explain, name)."
            )
        with torch.inference_mode(False):  # a copy made in inference mode could never have a gradient
            self.model = copy.deepcopy(model).eval() if isinstance(model, nn.Module) else model
        self._explainer, self._targets = explainer, samples.targets
        self._batch_size = batch_size or len(samples)

    def __call__(self, images: Tensor) -> Tensor:
        size = self._batch_size
        parts = [
            self._maps(images[start : start + size], self._targets[start : start + size])
            for start in range(0, len(images), size)
        ]
        return torch.cat(parts)

    def _maps(self, images: Tensor, targets: Tensor) -> Tensor:
        # What is made in inference mode can never have a gradient again, which explainers need.
        with torch.inference_mode(False), torch.enable_grad():
            images = images.clone() if images.is_inference() else images
            maps = torch.as_tensor(self._explainer(self.model, images, targets)).detach().double().cpu()
        if maps.shape != (len(images), *images.shape[-2:]):
            raise ValueError(
                f"the explainer must return maps [N, H, W], got {list(maps.shape)} for images {list(images.shape)}."
            )
        check_finite(maps, "maps of the explainer")
        return maps


def _draw_anew(layer: nn.Module, seed: int, index: int) -> None:
    """New parameters for this module alone; the state of the global generators is left as it was."""
    own = list(layer.parameters(recurse=False))
    devices = {parameter.device for parameter in own if parameter.device.type == "cuda"}
    reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    with torch.random.fork_rng(list(devices)), torch.inference_mode(False), torch.no_grad():
        torch.manual_seed(int(draw(seed, index).integers(2**63)))
        if callable(reset):
            reset()
            return
        for parameter in own:
            parameter.normal_(float(parameter.mean()), float(parameter.std(correction=0)))


def _ranked(maps: Tensor, magnitude: bool) -> NDArray[np.float64]:
    """The ranks ``[N, H·W]``, ties at their mean, less their mean; all zero for a constant map."""
    from scipy.stats import rankdata

    flat = (maps.abs() if magnitude else maps).flatten(1).numpy()
    ranks: NDArray[np.float64] = rankdata(flat, axis=1)
    ranks -= (flat.shape[1] + 1) / 2
    return ranks


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    size = np.sqrt((one**2).sum(1)) * np.sqrt((other**2).sum(1))
    correlation = np.full(len(one), np.nan)
    np.divide((one * other).sum(1), size, out=correlation, where=size > 0)
    np.clip(correlation, -1.0, 1.0, out=correlation)  # rounding may leave the range
    return correlation
