"""LIME and Kernel SHAP: a linear model fitted to the outputs for random coalitions of features.

Sampling distribution, kernel and regression agree with Captum (tested), which evaluates one perturbation or one image
at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.core.messages import ParameterWarning, warn_caller
from xaibench.core.process_settings import ignored_warnings
from xaibench.explainers.base import blocks, reduce_channels
from xaibench.explainers.perturbation.feature_attribution import FeatureAttribution, FeatureMask, Features, row_outputs
from xaibench.explainers.shared.passes import Repeating
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import sample_generators
from xaibench.tensors.workers import background_threads

_hidden = ignored_warnings("Objective did not converge")


@dataclass(frozen=True, kw_only=True)
class LinearSurrogate(Repeating, FeatureAttribution, ABC):
    """Base class: fit a linear model to the outputs for random coalitions of the features of each image."""

    counted: ClassVar[str] = "n_samples"

    feature_mask: FeatureMask = field(default="auto", repr=False, compare=False)
    n_samples: int | None = None
    baseline: float = 0.0
    seed: int = 0

    def count(self, images: Tensor) -> int:
        """Return the number of perturbations per image, by default chosen by the number of features."""
        return self.n_samples or default_samples(self.feature_count(images))

    def cheaper(self) -> str:
        """Return the parameter to lower, for error messages."""
        return "n_samples" if self.n_samples is None else super().cheaper()

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``: the coefficients of the linear model.

        Warns:
            ParameterWarning: If there are fewer perturbations than features, or a map is zero everywhere.
        """
        generators = sample_generators(self.seed, images)
        maps = images.new_empty(len(images), *images.shape[2:])
        for which, features in self.features(images).alike(len(images)):
            own = [generators[i] for i in which]
            found = self._coefficients(model, images[which], targets[which], features, own)
            maps[which] = reduce_channels(features.attributions(found.to(images)), self.channels)
        empty = int((maps == 0).flatten(1).all(1).sum())
        if empty:
            text = f"{type(self).__name__}: {empty} of {len(maps)} maps are zero everywhere. {self._explain_zero_map()}"
            warn_caller(text, ParameterWarning)
        return maps

    def _coefficients(
        self, model: nn.Module, images: Tensor, targets: Tensor, features: Features, rngs: list[np.random.Generator]
    ) -> Tensor:
        """Return the coefficients ``[n, F]``, float64 on the CPU, of images with F features each."""
        count = self.n_samples or default_samples(features.most)
        if count < features.most:
            warn_caller(
                f"{type(self).__name__}: {count} perturbations do not determine the {features.most} features of an "
                "image, so the map is mostly random. Use more (n_samples), or fewer features: feature_mask='slic' "
                "or 'grid'.",
                ParameterWarning,
            )
        # Here, because the threads that fit share the warning filters.
        with _hidden, background_threads(images.device) as submit:
            regressions = self._evaluate_coalitions(model, images, targets, features, rngs, count)
            # The regressions are small. They are solved on the CPU in float64 while the device continues. The mask is
            # converted when its turn comes, so that it is small while it waits.
            solved = [submit(lambda mask, *data: self._fit(mask.double(), *data), *data) for data in regressions]
            return torch.stack([coefficients() for coefficients in solved])

    def _evaluate_coalitions(
        self,
        model: nn.Module,
        images: Tensor,
        targets: Tensor,
        features: Features,
        rngs: list[np.random.Generator],
        count: int,
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the regression data of each image: coalitions ``[s, F]``, outputs and weights ``[s]``.

        The tensors are on the CPU. The images are evaluated in groups that fit into one pass.
        """
        flat, most = images.flatten(1), self.rows_of(model, images)
        size = max(1, most // count)
        for start in range(0, len(flat), size):
            part = slice(start, min(start + size, len(flat)))
            x, y = flat[part], targets[part]
            drawn = [torch.from_numpy(self._coalitions(rng, count, features.most)) for rng in rngs[part]]
            masks = torch.stack(drawn).to(x.device)
            outputs, weights = x.new_empty(masks.shape[:2]), x.new_empty(masks.shape[:2])
            for samples, steps in blocks(len(x), count, most):
                kept = features.spread(masks[samples, steps], slice(start + samples.start, start + samples.stop))
                rows = torch.where(kept, x[samples, None], self.baseline)
                outputs[samples, steps] = row_outputs(model, rows, images, y[samples])
                weights[samples, steps] = self._weights(x[samples, None], rows)
            yield from zip(drawn, outputs.cpu().double(), weights.cpu().double(), strict=True)

    @abstractmethod
    def _coalitions(self, rng: np.random.Generator, count: int, features: int) -> NDArray[np.bool_]:
        """Draw ``[count, features]``: whether each feature keeps its value."""

    @abstractmethod
    def _weights(self, images: Tensor, rows: Tensor) -> Tensor:
        """Return the regression weights ``[n, s]`` of rows ``[n, s, V]`` made from images ``[n, 1, V]``."""

    @abstractmethod
    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        """Fit the outputs ``[s]`` to the masks ``[s, F]`` and return the coefficients ``[F]``."""

    def _explain_zero_map(self) -> str:
        """Return why a map is zero everywhere and what to do about it."""
        return (
            "The output does not change under the perturbations. A probability may be saturated at 0 or 1; use "
            "output='margin' or 'logit'."
        )


def default_samples(features: int) -> int:
    """Return the default number of perturbations per image: 2 F + 2048, at most 2²² / F, and at least 50.

    The first term is the choice of Kernel SHAP in the ``shap`` package; it determines the F coefficients well. The
    second bounds the size of the regression (32 MiB per matrix). It applies above about 1000 features, where there are
    then too few perturbations: use a ``feature_mask``.

    Example:
        >>> [default_samples(features) for features in (64, 196, 4096, 150528)]
        [2176, 2440, 1024, 50]
    """
    return max(50, min(2 * features + 2048, 2**22 // features))


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
