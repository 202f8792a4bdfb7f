"""Shapley values by sampling permutations; the linear surrogates are in :mod:`.lime` and :mod:`.kernel_shap`.

The estimator agrees with Captum (tested), which evaluates one perturbation at a time. Here the perturbations of many
images share a forward pass, the outputs are not rounded to float32, and the explainer has its own random generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.explainers.base import blocks, reduce_channels
from xaibench.explainers.perturbation.feature_attribution import (
    FeatureAttribution,
    Features,
    plain_outputs,
    row_outputs,
)
from xaibench.explainers.shared.passes import Repeating
from xaibench.kernels.pixel_updates.first_layer import FlatLinear
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.batching import BatchSize


@ExplainerInfo(
    "Shapley Value Sampling",
    family="Perturbations",
    needs_gradient=False,
    citation="Castro, Gómez, Tejada: Polynomial calculation of the Shapley value based on sampling. 2009.",
    revision=3,
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class ShapleySampling(Repeating, FeatureAttribution):
    """Shapley values by sampling permutations: the mean increase of the output when a feature joins its predecessors.

    The permutations are shared by all images with the same number of features. With ``torch.manual_seed(seed)``,
    Captum's ``ShapleyValueSampling`` draws the same. The maps sum to f(x) - f(baseline) up to rounding. On a CPU, a
    small sequential network of convolution, ReLU, pooling and linear layers is updated incrementally
    (:mod:`xaibench.kernels.pixel_updates.incremental_passes`). Other networks that start with a linear layer update
    the output of that layer (:mod:`xaibench.kernels.pixel_updates.first_layer`). Both change the maps by rounding only.

    Attributes:
        n_samples: Number of permutations.
        baseline: Value of a feature that has not joined yet.
        seed: Seed of the permutations.
    """

    counted: ClassVar[str] = "n_samples"

    n_samples: int = 25
    baseline: float = 0.0
    seed: int = 0

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and permutation: one per feature."""
        return self.feature_count(images)

    def alike(self, images: Tensor) -> list[list[int]]:
        """Group the images by their number of features; one group if a mask is given."""
        if isinstance(self.feature_mask, Tensor):
            return super().alike(images)
        return [which for which, _ in self.features(images).alike(len(images))]

    def cheaper_each(self) -> str:
        """Return advice on other parameters that reduce the passes, for error messages."""
        return "feature_mask='slic' or 'grid'"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        maps = images.new_empty(len(images), *images.shape[2:])
        for which, features in self.features(images).alike(len(images)):
            found = self._shapley_values(model, images[which], targets[which], features)
            maps[which] = reduce_channels(features.attributions(found), self.channels)
        return maps

    def _shapley_values(self, model: nn.Module, images: Tensor, targets: Tensor, features: Features) -> Tensor:
        """Compute the Shapley values ``[n, F]`` of images with F features each."""
        rng = torch.Generator().manual_seed(self.seed)
        permutations = torch.stack([torch.randperm(features.most, generator=rng) for _ in range(self.n_samples)])
        passes = IncrementalPasses.find(model, images, images[0].numel() / features.most)
        carried = (
            None
            if passes is None
            else self._incremental_values(passes, images, targets, features, permutations.argsort(1))
        )
        if carried is not None:
            return carried
        flat = images.flatten(1)
        first = FlatLinear.find(model, images[:1]) if features.single else None
        rows = self.rows_of(model, images)
        if first is not None and flat.device.type != "cpu" and not self.batch_size:
            rows = first.rows(rows)
        values = flat.new_empty(len(flat), features.most + 1)
        with torch.no_grad():
            values[:, 0] = model(torch.full_like(images[:1], self.baseline))[0, targets]
        total = flat.new_zeros(len(flat), features.most)
        for permutation in permutations.to(flat.device):
            rank = permutation.argsort()
            for samples, steps in blocks(len(flat), features.most, rows):
                run = partial(row_outputs, model, images=images, targets=targets[samples])
                x, own_rank = flat[samples, None], rank[features.of(samples)][:, None]

                def joined(k: Tensor, x: Tensor = x, own_rank: Tensor = own_rank) -> Tensor:
                    # Rows [n, s, V]; step k is the coalition of the first k + 1 features.
                    return torch.where(own_rank <= k[:, None], x, self.baseline)

                found = None
                if first is not None:
                    ends = joined(torch.tensor([steps.start - 1, steps.stop - 1], device=flat.device))
                    found = first.outputs(run, ends, permutation[steps])
                if found is None:
                    first, found = None, run(joined(torch.arange(steps.start, steps.stop, device=flat.device)))
                values[samples, 1:][:, steps] = found
            total += values.diff(dim=1)[:, rank]
        return total / self.n_samples

    def _incremental_values(
        self, passes: IncrementalPasses, images: Tensor, targets: Tensor, features: Features, ranks: Tensor
    ) -> Tensor | None:
        """Compute the values incrementally; ``ranks [P, F]`` is the step at which each feature joins."""
        start, flat, count = torch.full_like(images[:1], self.baseline), images.flatten(1), features.most
        with torch.no_grad():
            first = passes.model(start)[0, targets]
        whole = plain_outputs(passes.model, images, targets, self.rows_of(passes.model, images))
        total, size = flat.new_zeros(len(flat), count), passes.walks(flat.shape[1])
        for samples in BatchSize(size).slices(len(flat)):
            x, y, index = flat[samples], targets[samples], features.of(samples)
            for some in BatchSize(max(1, size // len(x))).slices(len(ranks)):
                place = ranks[some][:, index]
                steps, walks = Steps.of(place.flatten(0, 1), count), len(place)
                which = steps.which.reshape(place.shape).expand(-1, len(x), -1)
                to = x.expand(walks, -1, -1).gather(2, which).flatten(0, 1)
                found = passes.outputs(start, steps, to, y.repeat(walks), whole[samples].repeat(walks), carry=True)
                if found is None:
                    return None
                rises = found.reshape(walks, len(x), count).diff(
                    dim=2, prepend=first[samples, None].expand(walks, -1, -1)
                )
                total[samples] += rises.gather(2, ranks[some][:, None].expand_as(rises)).sum(0)
        return total / len(ranks)
