"""Permutation feature importance.

The estimator agrees with Captum (tested), which evaluates one perturbation at a time. Here the perturbations of many
images share a forward pass, the outputs are not rounded to float32, and the explainer has its own random generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.explainers.base import blocks, reduce_channels
from xaibench.explainers.perturbation.feature_attribution import FeatureAttribution, plain_outputs, row_outputs
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps
from xaibench.registry.info import ExplainerInfo
from xaibench.registry.parameters import Frozen


@ExplainerInfo(
    "PFI",
    family="Perturbations",
    needs_gradient=False,
    citation="Fisher, Rudin, Dominici: All Models are Wrong, but Many are Useful. JMLR 20(177), 2019.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class PFI(FeatureAttribution):
    """Permutation feature importance: the decrease of the output when a feature is replaced by that of another image.

    The map of image i at feature f is f(x_i) - f(x_i with feature f of x_p(i)), with one random permutation p (never
    the identity) per feature within each group of ``group_size`` images. By definition, the map depends on the other
    images of the group. With ``torch.manual_seed(seed)``, Captum's ``FeaturePermutation`` draws the same permutations.
    On a CPU, small networks compute only the changes caused by a swap
    (:mod:`xaibench.kernels.pixel_updates.incremental_passes`).

    Attributes:
        group_size: Number of images, in their order, among which a feature is permuted; 50 in the XAI-TRIS runs. If a
            single image is left over, it joins the previous group.
        seed: Seed of the permutations.
    """

    least: ClassVar = Frozen({"group_size": 2})

    group_size: int = 50
    seed: int = 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            ValueError: If there is only one image.
        """
        if len(images) < 2:
            raise ValueError("pfi: got 1 image, expected at least 2, since features are swapped between images.")
        rng = torch.Generator().manual_seed(self.seed)
        starts = list(range(0, len(images), self.group_size))
        if len(images) - starts[-1] == 1:
            starts.pop()
        features = self.features(images)
        passes = IncrementalPasses.find(model, images, images[0].numel() / features.most)
        falls = []
        for start, stop in zip(starts, [*starts[1:], len(images)], strict=True):
            group = slice(start, stop)
            permutations = [_moving_permutation(stop - start, rng) for _ in range(features.most)]
            others = torch.stack(permutations, 1).to(images.device)
            falls.append(self._output_drops(model, passes, images[group], targets[group], features.of(group), others))
        return reduce_channels(features.attributions(torch.cat(falls)), self.channels)

    def _output_drops(
        self,
        model: nn.Module,
        passes: IncrementalPasses | None,
        images: Tensor,
        targets: Tensor,
        index: Tensor,
        others: Tensor,
    ) -> Tensor:
        """Compute the decrease of the output for each image of a group, ``[n, F]``, with features of ``others``."""
        flat, most, count = images.flatten(1), others.shape[1], self.rows_of(model, images)
        whole = plain_outputs(model, images, targets, count)
        found = None if passes is None else self._swapped_outputs(passes, images, targets, index, others)
        if found is not None:
            return whole[:, None] - found
        fall = whole[:, None].repeat(1, most)
        for samples, steps in blocks(len(images), most, count):
            chosen = torch.arange(steps.start, steps.stop, device=flat.device)[:, None]
            swapped = (index if len(index) == 1 else index[samples])[:, None] == chosen
            rows = torch.where(swapped, flat[others[samples, steps]], flat[samples, None])
            fall[samples, steps] -= row_outputs(model, rows, images, targets[samples])
        return fall

    def _swapped_outputs(
        self, passes: IncrementalPasses, images: Tensor, targets: Tensor, index: Tensor, others: Tensor
    ) -> Tensor | None:
        """Compute the outputs ``[n, F]`` with each feature swapped, incrementally."""
        flat = images.flatten(1)
        there = flat.gather(0, others.gather(1, index.expand(len(flat), -1)))
        swapped = torch.where(index == others.shape[1] - 1, there, flat).reshape(images.shape)
        last = plain_outputs(passes.model, swapped, targets, self.rows_of(passes.model, images))
        steps = Steps.of(index, others.shape[1])
        to = there.gather(1, steps.which.expand(len(flat), -1))
        return passes.outputs(images, steps, to, targets, last, carry=False)


def _moving_permutation(n: int, rng: torch.Generator) -> Tensor:
    """Draw a random permutation other than the identity (single images may keep their place)."""
    while torch.equal(permutation := torch.randperm(n, generator=rng), torch.arange(n)):
        pass
    return permutation
