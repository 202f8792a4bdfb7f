"""The CAM family: a weighted sum of the feature maps of one layer, enlarged to the image.

A_k(x, y) is feature map k of the layer at position (x, y), and g_k(x, y) the gradient of the explained output with
respect to it. The maps are not scaled to [0, 1]; apart from that they agree with the ``grad-cam`` package (tested).

The methods explain the logit by default (class attribute ``explains``), as in their papers. Methods that use the
explained output support any output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.core.types import Output
from xaibench.explainers.base import CheckedParameters, blocks, chunks, spatial_axes, target_output
from xaibench.explainers.shared.layers import (
    Layer,
    Resize,
    activations,
    activations_and_gradients,
    fastest_layout,
    find_layer,
    forward_rows,
    interpolate_linearly,
    resize_maps,
)
from xaibench.network.calls import observe_calls
from xaibench.network.explained_output import (
    UnsupportedModelError,
    explains_function,
    network_of,
    run_layers,
    target_logits,
)
from xaibench.network.outputs import find_logits
from xaibench.registry.info import ExplainerInfo


@dataclass(frozen=True, kw_only=True)
class FeatureMaps(CheckedParameters):
    """Base class with the parameters of explainers that use the feature maps of one layer.

    Attributes:
        layer: The layer: its name in ``model.named_modules()``, such as ``"layer4"``, or the module itself,
            ``model.layer4``. ``None``: the last feature map before pooling, or in a transformer the last tokens before
            the last attention. If it is called several times per pass, the last call counts.
        resize: Interpolation of the map to the size of the image: ``"bilinear"`` (trilinear for volumes;
            without aligned corners), ``"nearest"``, or ``None``: the map keeps the size of the layer's output.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images. It bounds the memory and changes
            the maps by rounding only.
    """

    #: The explained output by default.
    explains: ClassVar[Output] = "logit"

    layer: str | nn.Module | None = None
    resize: Resize | None = "bilinear"
    batch_size: int | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, or of the size of the layer's output without ``resize``.

        Raises:
            UnsupportedModelError: If the network has no layer that the method can use.
            ValueError: If there is no ``layer`` of that name, or its output is neither a feature map nor tokens.
        """
        layer = find_layer(type(self).__name__, model, images, self.layer)
        chunk = forward_rows(images, self.batch_size)
        parts = [self._maps(model, layer, x, y) for x, y in chunks(chunk, images, targets)]
        return resize_maps(torch.cat(parts), tuple(images.shape[2:]), self.resize)

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        """Compute maps ``[n, h, w]`` of the size of the layer's output."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PerFeatureMapCAM(FeatureMaps):
    """Base class of CAM methods with one forward pass per feature map of the layer, and one for the image."""

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of passes, which depends on the layer of the network.

        Args:
            model: Maps images ``[N, C, H, W]`` to ``[N, K]``.
            images: ``[N, C, H, W]``; the model is called with the first.

        Returns:
            The number of passes.
        """
        layer = find_layer(type(self).__name__, model, images, self.layer)
        return len(images) * (1 + activations(model, layer, images[:1]).shape[1])


def weighted_sum(weights: Tensor, features: Tensor) -> Tensor:
    """Compute the sum over k of w_k A_k: ``[N, h, w]`` from ``[N, C]`` and ``[N, C, h, w]``."""
    return torch.einsum("nc,nc...->n...", weights, features)


