"""Permutation feature importance and Shapley sampling; the linear surrogates are in :mod:`.lime`.

The estimators agree with Captum (tested), which evaluates one perturbation at a time. Here the
perturbations of many images share a forward pass, the outputs are not rounded to float32, and each explainer has its
own random generator. As in Captum, every channel of every pixel is a feature unless a ``feature_mask`` is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.compute.batching import BatchSize
from xaibench.core.checks import check_count
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.base import (
    Attribution,
    blocks,
    chunks,
    reduce_channels,
    target_output,
)
from xaibench.explainers.shared.passes import Repeating
from xaibench.explainers.shared.pixel_features import FeatureMask, Features, check_feature_mask, find_features
from xaibench.kernels.pixel_updates.first_layer import FlatLinear
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps


@dataclass(frozen=True, kw_only=True)
class FeatureAttribution(Attribution):
    """Base class with the parameters of explainers that perturb features.

    Every pixel of a feature gets the full attribution of the feature, as in Captum.

    Attributes:
        feature_mask: ``"values"`` or ``None``: every value of every channel is a feature. ``"grid"``: square cells.
            ``"slic"``: superpixels of each image. ``"auto"``: values for an image of up to 1024 values (32×32 with one
            channel), otherwise superpixels. An integer tensor ``[H, W]``, ``[N, H, W]``, ``[1, C, H, W]`` or ``[N, C,
            H, W]``, in which equal numbers form a feature. Except for values and masks with C > 1, a feature covers all
            channels of its pixels, and ``channels`` has no effect.
        cell_size: Side of a grid cell in pixels.
        n_segments: Approximate number of superpixels per image.
    """

    feature_mask: FeatureMask = field(default=None, repr=False, compare=False)
    cell_size: int = 16
    n_segments: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("cell_size", self.cell_size, owner=type(self).__name__)
        check_feature_mask(type(self).__name__, self.feature_mask)

    def rows_of(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of rows per forward pass of the model.

        A linear layer on the whole image is fastest with many rows, since its weights are read once per pass. A
        convolution is fastest with few, since its intermediate results are larger than the image and would not fit into
        the CPU cache.
        """
        rows, size = self.rows(images), images[0].numel()
        flat = any(isinstance(layer, nn.Linear) and layer.in_features == size for layer in model.modules())
        return max(rows, min(128, 2**19 // size)) if flat and not self.batch_size else rows

    def passes(self, images: Tensor) -> int:
        """Return the number of passes: one per feature, for explainers that draw no samples.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The number of passes; approximate if each image has its own superpixels.
        """
        return len(images) * (1 + self.feature_count(images))

    def cheaper(self) -> str:
        """Return how to reduce the number of passes, for messages.

        Returns:
            The change in words.
        """
        return "feature_mask='slic' or 'grid'"

    def features(self, images: Tensor) -> Features:
        """Return the features of images ``[N, C, H, W]``."""
        return find_features(self.feature_mask, images, self.cell_size, self.n_segments)

    def feature_count(self, images: Tensor) -> int:
        """Return the number of features per image, taken from the first image if segmentation is needed.

        Args:
            images: ``[N, C, H, W]``; a user-defined mask applies to all of them.

        Returns:
            The number of features.
        """
        given = isinstance(self.feature_mask, Tensor)
        return self.features(images if given else images[:1]).most


@described(
    ExplainerInfo(
        "PFI",
        family="Perturbations",
        citation="Fisher, Rudin, Dominici: All Models are Wrong, but Many are Useful. JMLR 20(177), 2019.",
        exact_zero=True,
    )
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

    group_size: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.group_size, bool) or not isinstance(self.group_size, int) or self.group_size < 2:
            raise ValueError(f"PFI(group_size={self.group_size!r}): expected an integer of at least 2.")

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
    identity = torch.arange(n)
    while torch.equal(permutation := torch.randperm(n, generator=rng), identity):
        pass
    return permutation


@described(
    ExplainerInfo(
        "Shapley Value Sampling",
        family="Perturbations",
        citation="Castro, Gómez, Tejada: Polynomial calculation of the Shapley value based on sampling. 2009.",
        revision=3,
        exact_zero=True,
    )
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
        """Return which other parameter reduces the passes, for messages."""
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
        values = flat.new_empty(len(flat), features.most + 1)
        with torch.no_grad():
            values[:, 0] = model(torch.full_like(images[:1], self.baseline))[0, targets]
        total = flat.new_zeros(len(flat), features.most)
        for permutation in permutations.to(flat.device):
            rank = permutation.argsort()
            for samples, steps in blocks(len(flat), features.most, rows):
                run = partial(row_outputs, model, images=images, targets=targets[samples])
                joined = partial(self._coalition_rows, flat[samples], rank[features.of(samples)])
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
        for samples in BatchSize(size).parts(len(flat)):
            x, y, index = flat[samples], targets[samples], features.of(samples)
            for some in BatchSize(max(1, size // len(x))).parts(len(ranks)):
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

    def _coalition_rows(self, flat: Tensor, rank: Tensor, steps: Tensor) -> Tensor:
        """Return rows ``[n, s, V]``; step k is the coalition of the first k + 1 features."""
        return torch.where(rank[:, None] <= steps[:, None], flat[:, None], self.baseline)


def plain_outputs(model: nn.Module, images: Tensor, targets: Tensor, rows: int) -> Tensor:
    """Return target outputs ``[n]``, with at most ``rows`` rows per pass."""
    return torch.cat([target_output(model, x, y) for x, y in chunks(rows, images, targets)])


def row_outputs(model: nn.Module, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
    """Return target outputs ``[n, s]`` of the rows ``[n, s, features]`` of n samples."""
    shaped = rows.reshape(-1, *images.shape[1:])
    return target_output(model, shaped, targets.repeat_interleave(rows.shape[1])).reshape(rows.shape[:2])
