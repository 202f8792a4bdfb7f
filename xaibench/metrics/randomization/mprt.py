"""Randomization: does the map change when the weights of the network become random, or another class is explained?

The metrics are called with ``(explainer, model, images, targets)``; see :mod:`xaibench.metrics.shared.explainer_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from scipy.ndimage import uniform_filter
from torch import Tensor, nn

from xaibench.core.checks import check_amount, check_choice, check_count
from xaibench.core.types import Array, Floats, Reduction
from xaibench.metrics.shared.explainer_calls import (
    ExplainerFunction,
    explainer_inputs,
    layers_with_parameters,
    reinitialize,
)
from xaibench.metrics.shared.inputs import Scores, without_unit_axes
from xaibench.metrics.shared.model_scores import ModelOutput, random_generator, reduce_tensor
from xaibench.metrics.shared.perturb import reduce_curves, unit_scaled
from xaibench.metrics.shared.ranks import centered_ranks, correlation
from xaibench.network.outputs import check_module
from xaibench.registry.info import MetricInfo


@MetricInfo(
    "Parameter randomization",
    "explainer",
    higher_is_better=False,
    range=(-1.0, 1.0),
    meaning="Rank correlation of the map with the maps of the same network while its weights are randomized "
    "layer by layer, starting with the last. 1: the map does not depend on the network.",
    pitfalls="A map of pure noise scores as well as a good one: it is a test to pass, not a ranking. Methods that "
    "multiply by the image keep its structure on any network. For maps with arbitrary sign use `magnitude=True`.",
    picture="maps of forgetting layers",
    citation="Adebayo, Gilmer, Muelly, Goodfellow, Hardt, Kim: Sanity Checks for Saliency Maps, NeurIPS 2018, "
    "arXiv 1810.03292",
)
def parameter_randomization(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Similarity of the map to maps of the same model with random parameters, layer by layer from the top.

    .. math:: \frac{1}{L} \sum_{l=1}^{L} \rho\bigl(g(f)(x),\; g(f_l)(x)\bigr)

    with Spearman's rank correlation over the pixels (ties get their mean rank), and :math:`f_l` the network whose last
    l layers are random. Cascading randomization of Adebayo et al. (2018), Section 3.1; the mean over the layers
    summarizes their curves. In [-1, 1]; lower is better: a map that survives the randomization does not explain the
    parameters.

    Layers are the modules with parameters of their own, in reverse order of registration. Each is initialized again
    with its ``reset_parameters`` (normalizations also reset their running statistics). Parameters of a module without
    that method are drawn from a normal distribution with their mean and standard deviation. The paper also draws from
    the initial distribution.

    Departures: Quantus' ``MPRT`` returns the correlations of each layer by default.
    Captum, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network; a copy of it is randomized.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        magnitude: Rank pixels by ``|map|`` instead of by the map (the paper reports both).
        seed: Seed of the random parameters.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``; the curves are the correlations over the share of random layers.

    Returns:
        The mean correlation; ``nan`` where one of the maps is constant, which has no ranks.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, or the model does
            not return ``[N, K]`` or has no parameters.
        TypeError: If images or targets are not arrays or tensors of a suitable type, the explainer is not callable, or
            the model is not a ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # ignores the model
        >>> parameter_randomization(weights, model, images, targets) < 1
        True
        >>> round(parameter_randomization(edges, model, images, targets), 6)
        1.0
    """
    check_module(model)
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    layers = layers_with_parameters(explain.model)

    def explained() -> Tensor:
        maps = explain(samples.images)
        return maps.abs() if magnitude else maps

    return _correlate(explained, layers[::-1], seed, reduction, images, return_curves)


def _correlate(
    explained: Callable[[], Tensor],
    layers: Sequence[nn.Module],
    seed: int,
    reduction: Reduction,
    like: Array,
    return_curves: bool,
) -> Scores:
    """Return the mean correlation of the original maps with those after each layer is randomized in addition."""
    original, correlations = centered_ranks(explained()), []
    for index, layer in enumerate(layers):
        reinitialize(layer, seed, index)
        correlations.append(correlation(original, centered_ranks(explained())))
    curve = torch.from_numpy(np.stack(correlations, 1))
    fractions = torch.arange(1, len(layers) + 1, dtype=torch.float64) / len(layers)
    return reduce_curves(curve.mean(1), fractions, curve, reduction, like, return_curves)


