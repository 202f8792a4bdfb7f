"""Explainers that only look at the output for perturbed images: PFI and Shapley sampling (:mod:`.surrogate` has more).

The estimators are Captum's (tested against it), whose implementations take one perturbation at a time. Here the
perturbations of many images share a forward pass, the outputs are not rounded to float32, and each explainer draws from
a generator of its own. As in Captum, every channel of every pixel is a feature, unless a ``feature_mask`` is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.compute.row_memory import Rows
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.forward.incremental_passes import IncrementalPasses, Steps
from xaibench.explainers.forward.shapley_increments import FlatLinear
from xaibench.explainers.shared.counted_passes import Repeating
from xaibench.explainers.shared.interface import (
    Attribution,
    blocks,
    chunks,
    reduce_channels,
    target_output,
)
from xaibench.explainers.shared.pixel_features import FeatureMask, Features, check_feature_mask, find_features


@dataclass(frozen=True, kw_only=True)
class FeatureAttribution(Attribution):
    """The parameters of the explainers that perturb features.

    Every pixel of a feature gets the whole attribution of the feature, as in Captum.

    Attributes:
        feature_mask: ``"values"`` or ``None``: every value, of each channel by itself, is a feature. ``"grid"``: square
            cells. ``"slic"``: superpixels of each image. ``"auto"``: the values of an image that has up to 1024 (32×32
            of one channel), else superpixels. An integer tensor ``[H, W]``, ``[N, H, W]``, ``[1, C, H, W]`` or
            ``[N, C, H, W]``, in which equal numbers make a feature. Except for values and masks with C > 1, a feature
            takes all channels of its pixels, and ``channels`` has nothing to reduce.
        cell_size: Side of a grid cell in pixels.
        n_segments: Superpixels of an image, about.
    """

    feature_mask: FeatureMask = field(default=None, repr=False, compare=False)
    cell_size: int = 16
    n_segments: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("cell_size", self.cell_size, owner=type(self).__name__)
        check_feature_mask(type(self).__name__, self.feature_mask)

    def rows_of(self, model: nn.Module, images: Tensor) -> int:
        """Rows that one forward pass of the model takes.

        A linear layer on the whole image wants many, since its weights are read once a pass. A convolution wants few:
        what it unfolds and returns is larger than the image, and soon falls out of the processor's cache.
        """
        rows, size = self.rows(images), images[0].numel()
        flat = any(isinstance(layer, nn.Linear) and layer.in_features == size for layer in model.modules())
        return max(rows, min(128, 2**19 // size)) if flat and not self.batch_size else rows

    def passes(self, images: Tensor) -> int:
        """Passes for these images: one a feature, for explainers that draw no samples.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            So many; about, where each image has superpixels of its own.
        """
        return len(images) * (1 + self.feature_count(images))

    def cheaper(self) -> str:
        """What to change.

        Returns:
            In words, with the present value.
        """
        return "feature_mask='slic' or 'grid'"

    def features(self, images: Tensor) -> Features:
        """The features of images ``[N, C, H, W]``."""
        return find_features(self.feature_mask, images, self.cell_size, self.n_segments)

    def feature_count(self, images: Tensor) -> int:
        """Features of an image, about: of the first one where they are to be found, which takes a while.

        Args:
            images: ``[N, C, H, W]``; a mask of one's own is for all of them.

        Returns:
            Their number.
        """
        given = isinstance(self.feature_mask, Tensor)
        return self.features(images if given else images[:1]).most


@described(
    ExplainerInfo(
        "PFI",
        family="Perturbations",
        citation="Fisher, Rudin, Dominici: All Models are Wrong, but Many are Useful. JMLR 20(177), 2019.",
    )
)
@dataclass(frozen=True, kw_only=True)
class PFI(FeatureAttribution):
    """Permutation feature importance: how much the output falls when a feature is swapped for another image's.

    The map of image i at feature f is f(x_i) - f(x_i with feature f of x_p(i)), with one random permutation p, never
    the identity, for each feature within each group of ``group_size`` images. By definition the map depends on the images
    that share the group. With ``torch.manual_seed(seed)`` Captum's ``FeaturePermutation`` draws the same permutations.
    Small networks on a CPU compute only what a swap changes (:mod:`.incremental_passes`).

    Attributes:
        group_size: Images among which a feature is permuted, taken in order; the XAI-TRIS runs permute within 50. A last
            group of one image joins the group before it.
        seed: Of the permutations.
    """

    group_size: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.group_size, bool) or not isinstance(self.group_size, int) or self.group_size < 2:
            raise ValueError(
                f"PFI(group_size={self.group_size!r}): expected an integer of at least 2, to permute among."
            )

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            ValueError: If there is only one image.
        """
        if len(images) < 2:
            raise ValueError("pfi: got 1 image; it swaps features between images, so it needs at least 2.")
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
            falls.append(self._falls(model, passes, images[group], targets[group], features.of(group), others))
        return reduce_channels(features.attributions(torch.cat(falls)), self.channels)

    def _falls(
        self,
        model: nn.Module,
        passes: IncrementalPasses | None,
        images: Tensor,
        targets: Tensor,
        index: Tensor,
        others: Tensor,
    ) -> Tensor:
        """How much the output of each image of a group falls, ``[n, F]``, with features of ``others [n, F]``."""
        flat, most, count = images.flatten(1), others.shape[1], self.rows_of(model, images)
        whole = plain_outputs(model, images, targets, count)
        found = None if passes is None else self._swapped(passes, images, targets, index, others)
        if found is not None:
            return whole[:, None] - found
        fall = whole[:, None].repeat(1, most)
        for samples, steps in blocks(len(images), most, count):
            chosen = torch.arange(steps.start, steps.stop, device=flat.device)[:, None]
            swapped = (index if len(index) == 1 else index[samples])[:, None] == chosen
            rows = torch.where(swapped, flat[others[samples, steps]], flat[samples, None])
            fall[samples, steps] -= row_outputs(model, rows, images, targets[samples])
        return fall

    def _swapped(
        self, passes: IncrementalPasses, images: Tensor, targets: Tensor, index: Tensor, others: Tensor
    ) -> Tensor | None:
        """The outputs ``[n, F]`` with each feature swapped, without whole passes."""
        flat = images.flatten(1)
        there = flat.gather(0, others.gather(1, index.expand(len(flat), -1)))
        swapped = torch.where(index == others.shape[1] - 1, there, flat).reshape(images.shape)
        last = plain_outputs(passes.model, swapped, targets, self.rows_of(passes.model, images))
        steps = Steps.of(index, others.shape[1])
        to = there.gather(1, steps.which.expand(len(flat), -1))
        return passes.outputs(images, steps, to, targets, last, carry=False)


