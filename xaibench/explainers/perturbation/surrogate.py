"""Base class of LIME and Kernel SHAP: a linear model fitted to the outputs for random coalitions of features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.messages import ParameterWarning, warn_caller
from xaibench.core.process_settings import ignored_warnings
from xaibench.explainers.base import blocks, reduce_channels
from xaibench.explainers.perturbation.feature_attribution import FeatureAttribution, FeatureMask, Features, row_outputs
from xaibench.explainers.shared.passes import Repeating
from xaibench.tensors.host_threads import background_threads
from xaibench.tensors.random_numbers import sample_generators

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