@ExplainerInfo(
    "CAM",
    family="Feature maps",
    needs_convolution=True,
    revision=4,
    citation="Zhou et al.: Learning Deep Features for Discriminative Localization. CVPR 2016.",
    passes=1,
    needs_gradient=False,
)
@dataclass(frozen=True, kw_only=True)
class CAM(FeatureMaps):
    """Sum over k of w_k A_k, with w_k the weight of feature map k in the logit of the target (equation 2).

    For networks that end in global average pooling and one linear layer. The mean of the map before resizing, plus the
    bias, is the logit. Signed, since the paper has no ReLU. The logit is explained, regardless of ``output``.

    Beyond the paper, a differentiable function of the outputs s_j of that linear layer may follow, such as the
    log-sum-exp of merged classes: then w_k = sum over j of (dz/ds_j) w_jk, with z the logit of the target.
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features = activations(model, layer, images)
        head, is_last = self._find_head(model, layer, images, features)
        if is_last and head.out_features > 1 and not explains_function(model):
            return weighted_sum(head.weight[targets], features)
        shares = _gradients_by(model, head, images, targets)[0]
        assert shares is not None
        return weighted_sum(shares.to(head.weight.dtype) @ head.weight, features)

    def _find_head(self, model: nn.Module, layer: Layer, images: Tensor, features: Tensor) -> tuple[nn.Linear, bool]:
        """Return the linear layer that takes the means of the feature maps, and whether nothing follows it."""
        network = network_of(model)
        runs = run_layers(network, images)
        last = next((run for run in reversed(runs) if isinstance(run.module, nn.Linear)), None)
        if last is None:
            found = "no nn.Linear"
        elif not _is_close(last.inputs[0], features[:1].mean(spatial_axes(features)), features[:1].abs().amax()):
            found = f"that the inputs of {last.name!r} (Linear) are not the means of {layer}"
        else:
            head = cast(nn.Linear, last.module)
            if _is_close(last.output, find_logits(runs[-1].output), torch.as_tensor(last.output).abs().amax()):
                return head, True
            by_head, by_images = _gradients_by(
                model, head, images[:1], torch.zeros(1, dtype=torch.int64, device=images.device)
            )
            if by_head is not None and by_images is None:
                return head, False
            found = f"that the network continues after {last.name!r} (Linear) with other tensors than its outputs"
        raise UnsupportedModelError(
            f"CAM: expected a network that ends in global average pooling and one linear layer, such as a ResNet; "
            f"found {found}. gradcam, which generalizes it, supports any network with convolutions or attention."
        )


def _gradients_by(
    model: nn.Module, head: nn.Linear, images: Tensor, targets: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of the target's logit with respect to the output of a layer, and to the images.

    The gradient with respect to the images is over the paths that bypass the layer. A gradient is ``None`` if the logit
    does not depend on that tensor.
    """
    leaves: list[Tensor] = []

    def cut(name: str, module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    with observe_calls([("", head)], after=cut), torch.enable_grad():
        images = images.detach().clone().requires_grad_()
        logits = target_logits(model, network_of(model)(images), targets)
    if not logits.requires_grad:
        return None, None
    by_head, by_images = torch.autograd.grad(logits.sum(), [leaves[-1], images], allow_unused=True)
    return by_head, by_images


def _is_close(one: object, other: object, largest: Tensor) -> bool:
    """Return whether two tensors agree up to rounding, for values as large as ``largest``."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return False
    precision = max(torch.finfo(x.dtype).eps for x in (one, other))
    return bool((one - other).abs().amax() <= max(1e-5, 4 * precision) * largest)


@ExplainerInfo(
    "Grad-CAM",
    family="Feature maps",
    needs_convolution=True,
    revision=4,
    citation="Selvaraju et al.: Grad-CAM: Visual Explanations from Deep Networks. ICCV 2017.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class GradCAM(FeatureMaps):
    """ReLU of the sum over k of a_k A_k, with a_k the mean of g_k over the positions (equations 1 and 2)."""

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("GradCAM", model, layer, images, targets)
        return weighted_sum(gradients.mean(spatial_axes(features)), features).relu()


@ExplainerInfo(
    "Grad-CAM++",
    family="Feature maps",
    needs_convolution=True,
    revision=4,
    citation="Chattopadhay et al.: Grad-CAM++: Generalized Gradient-Based Visual Explanations for Deep "
    "Convolutional Networks. WACV 2018.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class GradCAMPlusPlus(FeatureMaps):
    """ReLU of the sum over k of w_k A_k, with w_k = sum over the positions of alpha_k ReLU(g_k).

    alpha_k = g_k² / (2 g_k² + g_k³ sum A_k + epsilon), and zero if g_k is zero (equation 19): the closed form for the
    exponential of the explained output. The exponential itself, one positive factor per sample, is omitted, since it
    overflows.

    Attributes:
        epsilon: Added to the denominator. The paper has none (0). The default 1e-6 is that of the ``grad-cam`` package,
            which most published results use; it matters if g_k is below about 1e-3.
    """

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("epsilon", self.epsilon, above=False, owner="GradCAMPlusPlus")

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("GradCAMPlusPlus", model, layer, images, targets)
        square, axes = gradients**2, spatial_axes(features)
        denominator = 2 * square + square * gradients * features.sum(axes, keepdim=True) + self.epsilon
        # If the denominator is zero, the gradient is zero or alpha is undefined.
        alpha = torch.where(denominator == 0, 0.0, square / denominator)
        return weighted_sum((alpha * gradients.relu()).sum(axes), features).relu()


@ExplainerInfo(
    "LayerCAM",
    family="Feature maps",
    needs_convolution=True,
    revision=4,
    citation="Jiang et al.: LayerCAM: Exploring Hierarchical Class Activation Maps. IEEE TIP 30, 2021.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class LayerCAM(FeatureMaps):
    """ReLU of the sum over k of ReLU(g_k) A_k, position by position (equations 6 to 8); suits earlier layers too."""

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("LayerCAM", model, layer, images, targets)
        return (gradients.relu() * features).sum(1).relu()


@ExplainerInfo(
    "Score-CAM",
    family="Feature maps",
    needs_convolution=True,
    needs_gradient=False,
    revision=4,
    citation="Wang et al.: Score-CAM: Score-Weighted Visual Explanations for Convolutional Neural Networks. CVPR "
    "workshops 2020.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class ScoreCAM(PerFeatureMapCAM):
    """ReLU of the sum over k of w_k A_k, with w the softmax over k of the output for the image masked by A_k.

    Algorithm 1: A_k is enlarged and scaled to [0, 1], and the image is multiplied by it. The output of the blank image,
    which the paper subtracts, cancels in the softmax. A constant A_k masks everything. The paper does not specify the
    interpolation; it is bilinear with aligned corners here, as in the ``grad-cam`` package. It takes one forward row
    per k.
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features = activations(model, layer, images)
        size, layout = images.shape[2:], fastest_layout(model, images)
        scores = images.new_empty(features.shape[:2])
        for samples, channels in blocks(len(images), scores.shape[1], forward_rows(images, self.batch_size)):
            masks = interpolate_linearly(features[samples, channels], size, align_corners=True)
            low, high = (end(masks, spatial_axes(masks), keepdim=True) for end in (torch.amin, torch.amax))
            masks = (masks - low) / (high - low + 1e-8)
            rows = (images[samples, None] * masks[:, :, None]).flatten(0, 1).contiguous(memory_format=layout)
            classes = targets[samples].repeat_interleave(masks.shape[1])
            scores[samples, channels] = target_output(model, rows, classes).reshape(masks.shape[:2])
        return weighted_sum(scores.softmax(1), features).relu()


@ExplainerInfo(
    "Eigen-CAM",
    family="Feature maps",
    needs_convolution=True,
    needs_gradient=False,
    revision=4,
    citation="Muhammad, Yeasin: Eigen-CAM: Class Activation Map using Principal Components. IJCNN 2020.",
    passes=1,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class EigenCAM(FeatureMaps):
    """The projection of the features at each position onto their first principal component; equal for all targets.

    O V_1, with O ``[h·w, C]`` the feature maps and V_1 the first right singular vector. Its sign, which the paper
    leaves open, makes the value of largest magnitude positive. Signed, since the paper has no ReLU.

    Attributes:
        centered: Whether to subtract its mean from each feature map first, as the ``grad-cam`` package does; the paper
            does not.
    """

    centered: bool = True

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features = activations(model, layer, images)
        # The decomposition is not available in half precision.
        matrix = features.flatten(2).transpose(1, 2).to(torch.promote_types(features.dtype, torch.float32))
        if self.centered:
            matrix = matrix - matrix.mean(1, keepdim=True)
        u, s, _ = torch.linalg.svd(matrix, full_matrices=False)
        projection = u[..., 0] * s[:, :1]
        largest = projection.gather(1, projection.abs().argmax(1, keepdim=True))
        maps: Tensor = (projection * largest.sign()).reshape(-1, *features.shape[2:]).to(features.dtype)
        return maps