@MetricInfo(
    "Smooth parameter randomization",
    "explainer",
    higher_is_better=False,
    range=(-1.0, 1.0),
    meaning="Rank correlation of the map with the maps of the same network while its weights are randomized "
    "layer by layer, starting with the first. Each map is the mean over noisy copies of the image.",
    pitfalls="Like `parameter_randomization`, without the influence of noise in the maps; more expensive by the "
    "number of copies. Still a test to pass, not a ranking.",
    class_name="SmoothMPRT",
    citation="Hedström, Weber, Lapuschkin, Höhne: Sanity Checks Revisited: An Exploration to Repair the Model "
    "Parameter Randomization Test, 2024, arXiv 2401.06465",
)
def smooth_mprt(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    n_samples: int = 50,
    noise: float = 0.1,
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Smooth MPRT: similarity of the denoised map to maps of the model with random parameters, from the first layer.

    .. math:: \frac{1}{L} \sum_{l=1}^{L} \rho\Bigl(\tfrac{1}{N}\sum_i g(f)(x + \eta_i),\;
        \tfrac{1}{N}\sum_i g(f_l)(x + \eta_i)\Bigr)

    with Spearman's rank correlation over the pixels (ties get their mean rank), :math:`f_l` the network whose first l
    layers are random, and Gaussian noise :math:`\eta_i` of ``noise`` times the range of the image. Hedström et al.
    (2024), Section 4.1, change :func:`parameter_randomization` in two ways. Layers are randomized from the bottom up,
    because from the top down the map still depends on the trained lower layers. Each map is the mean over N noisy
    images. In [-1, 1]; lower is better. ``(L + 1) · N`` explanations per image.

    Layers are initialized again as in :func:`parameter_randomization`; the noise is the same for all networks.

    Departures: the authors scale each map by its second moment first, which does not change ranks. Quantus'
    ``SmoothMPRT`` returns the correlations of each layer by default, and draws the noise from the global generator.
    Captum, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network; a copy of it is randomized.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        n_samples: Noisy copies per image.
        noise: Standard deviation of the noise, as a share of the image's range.
        magnitude: Rank pixels by the mean of ``|map|`` instead of the mean of the map.
        seed: Seed of the random parameters and of the noise.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``; the curves are the correlations over the share of random layers.

    Returns:
        The mean correlation; ``nan`` where one of the maps is constant, which has no ranks.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, the model does not
            return ``[N, K]`` or has no parameters, or a parameter is out of range.
        TypeError: If images or targets are not arrays or tensors of a suitable type, the explainer is not callable, or
            the model is not a ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> images, targets = torch.rand(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # ignores the model
        >>> smooth_mprt(weights, model, images, targets, n_samples=2) < 1
        True
        >>> round(smooth_mprt(edges, model, images, targets, n_samples=2), 6)
        1.0
    """
    check_count("n_samples", n_samples)
    check_amount("noise", noise, above=False)
    check_module(model)
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    layers = layers_with_parameters(explain.model)
    axes = tuple(range(1, samples.images.ndim))
    extent = samples.images.amax(axes, keepdim=True) - samples.images.amin(axes, keepdim=True)

    def smooth_maps() -> Tensor:
        total = torch.zeros(len(samples), *samples.images.shape[2:], dtype=torch.float64)
        for number in range(n_samples):
            normal = random_generator(seed, len(layers) + number).standard_normal(samples.images.shape[1:])
            maps = explain(samples.images + noise * extent * torch.from_numpy(normal).to(samples.images))
            total += (maps.abs() if magnitude else maps) / n_samples
        return total

    return _correlate(smooth_maps, layers, seed, reduction, images, return_curves)


@MetricInfo(
    "Efficient parameter randomization",
    "explainer",
    higher_is_better=True,
    range=(-1.0, float("inf")),
    meaning="Relative increase of the entropy of the map’s values when all weights of the network are random. "
    "About 0: the map does not depend on the network.",
    pitfalls="A map that is already complex cannot become much more complex. Entropy ignores positions: a "
    "different map of equal complexity scores 0.",
    class_name="EfficientMPRT",
    citation="Hedström, Weber, Lapuschkin, Höhne: Sanity Checks Revisited: An Exploration to Repair the Model "
    "Parameter Randomization Test, 2024, arXiv 2401.06465",
)
def efficient_mprt(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    n_bins: int = 100,
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Efficient MPRT: relative increase of the map's complexity when all parameters of the model are random.

    .. math:: \frac{H\bigl(g(\hat f)(x)\bigr) - H\bigl(g(f)(x)\bigr)}{H\bigl(g(f)(x)\bigr)}, \qquad
        H(s) = -\sum_b p_b \ln p_b

    :math:`\hat f` is the network with random parameters in all layers; :math:`p_b` is the share of the map's values in
    bin :math:`b` of ``n_bins`` bins of equal width between the smallest and the largest value. Hedström et al. (2024),
    Section 4.2: random weights make a faithful map more disordered. At least -1; higher is better. Two explanations per
    image, regardless of the number of layers.

    Departures: the authors choose the number of bins from the whole batch; here it is a parameter, and samples are
    scored independently. Quantus' ``EfficientMPRT`` has 100 bins by default, and may scale maps and use magnitudes
    first; scaling does not change the bins. Captum, torch-cam and pytorch-grad-cam do not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network; a copy of it is randomized.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        n_bins: Number of bins of the histogram, at least 2.
        magnitude: Use ``|map|`` instead of the map.
        seed: Seed of the random parameters.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The increase; ``nan`` where the original map is constant, whose entropy is 0.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, the model does not
            return ``[N, K]`` or has no parameters, or a parameter is out of range.
        TypeError: If images or targets are not arrays or tensors of a suitable type, the explainer is not callable, or
            the model is not a ``torch.nn.Module``.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
        >>> model[1].weight.data = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])  # it looks at one pixel
        >>> images, targets = torch.rand(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> efficient_mprt(weights, model, images, targets) > 0.5
        True
    """
    check_count("n_bins", n_bins, least=2)
    check_module(model)
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    layers = layers_with_parameters(explain.model)
    original = _entropies(explain(samples.images), magnitude, n_bins)
    for index, layer in enumerate(reversed(layers)):  # the final network of ``parameter_randomization``
        reinitialize(layer, seed, index)
    randomized = _entropies(explain(samples.images), magnitude, n_bins)
    rise = np.full(len(original), np.nan)
    np.divide(randomized - original, original, out=rise, where=original > 0)
    return reduce_tensor(torch.from_numpy(rise), reduction, images)


def _entropies(maps: Tensor, magnitude: bool, bins: int) -> Floats:
    """Return the entropy of each map's histogram in nats; 0 for a constant map."""
    # Constant maps are NaN after scaling.
    flat = unit_scaled(maps.abs() if magnitude else maps).flatten(1).nan_to_num()
    counts = np.stack([np.histogram(values, bins, (0.0, 1.0))[0] for values in flat.numpy()])
    shares = counts / flat.shape[1]
    logarithms = np.log(shares, out=np.zeros_like(shares), where=counts > 0)
    return np.asarray(np.abs((shares * logarithms).sum(1)))


#: Similarity of two maps: structural similarity, or Spearman's rank correlation.
Similarity: TypeAlias = Literal["ssim", "spearman"]

# Structural similarity (Wang et al. 2004) as in scikit-image: a window of 7 × 7, and two small constants.
_WINDOW, _K1, _K2 = 7, 0.01, 0.03


@MetricInfo(
    "Random logit",
    "explainer",
    higher_is_better=False,
    range=(-1.0, 1.0),
    meaning="Similarity of the map to the map of another, randomly chosen class. 1: the map does not depend on "
    "the class.",
    pitfalls="A map of pure noise passes: it is a test to pass, not a ranking. With two classes, the correct map of "
    "the other class may be the same map with opposite sign, which `magnitude=True` treats as the same map.",
    citation="Sixt, Granz, Landgraf: When Explanations Lie: Why Many Modified BP Attributions Fail, ICML 2020, "
    "arXiv 1912.09818",
)
def random_logit(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    *,
    similarity: Similarity = "ssim",
    magnitude: bool = False,
    seed: int = 0,
    output: ModelOutput | None = None,
    batch_size: int | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Similarity of the target's map to the map of another class.

    .. math:: \mathrm{SSIM}\bigl(g_y(f)(x),\; g_{y'}(f)(x)\bigr), \qquad y' \ne y \text{ at random}

    Sixt et al. (2020), Section 4: maps of methods whose propagation converges look the same for every logit. In [-1,
    1]; lower is better. SSIM is the structural similarity of Wang et al. (2004) in windows of 7×7 pixels (in smaller
    images, the largest odd side that fits); its data range is that of both maps together.

    Departures: the authors also plot SSIM over the layers of the network, and scale each map to [0, 1]. Quantus'
    ``RandomLogit`` draws a class for each position in the batch; here the class index is shifted by the same random
    number for all samples, so that a score does not depend on other samples. Captum, torch-cam and pytorch-grad-cam do
    not provide this metric.

    Args:
        explainer: ``(model, images, targets) -> maps [N, H, W]``.
        model: The explained network.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        similarity: ``"ssim"`` or ``"spearman"`` (rank correlation; ties get their mean rank).
        magnitude: Compare ``|map|`` instead of the maps.
        seed: Seed of the other class.
        output: The explained output, as for :func:`xaibench.explain`, to which it is passed (and to any explainer with
            a parameter ``output``). It decides what the classes are: ``"sigmoid"`` for independent labels and networks
            with one output, or a function of the outputs. ``None``: the explainer's own output.
        batch_size: Images per call of the explainer; ``None`` for all.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The similarity; ``nan`` where one of the maps is constant, which has neither structure nor ranks.

    Raises:
        ValueError: If shapes do not match, images or maps are not finite, a target is not a class, or the model does
            not return ``[N, K]`` with at least two classes.
        TypeError: If images or targets are not arrays or tensors of a suitable type, or the explainer or the model is
            not callable.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> weights = lambda model, images, targets: model[1].weight[targets].reshape(-1, 2, 2)
        >>> edges = lambda model, images, targets: torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # ignores the class
        >>> random_logit(weights, model, images, targets, similarity="spearman") < 1
        True
        >>> round(random_logit(edges, model, images, targets, similarity="spearman"), 6)
        1.0
    """
    check_choice("similarity", similarity, ("ssim", "spearman"))
    samples, explain = explainer_inputs(explainer, model, images, targets, output, batch_size, reduction, seed)
    if explain.classes < 2:
        raise ValueError(
            "The model has one output, but the metric needs at least two classes. Pass a model with one output per "
            "class, or output='sigmoid', by which a single output has two classes."
        )
    further = int(random_generator(seed, 0).integers(1, explain.classes))
    others = (samples.targets + further) % explain.classes
    pair = explain(samples.images), explain(samples.images, others)
    one, other = (maps.abs() if magnitude else maps for maps in pair)
    if similarity == "spearman":
        scores = correlation(centered_ranks(one), centered_ranks(other))
    else:
        scores = np.array([_ssim(a, b) for a, b in zip(one.numpy(), other.numpy(), strict=True)])
    return reduce_tensor(torch.from_numpy(scores), reduction, images)


def _ssim(one: Floats, other: Floats) -> float:
    """Return the mean structural similarity of two maps, over the windows inside the image; cubic ones in a volume."""
    if (one == one.flat[0]).all() or (other == other.flat[0]).all():
        return float("nan")
    peak = max(np.abs(one).max(), np.abs(other).max())
    sides = without_unit_axes(one.shape)
    # Scaling keeps squares of huge and tiny values in the range of float64.
    one, other = one.reshape(sides) / peak, other.reshape(sides) / peak
    window = min(_WINDOW, (min(one.shape) - 1) // 2 * 2 + 1)
    extent = max(one.max(), other.max()) - min(one.min(), other.min())
    least = (_K1 * extent) ** 2, (_K2 * extent) ** 2
    count = window**one.ndim
    means = [uniform_filter(values, window) for values in (one, other, one * one, other * other, one * other)]
    unbiased = count / max(1, count - 1)
    varies, other_varies = unbiased * (means[2] - means[0] ** 2), unbiased * (means[3] - means[1] ** 2)
    vary = unbiased * (means[4] - means[0] * means[1])
    above = (2 * means[0] * means[1] + least[0]) * (2 * vary + least[1])
    below = (means[0] ** 2 + means[1] ** 2 + least[0]) * (varies + other_varies + least[1])
    edge = window // 2
    inner = tuple(slice(edge, size - edge) for size in sides)
    return float(np.clip((above / below)[inner].mean(), -1.0, 1.0))