def _moving_permutation(n: int, rng: torch.Generator) -> Tensor:
    """A random permutation that is not the identity (single images may stay)."""
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
    )
)
@dataclass(frozen=True, kw_only=True)
class ShapleySampling(Repeating, FeatureAttribution):
    """Shapley values estimated over random permutations: the mean rise of the output when a feature joins those before.

    The permutations are shared by all images with equally many features. With ``torch.manual_seed(seed)`` Captum's
    ``ShapleyValueSampling`` draws the same. The maps sum to f(x) - f(baseline), but for rounding. On a CPU, a
    small network of convolution, ReLU, pooling and linear layers one after another carries on what a step changes
    (:mod:`.incremental_passes`); else, where a network starts with a linear layer, the output of that layer is carried
    (:mod:`.shapley_increments`). That changes the maps by no more than rounding.

    Attributes:
        n_samples: Permutations.
        baseline: Value of a feature that has not joined yet.
        seed: Of the permutations.
    """

    counted: ClassVar[str] = "n_samples"

    n_samples: int = 25
    baseline: float = 0.0
    seed: int = 0

    def passes_each(self, images: Tensor) -> int:
        """Passes for an image for each permutation.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            One for each feature.
        """
        return self.feature_count(images)

    def alike(self, images: Tensor) -> list[list[int]]:
        """Which images have equally many features.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            Their places; all of them where one mask is for all.
        """
        if isinstance(self.feature_mask, Tensor):
            return super().alike(images)
        return [which for which, _ in self.features(images).alike(len(images))]

    def cheaper_each(self) -> str:
        """What else to change.

        Returns:
            In words.
        """
        return "feature_mask='slic' or 'grid'"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``."""
        maps = images.new_empty(len(images), *images.shape[2:])
        for which, features in self.features(images).alike(len(images)):
            found = self._values(model, images[which], targets[which], features)
            maps[which] = reduce_channels(features.attributions(found), self.channels)
        return maps

    def _values(self, model: nn.Module, images: Tensor, targets: Tensor, features: Features) -> Tensor:
        """Shapley values ``[n, F]`` of images that have F features each."""
        rng = torch.Generator().manual_seed(self.seed)
        permutations = torch.stack([torch.randperm(features.most, generator=rng) for _ in range(self.n_samples)])
        passes = IncrementalPasses.find(model, images, images[0].numel() / features.most)
        carried = None if passes is None else self._carried(passes, images, targets, features, permutations.argsort(1))
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
                joined = partial(self._joined, flat[samples], rank[features.of(samples)])
                found = None
                if first is not None:
                    ends = joined(torch.tensor([steps.start - 1, steps.stop - 1], device=flat.device))
                    found = first.outputs(run, ends, permutation[steps])
                if found is None:
                    first, found = None, run(joined(torch.arange(steps.start, steps.stop, device=flat.device)))
                values[samples, 1:][:, steps] = found
            total += values.diff(dim=1)[:, rank]
        return total / self.n_samples

    def _carried(
        self, passes: IncrementalPasses, images: Tensor, targets: Tensor, features: Features, ranks: Tensor
    ) -> Tensor | None:
        """The values from passes that carry on what each feature changes; ``ranks [P, F]`` say when a feature joins."""
        start, flat, count = torch.full_like(images[:1], self.baseline), images.flatten(1), features.most
        with torch.no_grad():
            first = passes.model(start)[0, targets]
        whole = plain_outputs(passes.model, images, targets, self.rows_of(passes.model, images))
        total, size = flat.new_zeros(len(flat), count), passes.walks(flat.shape[1])
        for samples in Rows(size).parts(len(flat)):
            x, y, index = flat[samples], targets[samples], features.of(samples)
            for some in Rows(max(1, size // len(x))).parts(len(ranks)):
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

    def _joined(self, flat: Tensor, rank: Tensor, steps: Tensor) -> Tensor:
        """Rows ``[n, s, V]`` at some steps; step k is the coalition of the first k + 1 features of the permutation."""
        return torch.where(rank[:, None] <= steps[:, None], flat[:, None], self.baseline)


def plain_outputs(model: nn.Module, images: Tensor, targets: Tensor, rows: int) -> Tensor:
    """Target outputs ``[n]``, from passes of at most so many rows."""
    return torch.cat([target_output(model, x, y) for x, y in chunks(rows, images, targets)])


def row_outputs(model: nn.Module, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
    """Target outputs ``[n, s]`` of the rows ``[n, s, features]`` of n samples."""
    shaped = rows.reshape(-1, *images.shape[1:])
    return target_output(model, shaped, targets.repeat_interleave(rows.shape[1])).reshape(rows.shape[:2])
