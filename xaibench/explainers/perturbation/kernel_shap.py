"""Kernel SHAP: a linear regression of the outputs on random coalitions of features, with the sum as a constraint.

Sampling distribution, kernel and regression agree with Captum (tested), which evaluates one perturbation or one image
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.perturbation.surrogate import LinearSurrogate


@ExplainerInfo(
    "Kernel SHAP",
    family="Perturbations",
    needs_gradient=False,
    revision=4,
    citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class KernelSHAP(LinearSurrogate):
    """Shapley values as a linear regression of the output on coalitions of features (theorem 2).

    The coefficients sum to f(x) - f(baseline) exactly, for any ``n_samples``, since the full and the empty coalition
    are constraints. The others are drawn from the Shapley kernel with equal weights. Among the least-squares solutions,
    the one of smallest norm is taken. Captum's ``KernelShap`` gives the full and the empty coalition a weight of 10⁶
    instead, which is equivalent up to rounding. With fewer perturbations than features, such as the 25 of Captum and of
    the XAI-TRIS runs, the result is far from the Shapley values.

    Attributes:
        n_samples: Coalitions per image, including the full and the empty one; ``None``: chosen by the number of
            features, see :func:`.default_samples`.
        baseline: Value of a feature that is left out.
        seed: Seed of the coalitions. The draws of an image do not depend on its position in the batch.
    """

    fewest: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_samples is not None and self.n_samples < 3:
            raise ValueError(
                f"KernelSHAP(n_samples={self.n_samples}): expected at least 3, with the full and the empty one."
            )

    def _coalitions(self, rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
        return draw_coalitions(rng, count, features)

    def _weights(self, images: Tensor, rows: Tensor) -> Tensor:
        return rows.new_ones(rows.shape[:2])

    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        rises = outputs - outputs[1]  # above the empty coalition
        return least_squares_of_sum(masks[2:], rises[2:], rises[0])


def draw_coalitions(rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
    """Draw coalitions from the Shapley kernel; the first two are the full and the empty one.

    Args:
        rng: Source of the random numbers.
        count: Number of coalitions, at least 3.
        features: Number of features F.

    Returns:
        ``[count, F]``: whether each feature is present.
    """
    if features < 2:
        return (np.arange(1, count + 1)[:, None] % 2).astype(bool)  # a single feature is either present or absent
    sizes = np.arange(1, features)
    kernel = 1 / (sizes * (features - sizes))
    size = rng.choice(sizes, count - 2, p=kernel / kernel.sum())
    rank = rng.random((count - 2, features)).argsort(1).argsort(1)
    full, empty = np.ones((1, features), dtype=bool), np.zeros((1, features), dtype=bool)
    return np.concatenate([full, empty, rank < size[:, None]])


def least_squares_of_sum(x: Tensor, y: Tensor, total: Tensor) -> Tensor:
    """Solve ``x b = y`` by least squares, with coefficients that sum to ``total`` and of smallest norm.

    Args:
        x: ``[s, F]``.
        y: ``[s]``.
        total: A number.

    Returns:
        b, ``[F]``.
    """
    # b = total / F + c, where the coefficients c sum to zero and so depend only on the deviations of x from its mean
    # over the features. The solution of smallest norm lies in the span of these deviations, so it sums to zero.
    equal = total / x.shape[1]
    means = x.mean(1, keepdim=True)
    cutoff = max(x.shape) * torch.finfo(x.dtype).eps
    rest = y - equal * x.sum(1)
    changes: Tensor = torch.linalg.lstsq(x - means, rest[:, None], rcond=cutoff, driver="gelsd").solution[:, 0]
    return equal + changes
