"""Explainers that fit a linear model to the outputs of random coalitions of features: LIME and Kernel SHAP.

Sampling distributions, kernels and regressions are Captum's (tested against it), whose implementations take one
perturbation, or one image, at a time; see :mod:`xaibench.explainers.forward.pixel_perturbation`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.compute.sample_draws import sample_generators
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.forward.pixel_perturbation import FeatureAttribution, row_outputs
from xaibench.explainers.shared.interface import blocks, reduce_channels


@dataclass(frozen=True, kw_only=True)
class _Surrogate(FeatureAttribution, ABC):
    """A linear model fitted, for each image, to the outputs of random coalitions of its features."""

    n_samples: int | None = None
    baseline: float = 0.0
    seed: int = 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``: the coefficients of the linear model."""
        generators = sample_generators(self.seed, images)
        flat, features = images.flatten(1), self.features(images)
        count = self.n_samples or default_samples(features.most)
        coefficients = torch.empty(len(flat), features.most, dtype=torch.float64)
        most = self.rows_of(model, images)
        size = max(1, most // count)
        for start in range(0, len(flat), size):
            part = slice(start, min(start + size, len(flat)))
            x, y = flat[part], targets[part]
            masks = torch.zeros(len(x), count, features.most, dtype=torch.bool)
            for i, mask in enumerate(masks):
                own = features.count(start + i)
                mask[:, :own] = torch.from_numpy(self._coalitions(generators[start + i], count, own))
            masks = masks.to(x.device)
            outputs, distances = x.new_empty(masks.shape[:2]), x.new_empty(masks.shape[:2])
            for samples, steps in blocks(len(x), count, most):
                kept = features.spread(masks[samples, steps], slice(start + samples.start, start + samples.stop))
                rows = torch.where(kept, x[samples, None], self.baseline)
                outputs[samples, steps] = row_outputs(model, rows, images, y[samples])
                distances[samples, steps] = 1 - nn.functional.cosine_similarity(x[samples, None], rows, dim=-1)
            # The intercept takes up any shift; taken out first, an output that does not vary gives exact zeros and not
            # the noise of rounding. The regressions are small: they are solved on the CPU, in float64.
            outputs = outputs - outputs[:, :1]
            weights = self._weights(distances)
            coefficients[part] = self._fit(masks.cpu().double(), outputs.cpu().double(), weights.cpu().double())
        return reduce_channels(features.attributions(coefficients.to(images)), self.channels)

    @abstractmethod
    def _coalitions(self, rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
        """``[count, features]``: which features keep their value."""

    @abstractmethod
    def _weights(self, distances: Tensor) -> Tensor:
        """Weights ``[n, s]`` of the perturbations in the regression, from their cosine distances from the image."""

    @abstractmethod
    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        """Coefficients ``[n, features]`` of the regression of the outputs ``[n, s]`` on the masks."""


def default_samples(features: int) -> int:
    """Perturbations of an image when their number is not given: 2 F + 2048, but at most 2²² / F, and at least 50.

    The first is the choice of the ``shap`` package's Kernel SHAP: the F coefficients are well determined. The second
    bounds the regression (32 MiB a matrix) and takes over above some 1000 features, where there are then too few
    perturbations: use a ``feature_mask``.

    Example:
        >>> [default_samples(features) for features in (64, 196, 4096, 150528)]
        [2176, 2440, 1024, 50]
    """
    return max(50, min(2 * features + 2048, 2**22 // features))


@described(
    ExplainerInfo(
        "LIME",
        family="Perturbations",
        revision=3,
        citation="Ribeiro, Singh, Guestrin: Why Should I Trust You? Explaining any Classifier. KDD 2016.",
    )
)
@dataclass(frozen=True, kw_only=True)
class LIME(_Surrogate):
    """The coefficients of a lasso fitted to the outputs for random coalitions of features.

    As Captum's ``Lime`` by default: each feature is kept with probability 1/2, else set to the baseline; the
    weight of a perturbation is exp(-d² / (2 kernel_width²)) with d its cosine distance from the image; the lasso
    minimises the weighted mean squared error / 2 + alpha |coefficients|_1.

    The XAI-TRIS runs take Captum's defaults, ``n_samples=50, alpha=0.01``: few perturbations meet a penalty made for
    outputs that vary by more than a pixel moves a probability, and the map is often zero everywhere. Hence the defaults
    here; the XAI-TRIS suites state the published values.

    Attributes:
        n_samples: Perturbations of each image; ``None``: by the number of features, see :func:`default_samples`.
        baseline: Value of a feature that is left out.
        seed: Of the perturbations. An image draws the same wherever it stands in a batch.
        alpha: Penalty of the lasso; larger is sparser.
        kernel_width: Of the exponential kernel, in cosine distance.
    """

    alpha: float = 0.001
    kernel_width: float = 1.0

    def _coalitions(self, rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
        return rng.random((count, features)) < 0.5

    def _weights(self, distances: Tensor) -> Tensor:
        return torch.exp(-(distances**2) / (2 * self.kernel_width**2))

    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import Lasso

        coefficients = torch.empty(masks.shape[0], masks.shape[2], dtype=torch.float64)
        with warnings.catch_warnings():
            # A saturated output does not vary: there is nothing to fit, and no gap to close.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for i, (x, y, weight) in enumerate(zip(masks.numpy(), outputs.numpy(), weights.numpy(), strict=True)):
                # Nothing in it is random, but without a random_state it would draw from NumPy's global generator.
                lasso = Lasso(alpha=self.alpha, random_state=0).fit(x, y, sample_weight=weight)
                coefficients[i] = torch.from_numpy(lasso.coef_)
        return coefficients


@described(
    ExplainerInfo(
        "Kernel SHAP",
        family="Perturbations",
        revision=3,
        citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    )
)
@dataclass(frozen=True, kw_only=True)
class KernelSHAP(_Surrogate):
    """Shapley values as a weighted linear regression of the output on coalitions of features (theorem 2).

    As Captum's ``KernelShap``: the full and the empty coalition with a weight of 10⁶, then coalitions drawn from the
    Shapley kernel with equal weights; of the least-squares solutions the smallest. With fewer perturbations than
    features, such as the 25 of Captum and of the XAI-TRIS runs, this is far from the Shapley values.

    Attributes:
        n_samples: Coalitions of each image, the full and the empty one included; ``None``: by the number of features,
            see :func:`default_samples`.
        baseline: Value of a feature that is left out.
        seed: Of the coalitions. An image draws the same wherever it stands in a batch.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_samples is not None and self.n_samples < 3:
            raise ValueError(f"KernelSHAP(n_samples={self.n_samples}): expected at least 3; full and empty are two.")

    def _coalitions(self, rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
        if features < 2:
            return (np.arange(1, count + 1)[:, None] % 2).astype(bool)  # a single feature is there or not
        sizes = np.arange(1, features)
        kernel = 1 / (sizes * (features - sizes))
        size = rng.choice(sizes, count - 2, p=kernel / kernel.sum())
        rank = rng.random((count - 2, features)).argsort(1).argsort(1)
        full, empty = np.ones((1, features), dtype=bool), np.zeros((1, features), dtype=bool)
        return np.concatenate([full, empty, rank < size[:, None]])

    def _weights(self, distances: Tensor) -> Tensor:
        weights = torch.ones_like(distances)
        weights[:, :2] = 1e6  # the full and the empty coalition
        return weights

    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        return weighted_least_squares(masks, outputs, weights)


def weighted_least_squares(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """The smallest coefficients ``[n, features]`` of a weighted linear regression with intercept.

    Args:
        x: ``[n, s, features]``.
        y: ``[n, s]``.
        weights: ``[n, s]``.
    """
    share = (weights / weights.sum(1, keepdim=True))[..., None]
    y = y[..., None]
    scale = weights.sqrt()[..., None]
    centred_x = scale * (x - (share * x).sum(1, keepdim=True))
    centred_y = scale * (y - (share * y).sum(1, keepdim=True))
    cutoff = max(x.shape[1:]) * torch.finfo(x.dtype).eps
    solution: Tensor = torch.linalg.lstsq(centred_x, centred_y, rcond=cutoff, driver="gelsd").solution
    return solution.squeeze(-1)
