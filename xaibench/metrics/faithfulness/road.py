"""ROAD (remove and debias): pixels are imputed, so that the model cannot detect which ones were removed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.core.checks import check_amount, check_choice
from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.kernels.compilation import kernels_enabled
from xaibench.metrics.shared.inputs import Scores, without_unit_axes
from xaibench.metrics.shared.model_scores import (
    MakeRows,
    Model,
    ModelOutput,
    checked_inputs,
    count_of_share,
    model_scorer,
    random_generator,
)
from xaibench.metrics.shared.perturb import constant, ranks, reduce_curves
from xaibench.registry.info import MetricInfo
from xaibench.tensors.workers import background_threads

#: Pixels that are removed first: the most relevant ones, the least relevant ones, or both in turn.
Order: TypeAlias = Literal["both", "morf", "lerf"]

# Neighbors and their weights: direct and diagonal ones in an image, direct ones in a volume.
_NEIGHBORS: dict[int, list[tuple[tuple[int, ...], float]]] = {
    2: [((i, j), 1 / 12 if i and j else 1 / 6) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j],
    3: [(offset, 1 / 6) for offset in itertools.product((-1, 0, 1), repeat=3) if np.abs(offset).sum() == 1],
}


#: Norm of the residual, relative to the right side, at which conjugate gradients end.
_TOLERANCE = 1e-12


@MetricInfo(
    "ROAD",
    "model",
    higher_is_better=True,
    range=(-1.0, 1.0),
    meaning="Half of the difference between two drops of the class’s score: with the most important pixels imputed "
    "from their surroundings, and with the least important ones. About 0: no better than chance.",
    pitfalls='With `order="both"` a random map scores about 0 on every network. The scores of `both`, `morf` and'
    " `lerf` have different ranges: state the order. The solver runs on the CPU.",
    picture="imputed pixels",
    class_name="ROAD",
    revision=2,
    citation="Rong, Leemann, Borisov, Kasneci, Kasneci: A Consistent and Efficient Evaluation Strategy for "
    "Attribution Methods, ICML 2022, arXiv 2202.00449",
)
def road(
    model: Model,
    images: Array,
    maps: Array,
    targets: Array,
    *,
    percentiles: Sequence[float] = (10, 20, 30, 40, 50, 60, 70, 80, 90),
    order: Order = "both",
    noise_std: float = 0.01,
    seed: int = 0,
    output: ModelOutput = "probability",
    batch_size: int | None = None,
    reduction: Reduction = "mean",
    return_curves: bool = False,
) -> Scores:
    r"""Difference in the drop of the target's score when important and when unimportant pixels are imputed.

    .. math:: \frac{1}{2P} \sum_p \bigl(f_y(x^{\mathrm{LeRF}}_p) - f_y(x^{\mathrm{MoRF}}_p)\bigr)

    In :math:`x^{\mathrm{MoRF}}_p` the p percent most relevant pixels are removed (most relevant first), in
    :math:`x^{\mathrm{LeRF}}_p` the least relevant ones. All removed pixels at once become the weighted mean of their
    eight neighbors (weight 1/6, diagonal neighbors 1/12; fewer neighbors at the border). This is the solution of a
    sparse linear system; a little noise hides its smoothness. Rong et al. (2022), Section 4.3. Higher is better for
    every ``order``:

    - ``"both"``: the formula above, in [-1/2, 1/2] for probabilities (ROAD combined in pytorch-grad-cam);
    - ``"morf"``: mean of :math:`f_y(x) - f_y(x^{\mathrm{MoRF}}_p)`, in [-1, 1];
    - ``"lerf"``: mean of :math:`f_y(x^{\mathrm{LeRF}}_p) - f_y(x)`, in [-1, 1]. ``"both"`` is the mean of the two.

    In a volume, the neighbors of a voxel are the six that share a face with it, with weight 1/6 each; the paper has no
    weights for volumes. A volume of one slice is an image, with eight neighbors.

    Departures: the authors average the accuracy over a data set; for that, pass a callable ``output`` that is one at
    the largest logit. pytorch-grad-cam removes the pixels at or above a percentile of the map, so that tied pixels are
    removed together; here exactly p percent are removed, and ties are broken by pixel order. Its
    ``ROADMostRelevantFirst`` has the opposite sign. Quantus' ``ROAD`` averages over the first batch only, and its noise
    comes from the global generator.

    The system is solved on the CPU by conjugate gradients, for images with a multigrid cycle, to a billionth of the
    range of values. Images on other devices are copied to the CPU, where several threads solve while the device runs
    the model.

    Args:
        model: Called with ``[n, C, H, W]``, returns ``[n, K]``.
        images: ``[N, C, H, W]``.
        maps: ``[N, H, W]``; the largest value is the most relevant.
        targets: ``[N]``.
        percentiles: Percentages of the pixels that are removed, above 0 and below 100.
        order: ``"both"``, ``"morf"`` or ``"lerf"``.
        noise_std: Standard deviation of the noise on imputed pixels, in the units of the images.
        seed: Seed of the noise, which is the same for all samples.
        output: Class score, a name or a callable; see :func:`deletion`.
        batch_size: Rows per forward pass; ``None`` chooses a number that suits the image size.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.
        return_curves: Return ``(scores, curves)``; the curves are the terms of the mean above over the share of removed
            pixels.

    Returns:
        The score; ``nan`` for a constant map, which does not rank pixels.

    Raises:
        ValueError: If shapes do not match, values are not finite, a target is not a class, the model does not return
            ``[N, K]``, or a parameter is out of range.
        TypeError: If images, maps or targets are not arrays or tensors of a suitable type.

    Example:
        >>> import torch
        >>> model = lambda images: images.amax((2, 3))
        >>> image = torch.zeros(1, 1, 4, 4)
        >>> image[0, 0, 1, 2] = 1.0  # all that counts
        >>> road(model, image, image[:, 0], torch.tensor([0]), noise_std=0.0, output="logit")
        0.5
    """
    samples, values = checked_inputs(model, images, maps, targets, output, batch_size, reduction, seed)
    check_choice("order", order, ("both", "morf", "lerf"))
    check_amount("noise_std", noise_std, above=False)
    _check_percentiles(percentiles)
    pixels = samples.pixels
    if pixels == 1:
        raise ValueError("images must have more than one pixel, because removed pixels are imputed from the others.")
    counts = [min(count_of_share(percentile / 100, pixels), pixels - 1) for percentile in percentiles]
    turns = {"both": (True, False), "morf": (True,), "lerf": (False,)}[order]
    points = [(most_first, number) for most_first in turns for number in range(len(counts))]

    @lru_cache(maxsize=16)  # the same for all samples, which follow each other at each share
    def random_noise(number: int) -> Floats:
        return np.asarray(noise_std * random_generator(seed, number).standard_normal(samples.images.shape[1:]))

    def prepare(group: slice) -> MakeRows:
        # The solver runs on the CPU: copy everything that a group needs at once.
        image, rank = samples.images[group], ranks(values[group]).cpu().numpy()
        exact: Floats = image.double().cpu().numpy()

        def row(sample: int, point: int) -> Floats:
            if point == len(points):  # the last point is the image itself
                return np.asarray(exact[sample])
            most_first, number = points[point]
            removed = rank[sample] < counts[number] if most_first else rank[sample] >= pixels - counts[number]
            return np.asarray(imputed(exact[sample], removed) + removed * random_noise(number))

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            with background_threads(image.device) as submit:
                pending = [submit(row, *pair) for pair in zip(sample.tolist(), point.tolist(), strict=True)]
                return torch.from_numpy(np.stack([wait() for wait in pending])).to(image)

        return rows

    with model_scorer(model, samples, len(points) + 1, output=output, batch_size=batch_size) as scorer:
        scores = scorer.predict(samples, len(points) + 1, prepare)
    change = (scores[:, :-1] - scores[:, -1:]).reshape(len(samples), -1, len(counts))
    sign = torch.tensor([-1.0 if most_first else 1.0 for most_first in turns], device=change.device)
    curve = (sign[:, None].double() * change).mean(1)
    curve.masked_fill_(constant(values)[:, None], torch.nan)
    fractions = torch.tensor(counts, dtype=torch.float64, device=curve.device) / pixels
    return reduce_curves(curve.mean(1), fractions, curve, reduction, maps, return_curves)


def imputed(image: Floats, removed: Bools) -> Floats:
    """Replace all removed pixels at once by the weighted mean of their neighbors.

    The equations ``sum_j w_ij (x_i - x_j) = 0`` of the removed pixels i have a symmetric, positive definite matrix: it
    is a part of the Laplacian of the grid, and every removed pixel is connected to one that is not removed.

    Args:
        image: ``[C, H, W]`` or ``[C, D, H, W]``.
        removed: Spatial axes of the image, not everywhere true.

    Example:
        >>> line = np.array([[[0.0, 9.0, 9.0, 3.0]]])
        >>> imputed(line, np.array([[False, True, True, False]])).round(6).tolist()
        [[[0.0, 1.0, 2.0, 3.0]]]
    """
    if not removed.any():
        return image
    sides = without_unit_axes(removed.shape)
    problem = image.reshape(len(image), *sides), removed.reshape(sides)
    filled = None
    if len(sides) == 2 and kernels_enabled():
        from xaibench.kernels.multigrid import impute_on_grid  # loads numba

        filled = impute_on_grid(*problem)
    return (solve_sparse(*problem) if filled is None else filled).reshape(image.shape)


def solve_sparse(image: Floats, removed: Bools) -> Floats:
    """Impute by a sparse matrix: images by factorization, volumes by conjugate gradients.

    Multigrid is up to twenty times as fast for images of 224×224. The factors of a volume would fill the memory.
    """
    from scipy.sparse import csc_matrix, diags_array
    from scipy.sparse.linalg import cg, splu

    unknowns = int(removed.sum())
    places, sides = np.array(np.nonzero(removed)), np.array(removed.shape)[:, None]
    number = np.full(removed.shape, -1)
    number[removed] = np.arange(unknowns)
    diagonal, right = np.zeros(unknowns), np.zeros((unknowns, len(image)))
    entries: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    for offset, weight in _NEIGHBORS[removed.ndim]:
        moved = places + np.array(offset)[:, None]
        inside = np.flatnonzero(((moved >= 0) & (moved < sides)).all(axis=0))
        moved = moved[:, inside]
        other = number[tuple(moved)]
        unknown = other >= 0
        diagonal[inside] += weight
        right[inside[~unknown]] += weight * image[:, *moved[:, ~unknown]].T
        entries.append((inside[unknown], other[unknown], np.full(int(unknown.sum()), -weight)))
    entries.append((np.arange(unknowns), np.arange(unknowns), diagonal))
    rows, columns, numbers = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = csc_matrix((numbers, (rows, columns)), shape=(unknowns, unknowns))
    result = image.copy()
    if removed.ndim == 3:
        scale = diags_array(1 / diagonal)
        result[:, removed] = [cg(matrix, column, rtol=_TOLERANCE, M=scale)[0] for column in right.T]
    else:  # symmetric and positive definite: no pivoting is needed, and a symmetric ordering has less fill-in
        solver = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        result[:, removed] = solver.solve(right).T
    return result


def _check_percentiles(percentiles: Sequence[float]) -> None:
    if isinstance(percentiles, str) or not isinstance(percentiles, Sequence) or len(percentiles) == 0:
        raise ValueError(f"percentiles must be a sequence of numbers between 0 and 100, got {percentiles!r}.")
    for percentile in percentiles:
        if not 0 < percentile < 100:
            raise ValueError(f"percentiles must be above 0 and below 100, got {percentile!r}.")
