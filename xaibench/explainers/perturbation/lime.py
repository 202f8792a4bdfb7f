"""LIME: a lasso fitted to the outputs for random coalitions of features.

Sampling distribution, kernel and regression agree with Captum (tested), which evaluates one perturbation or one image
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_amount
from xaibench.explainers.perturbation.surrogate import LinearSurrogate


@ExplainerInfo(
    "LIME",
    family="Perturbations",
    needs_gradient=False,
    revision=4,
    citation="Ribeiro, Singh, Guestrin: Why Should I Trust You? Explaining any Classifier. KDD 2016.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class LIME(LinearSurrogate):
    """The coefficients of a lasso fitted to the outputs for random coalitions of features.

    As in Captum's ``Lime``, each feature is kept with probability 1/2 and otherwise set to the baseline. The weight of
    a perturbation is exp(-d² / (2 kernel_width²)) with d its cosine distance from the image. The lasso minimizes the
    weighted mean squared error / 2 + alpha |coefficients|_1.

    The XAI-TRIS runs use Captum's defaults, ``n_samples=50, alpha=0.01``: few perturbations, and a penalty larger than
    the effect of a pixel on a probability, so the map is often zero everywhere. The defaults here differ for this
    reason; the XAI-TRIS suites set the published values.

    Attributes:
        n_samples: Perturbations per image; ``None``: chosen by the number of features, see :func:`.default_samples`.
        baseline: Value of a feature that is left out.
        seed: Seed of the perturbations. The draws of an image do not depend on its position in the batch.
        alpha: Penalty of the lasso, in units of the output; larger is sparser. ``None``: for each image, a hundredth of
            the smallest penalty for which its map is zero, so the penalty alone never makes a map zero.
        kernel_width: Width of the exponential kernel, in cosine distance.
    """

    alpha: float | None = None
    kernel_width: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("kernel_width", self.kernel_width, owner="LIME")
        if self.alpha is not None:
            check_amount("alpha", self.alpha, above=False, owner="LIME")

    def _coalitions(self, rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
        return rng.random((count, features)) < 0.5

    def _weights(self, images: Tensor, rows: Tensor) -> Tensor:
        exactly = torch.promote_types(rows.dtype, torch.float32)
        distances = 1 - nn.functional.cosine_similarity(images.to(exactly), rows.to(exactly), dim=-1)
        return torch.exp(-(distances**2) / (2 * self.kernel_width**2))

    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        from sklearn import config_context
        from sklearn.linear_model import Lasso

        share = weights / weights.sum()
        # The intercept absorbs any shift. Subtracting it first gives exact zeros for a constant output.
        outputs = outputs - outputs[0]
        outputs = outputs - share @ outputs
        # Above the largest correlation of a feature with the output, all coefficients of the lasso are zero.
        most = float(((masks - share @ masks).T @ (share * outputs)).abs().max())
        alpha = most / 100 if self.alpha is None else self.alpha
        if most == 0 or alpha >= most:
            return torch.zeros(masks.shape[1], dtype=torch.float64)
        # The fit is deterministic, but without random_state sklearn would draw from NumPy's global generator. Its
        # checks of parameters and arrays take longer than the fit of a few perturbations.
        with config_context(skip_parameter_validation=True, assume_finite=True):
            columns = np.asfortranarray(masks.numpy())
            lasso = Lasso(alpha=alpha, random_state=0)
            lasso.fit(columns, outputs.numpy(), sample_weight=weights.numpy(), check_input=False)
        return torch.from_numpy(lasso.coef_)

    def _explain_zero_map(self) -> str:
        if self.alpha is None:
            return super()._explain_zero_map()
        return (
            f"alpha={self.alpha} exceeds the effect of every feature on the output. Use a smaller one, or omit it: "
            "the default adapts to the output."
        )
