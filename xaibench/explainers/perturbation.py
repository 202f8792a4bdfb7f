"""Explainers that only look at the output for perturbed images: PFI, Shapley sampling, Kernel SHAP, LIME.

The estimators, sampling distributions, kernels and regressions are Captum's (tested against it), whose implementations
take one perturbation, or one image, at a time. Here the perturbations of many images share a forward pass, the
outputs are not rounded to float32, and each explainer draws from a generator of its own. As in Captum, every channel of
every pixel is a feature.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.explainers.base import Attribution, blocks, chunks, reduce_channels, target_output
from xaibench.types import ExplainerInfo, described


@described(
    ExplainerInfo(
        "PFI",
        citation="Fisher, Rudin, Dominici: All Models are Wrong, but Many are Useful. JMLR 20(177), 2019.",
    )
)
@dataclass(frozen=True, kw_only=True)
class PFI(Attribution):
    """Permutation feature importance: how much the output falls when a feature is swapped for another image's.

    The map of image i at feature f is f(x_i) - f(x_i with feature f of x_p(i)), with one random permutation p, never
    the identity, for each feature within each group of ``group`` images. By definition the map depends on the images
    that share the group. With ``torch.manual_seed(seed)`` Captum's ``FeaturePermutation`` draws the same permutations.

    Attributes:
        group: Images among which a feature is permuted, taken in order; the XAI-TRIS runs permute within 50. A last
            group of one image joins the group before it.
        seed: Of the permutations.
    """

    group: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.group, bool) or not isinstance(self.group, int) or self.group < 2:
            raise ValueError(f"PFI(group={self.group!r}): expected an integer of at least 2, to permute among.")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            ValueError: If there is only one image.
        """
        if len(images) < 2:
            raise ValueError("pfi: got 1 image; it swaps features between images, so it needs at least 2.")
        rng = torch.Generator().manual_seed(self.seed)
        starts = list(range(0, len(images), self.group))
        if len(images) - starts[-1] == 1:
            starts.pop()
        parts = [
            self._explain_group(model, images[start:stop], targets[start:stop], rng)
            for start, stop in zip(starts, [*starts[1:], len(images)], strict=True)
        ]
        return reduce_channels(torch.cat(parts), self.channels)

    def _explain_group(self, model: nn.Module, images: Tensor, targets: Tensor, rng: torch.Generator) -> Tensor:
        flat = images.flatten(1)
        features = flat.shape[1]
        permutations = [_moving_permutation(len(images), rng) for _ in range(features)]
        swapped = flat.gather(0, torch.stack(permutations, 1).to(flat.device))
        plain = [target_output(model, x, y) for x, y in chunks(self.rows(images), images, targets)]
        fall = torch.cat(plain)[:, None].repeat(1, features)
        for samples, steps in blocks(len(images), features, self.rows(images)):
            chosen = torch.arange(steps.start, steps.stop, device=flat.device)
            rows = flat[samples, None].repeat(1, len(chosen), 1)
            rows[:, chosen - steps.start, chosen] = swapped[samples, steps]
            fall[samples, steps] -= _outputs(model, rows, images, targets[samples])
        return fall.reshape(images.shape)


def _moving_permutation(n: int, rng: torch.Generator) -> Tensor:
    """A random permutation that is not the identity (single images may stay)."""
    identity = torch.arange(n)
    while torch.equal(permutation := torch.randperm(n, generator=rng), identity):
        pass
    return permutation


