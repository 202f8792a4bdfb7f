"""SmoothGrad, SmoothGrad² and VarGrad, statistics of gradients over noisy copies; and Gradient Pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.explainers.base import (
    Attribution,
    Channels,
    append_axes,
    blocks,
    chunks,
    reduce_channels,
    target_gradient,
    target_output,
)
from xaibench.explainers.shared.fitting import LocalPattern
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import normal_numbers, sample_generators


@dataclass(frozen=True, kw_only=True)
class NoisyGradients(Repeating, Attribution):
    """Base class of SmoothGrad and its variants: gradients at copies of the image with Gaussian noise.

    Attributes:
        n_samples: Noisy copies per image; the paper sees little change above 50.
        noise: Standard deviation of the noise, as a fraction of the image's range max(x) - min(x); 0.1 to 0.2 in the
            paper (section 3).
        seed: Seed of the noise. The draws of an image do not depend on its position in the batch.
    """

    channels: Channels = "max_abs"
    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_samples"

    n_samples: int = 50
    noise: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("noise", self.noise, above=False, owner=type(self).__name__)

    def noisy_gradients(
        self, model: nn.Module, images: Tensor, targets: Tensor
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield the gradients ``[n, s, C, H, W]`` at s copies of n images, block by block.

        Args:
            model: See :class:`~xaibench.explainers.Explainer`.
            images: ``[N, C, H, W]``.
            targets: ``[N]``.

        Returns:
            The indices of the images and of the copies, and the gradients. The copies of an image come in order.
        """
        generators = sample_generators(self.seed, images)
        low, high = images.flatten(1).aminmax(dim=1)
        stdev = append_axes(self.noise * (high - low), images[:, None])
        across = images.device.type != "cpu"
        cut = list(blocks(len(images), self.n_samples, self.rows(images), across=across))
        for (samples, steps), noise in zip(cut, normal_numbers(generators, images, cut), strict=True):
            copies = images[samples, None] + stdev[samples] * noise
            classes = targets[samples].repeat_interleave(noise.shape[1])
            yield samples, steps, target_gradient(model, copies.flatten(0, 1), classes).reshape(noise.shape)


@ExplainerInfo(
    "SmoothGrad",
    family="Gradients",
    revision=2,
    citation="Smilkov et al.: SmoothGrad: removing noise by adding noise. arXiv:1706.03825, 2017.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class SmoothGrad(NoisyGradients):
    """The mean gradient over copies of the image with Gaussian noise.

    Signed. The default of ``channels`` is ``"max_abs"`` as for Saliency, which it equals without noise.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        total = torch.zeros_like(images)
        for samples, _, gradients in self.noisy_gradients(model, images, targets):
            total[samples] += gradients.sum(1)
        return reduce_channels(total / self.n_samples, self.channels)


@ExplainerInfo(
    "SmoothGrad²",
    family="Gradients",
    citation="Hooker et al.: A Benchmark for Interpretability Methods in Deep Neural Networks. NeurIPS 2019.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class SmoothGradSquared(NoisyGradients):
    """The mean of the squared gradient over copies of the image with Gaussian noise; never negative.

    It equals the elementwise square of SmoothGrad plus VarGrad.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        total = torch.zeros_like(images)
        for samples, _, gradients in self.noisy_gradients(model, images, targets):
            total[samples] += gradients.square().sum(1)
        return reduce_channels(total / self.n_samples, self.channels)


@ExplainerInfo(
    "VarGrad",
    family="Gradients",
    citation="Adebayo et al.: Local Explanation Methods for Deep Neural Networks Lack Sensitivity to Parameter "
    "Values. ICLR workshop 2018.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class VarGrad(NoisyGradients):
    """The variance of the gradient over copies of the image with Gaussian noise; never negative.

    It is the biased variance (divided by the number of copies), as in Captum. It is zero for a network that is linear
    around the image.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        first, total, squares = (torch.zeros_like(images) for _ in range(3))
        for samples, steps, gradients in self.noisy_gradients(model, images, targets):
            if steps.start == 0:
                first[samples] = gradients[:, 0]
            # Relative to the first gradient, so that a large common part does not lose the differences to rounding.
            apart = gradients - first[samples, None]
            total[samples] += apart.sum(1)
            squares[samples] += apart.square().sum(1)
        variance = squares / self.n_samples - (total / self.n_samples).square()
        return reduce_channels(variance.clamp(min=0), self.channels)


@ExplainerInfo(
    "Gradient Pattern",
    family="Patterns",
    citation="After Gjølbye, Haufe, Hansen: Minimizing False-Positive Attributions in Explanations of Non-Linear "
    "Models. arXiv:2505.11210, 2025.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class GradientPattern(LocalPattern, NoisyGradients):
    """The mean gradient w at noisy copies of x, times the covariance C of the training images near x: C w.

    This is :class:`.PatternLocal` with another surrogate, which takes far fewer passes: the mean gradient, with the
    network's output as its value at x. The paper allows gradients; its experiments and its package use LIME.

    Attributes:
        n_samples: Noisy copies per image.
    """

    @property
    def once(self) -> int:
        """The pass for the output at the image, which determines the distance to the hyperplane."""
        return int(self.project_to_boundary)

    def _surrogates(self, model: nn.Module, images: Tensor, targets: Tensor, training: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean gradients ``[N, V]`` and the outputs ``[N]``, zeros if they are not needed."""
        weights = torch.zeros_like(images)
        for samples, _, gradients in self.noisy_gradients(model, images, targets):
            weights[samples] += gradients.sum(1) / self.n_samples
        values = images.new_zeros(len(images))
        if self.project_to_boundary:
            values = torch.cat([target_output(model, x, y) for x, y in chunks(self.rows(images), images, targets)])
        return weights.flatten(1), values
