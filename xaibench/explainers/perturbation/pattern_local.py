"""PatternLocal: the weights of a local linear surrogate times the covariance of the training images near the image.

Its parameters can be tuned on training images (:func:`tune_pattern_local`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount, check_count
from xaibench.explainers.api import explain
from xaibench.explainers.base import blocks, chunks
from xaibench.explainers.perturbation.feature_attribution import row_outputs
from xaibench.explainers.perturbation.surrogate import KernelSHAP, draw_coalitions
from xaibench.explainers.shared.fitting import LocalPattern, NotFittedError
from xaibench.explainers.shared.passes import Repeating
from xaibench.network.answers import OutputOrFunction
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import normal_numbers, sample_generators

#: The linear surrogate (see :class:`PatternLocal`).
Surrogate: TypeAlias = Literal["lime", "kernel_shap"]


@ExplainerInfo(
    "PatternLocal",
    family="Patterns",
    needs_gradient=False,
    revision=2,
    citation="Gjølbye, Haufe, Hansen: Minimizing False-Positive Attributions in Explanations of Non-Linear Models. "
    "arXiv:2505.11210, 2025.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class PatternLocal(LocalPattern, Repeating):
    """The weights w of a linear surrogate near x, times the covariance C of the training images near x: C w.

    For a linear network with equal weights of all training images, this is the pattern of Haufe et al. (2014) up to a
    factor: a suppressor, which the network uses only to cancel noise elsewhere, gets zero. With weights by distance it
    may get a small value. C is the covariance of the ``neighbor_fraction`` nearest training images in the Euclidean
    distance d, weighted by exp(-d² / 2 h²), with h the median of their distances. This agrees with the solver
    ``local_covariance`` of the authors' package ``patternlocal`` (tested).

    The surrogate ``"lime"`` is the one of the authors' package for values that are not discretized, LIME for tabular
    data: each value is perturbed by Gaussian noise with the standard deviation of that value over the training images
    (1 if it is constant), and a ridge regression with the weights exp(-d² / (2 kernel_width² V)) is fitted to the
    outputs, with d the Euclidean distance in standard deviations and V the number of values. The image itself is one of
    the samples.

    The surrogate ``"kernel_shap"`` evaluates coalitions of values, drawn from the Shapley kernel as in
    :class:`.KernelSHAP`; a value b_i that is left out is the mean of the training images. With u_i the weight per
    standard deviation s_i, the outputs are fitted by ridge regression under the constraint that the contributions
    u_i (x_i - b_i) / s_i sum to f(x) - f(b). Without penalty they are the values of Kernel SHAP. The paper names this
    surrogate; its package has LIME only, so the weight per unit of the value is the definition of this library.

    Departures: the weights w are per unit of the value, as the equations of the paper need, where the package takes
    them per standard deviation. The margin is explained, so that the surrogate is zero at the decision boundary; the
    package explains a probability. There is no reduction to superpixels or principal components, so the surrogate of a
    large image needs memory for ``n_samples`` copies of it. The paper tunes the parameters on validation images with
    known masks: :func:`.tune_pattern_local`.

    Attributes:
        surrogate: ``"lime"`` or ``"kernel_shap"``.
        n_samples: Perturbed copies per image, including the image itself. With fewer than V + 1, the weights are mostly
            random.
        alpha: Penalty of the ridge regression, on the weights per standard deviation.
        kernel_width: Width of the kernel of ``"lime"``, in units of the root of the number of values.
    """

    counted: ClassVar[str] = "n_samples"
    fewest: ClassVar[int] = 2

    surrogate: Surrogate = "lime"
    n_samples: int = 5000
    alpha: float = 1.0
    kernel_width: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_samples < self.fewest:
            raise ValueError(f"PatternLocal(n_samples={self.n_samples}): expected at least 2, with the image itself.")
        if self.surrogate == "kernel_shap" and self.n_samples < KernelSHAP.fewest:
            raise ValueError(
                f"PatternLocal(surrogate='kernel_shap', n_samples={self.n_samples}): expected at least 3, with the "
                "full and the empty coalition."
            )
        for name in ("alpha", "kernel_width"):
            check_amount(name, getattr(self, name), owner="PatternLocal")

    def _surrogates(self, model: nn.Module, images: Tensor, targets: Tensor, training: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights ``[N, V]`` of the ridge regressions and their values ``[N]`` at the images."""
        scale = training.std(0, unbiased=False)
        scale = torch.where(scale > 0, scale, 1.0)
        each = zip(chunks(1, images, targets), sample_generators(self.seed, images), strict=True)
        if self.surrogate == "kernel_shap":
            mean = training.mean(0)
            found = [self._shapley_surrogate(model, x, y, mean, scale, rng) for (x, y), rng in each]
        else:
            found = [self._fit(*self._sample(model, image, target, scale, rng)) for (image, target), rng in each]
        weights, values = (torch.stack(parts) for parts in zip(*found, strict=True))
        return weights / scale, values

    def _sample(
        self, model: nn.Module, image: Tensor, target: Tensor, scale: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the offsets ``[s, V]`` of the copies, in standard deviations, and the outputs ``[s]``."""
        cut = list(blocks(1, self.n_samples, self.rows(image)))
        offsets, outputs = [], []
        for (_, steps), noise in zip(cut, normal_numbers([rng], image, cut), strict=True):
            offset = noise.flatten(2)
            if steps.start == 0:
                offset[:, 0] = 0.0
            outputs.append(row_outputs(model, image.flatten(1)[:, None] + scale * offset, image, target)[0])
            offsets.append(offset[0])
        return torch.cat(offsets), torch.cat(outputs)

    def _fit(self, offsets: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the coefficients ``[V]`` of the weighted ridge regression and its value at the image."""
        precise = torch.promote_types(offsets.dtype, torch.float32)
        x, y = offsets.to(precise), outputs.to(precise)
        share = torch.exp(-x.square().sum(1) / (2 * self.kernel_width**2 * x.shape[1]))
        center, level = (share @ x) / share.sum(), (share @ y) / share.sum()
        rows, values = share.sqrt()[:, None] * (x - center), share.sqrt() * (y - level)
        # The primal or the dual problem, whichever is smaller.
        wide = len(x) < x.shape[1]
        gram = rows @ rows.T if wide else rows.T @ rows
        gram.diagonal().add_(self.alpha)
        factor, _ = torch.linalg.cholesky_ex(gram)
        solved = torch.cholesky_solve((values if wide else rows.T @ values)[:, None], factor)[:, 0]
        weights = rows.T @ solved if wide else solved
        return weights.to(offsets), (level - center @ weights).to(offsets)

    def _shapley_surrogate(
        self, model: nn.Module, image: Tensor, target: Tensor, mean: Tensor, scale: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the weights ``[V]`` per standard deviation of the surrogate of Kernel SHAP, and the output at x."""
        x = image.flatten()
        kept = torch.from_numpy(draw_coalitions(rng, self.n_samples, len(x))).to(x.device)
        outputs = torch.cat(
            [
                row_outputs(model, torch.where(kept[None, steps], x, mean), image, target)[0]
                for _, steps in blocks(1, self.n_samples, self.rows(image))
            ]
        )
        precise = torch.promote_types(x.dtype, torch.float32)
        # The full and the empty coalition come first. The surrogate is f(b) + rows @ u.
        reach, y = ((x - mean) / scale).to(precise), outputs.to(precise)
        weights = _constrained_ridge(kept[2:] * reach, y[2:] - y[1], self.alpha, reach, y[0] - y[1])
        return weights.to(x), outputs[0]


def _constrained_ridge(rows: Tensor, values: Tensor, alpha: float, direction: Tensor, total: Tensor) -> Tensor:
    """Minimize |rows u - values|² + alpha |u|² over u ``[V]`` under the constraint direction · u = total."""
    sides = torch.stack([rows.T @ values, direction], 1)
    # (RᵀR + alpha I)⁻¹ B, by the Woodbury identity if there are fewer rows than columns.
    wide = len(rows) < rows.shape[1]
    gram = rows @ rows.T if wide else rows.T @ rows
    gram.diagonal().add_(alpha)
    factor, _ = torch.linalg.cholesky_ex(gram)
    if wide:
        free, along = ((sides - rows.T @ torch.cholesky_solve(rows @ sides, factor)) / alpha).unbind(1)
    else:
        free, along = torch.cholesky_solve(sides, factor).unbind(1)
    # Without a difference from the baseline there is nothing to distribute.
    length = direction @ along
    return free + along * torch.where(length > 0, (total - direction @ free) / length, 0.0)


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