@described(
    ExplainerInfo(
        "Shapley Value Sampling",
        citation="Castro, Gómez, Tejada: Polynomial calculation of the Shapley value based on sampling. 2009.",
    )
)
@dataclass(frozen=True, kw_only=True)
class ShapleySampling(Attribution):
    """Shapley values estimated over random permutations: the mean rise of the output when a feature joins those before.

    The permutations are shared by all images. With ``torch.manual_seed(seed)`` Captum's ``ShapleyValueSampling`` draws
    the same. The maps sum to f(x) - f(baseline), exactly.

    Attributes:
        n_samples: Permutations.
        baseline: Value of a feature that has not joined yet.
        seed: Of the permutations.
    """

    n_samples: int = 25
    baseline: float = 0.0
    seed: int = 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``."""
        rng = torch.Generator().manual_seed(self.seed)
        flat = images.flatten(1)
        features = flat.shape[1]
        values = flat.new_empty(len(flat), features + 1)
        with torch.no_grad():
            values[:, 0] = model(torch.full_like(images[:1], self.baseline))[0, targets]
        total = torch.zeros_like(flat)
        for _ in range(self.n_samples):
            permutation = torch.randperm(features, generator=rng).to(flat.device)
            rank = permutation.argsort()
            # Step k is the coalition of the first k + 1 features of the permutation.
            for samples, steps in blocks(len(flat), features, self.rows(images)):
                last = torch.arange(steps.start, steps.stop, device=flat.device)
                joined = rank <= last[:, None]
                rows = torch.where(joined, flat[samples, None], self.baseline)
                values[samples, 1:][:, steps] = _outputs(model, rows, images, targets[samples])
            total += values.diff(dim=1)[:, rank]
        return reduce_channels((total / self.n_samples).reshape(images.shape), self.channels)


@dataclass(frozen=True, kw_only=True)
class _Surrogate(Attribution, ABC):
    """A linear model fitted, for each image, to the outputs of random coalitions of its features."""

    n_samples: int
    baseline: float = 0.0
    seed: int = 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``: the coefficients of the linear model."""
        # NumPy's generators draw number by number, so that the blocks do not change what is drawn.
        rng = np.random.default_rng(self.seed)
        flat = images.flatten(1)
        coefficients = torch.empty(flat.shape, dtype=torch.float64)
        chunk = max(1, self.rows(images) // self.n_samples)
        for x, y, out in chunks(chunk, flat, targets, coefficients):
            masks = torch.from_numpy(np.stack([self._coalitions(rng, x.shape[1]) for _ in x])).to(x.device)
            outputs = x.new_empty(masks.shape[:2])
            weights = x.new_empty(masks.shape[:2])
            for samples, steps in blocks(len(x), self.n_samples, self.rows(images)):
                rows = torch.where(masks[samples, steps], x[samples, None], self.baseline)
                outputs[samples, steps] = _outputs(model, rows, images, y[samples])
                weights[samples, steps] = self._weights(masks[samples, steps], rows, x[samples, None])
            # The intercept takes up any shift; taken out first, an output that does not vary gives exact zeros and not
            # the noise of rounding. The regressions are small: they are solved on the CPU, in float64.
            outputs = outputs - outputs[:, :1]
            out[:] = self._fit(masks.cpu().double(), outputs.cpu().double(), weights.cpu().double())
        return reduce_channels(coefficients.to(images).reshape(images.shape), self.channels)

    @abstractmethod
    def _coalitions(self, rng: np.random.Generator, features: int) -> NDArray[np.bool_]:
        """``[n_samples, features]``: which features keep their value."""

    @abstractmethod
    def _weights(self, masks: Tensor, rows: Tensor, images: Tensor) -> Tensor:
        """Weight of each perturbation ``[n, s]`` in the regression, from ``[n, s, features]``."""

    @abstractmethod
    def _fit(self, masks: Tensor, outputs: Tensor, weights: Tensor) -> Tensor:
        """Coefficients ``[n, features]`` of the regression of the outputs ``[n, s]`` on the masks."""


@described(
    ExplainerInfo(
        "LIME", citation="Ribeiro, Singh, Guestrin: Why Should I Trust You? Explaining any Classifier. KDD 2016."
    )
)
@dataclass(frozen=True, kw_only=True)
class LIME(_Surrogate):
    """The coefficients of a lasso fitted to the outputs for random coalitions of features.

    As Captum's ``Lime`` by default: each feature is kept with probability 1/2, else set to the baseline; the
    weight of a perturbation is exp(-d² / (2 kernel_width²)) with d its cosine distance from the image; the lasso
    minimises the weighted mean squared error / 2 + alpha |coefficients|_1.

    With the defaults, those of the XAI-TRIS runs, few perturbations meet a strong penalty: the coefficients are often
    all zero, and the map is then all zero. ``n_samples=1000, alpha=0.001`` is a saner choice at 8×8 pixels.

    Attributes:
        n_samples: Perturbations of each image.
        baseline: Value of a feature that is left out.
        seed: Of the perturbations. What is drawn for an image does not depend on ``batch_size``.
        alpha: Penalty of the lasso; larger is sparser.
        kernel_width: Of the exponential kernel, in cosine distance.
    """

    n_samples: int = 50
    alpha: float = 0.01
    kernel_width: float = 1.0

    def _coalitions(self, rng: np.random.Generator, features: int) -> NDArray[np.bool_]:
        return rng.random((self.n_samples, features)) < 0.5

    def _weights(self, masks: Tensor, rows: Tensor, images: Tensor) -> Tensor:
        distance = 1 - nn.functional.cosine_similarity(images, rows, dim=-1)
        return torch.exp(-(distance**2) / (2 * self.kernel_width**2))

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
        citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    )
)
@dataclass(frozen=True, kw_only=True)
class KernelSHAP(_Surrogate):
    """Shapley values as a weighted linear regression of the output on coalitions of features (theorem 2).

    As Captum's ``KernelShap``: the full and the empty coalition with a weight of 10⁶, then coalitions drawn from the
    Shapley kernel with equal weights; of the least-squares solutions the smallest. With fewer perturbations than
    features, as by default, this is far from the Shapley values.

    Attributes:
        n_samples: Coalitions of each image, the full and the empty one included.
        baseline: Value of a feature that is left out.
        seed: Of the coalitions. What is drawn for an image does not depend on ``batch_size``.
    """

    n_samples: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_samples < 3:
            raise ValueError(f"KernelSHAP(n_samples={self.n_samples}): expected at least 3; full and empty are two.")

    def _coalitions(self, rng: np.random.Generator, features: int) -> NDArray[np.bool_]:
        if features < 2:
            raise ValueError("kernel_shap: the images have a single feature, expected at least 2.")
        sizes = np.arange(1, features)
        kernel = 1 / (sizes * (features - sizes))
        size = rng.choice(sizes, self.n_samples - 2, p=kernel / kernel.sum())
        rank = rng.random((self.n_samples - 2, features)).argsort(1).argsort(1)
        full, empty = np.ones((1, features), dtype=bool), np.zeros((1, features), dtype=bool)
        return np.concatenate([full, empty, rank < size[:, None]])

    def _weights(self, masks: Tensor, rows: Tensor, images: Tensor) -> Tensor:
        size = masks.sum(-1)
        return torch.where((size == 0) | (size == masks.shape[-1]), 1e6, 1.0)

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


def _outputs(model: nn.Module, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
    """Target outputs ``[n, s]`` of the rows ``[n, s, features]`` of n samples."""
    shaped = rows.reshape(-1, *images.shape[1:])
    return target_output(model, shaped, targets.repeat_interleave(rows.shape[1])).reshape(rows.shape[:2])
