"""CAM methods since HiResCAM: other weights of the feature maps, of which Grad-CAM takes the mean gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.explainers.base import blocks, spatial_axes, target_output
from xaibench.explainers.cam.gradcam import FeatureMaps, PerFeatureMapCAM, weighted_sum
from xaibench.explainers.shared.layers import (
    Layer,
    activations,
    activations_and_curvature,
    activations_and_gradients,
    captured,
    fastest_layout,
    forward_rows,
    zero_feature_map,
)
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.registry.info import ExplainerInfo


@ExplainerInfo(
    "HiResCAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Draelos, Carin: Use HiResCAM instead of Grad-CAM for faithful explanations of convolutional neural "
    "networks. arXiv:2011.08891, 2020.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class HiResCAM(FeatureMaps):
    """Sum over k of g_k A_k, position by position: Grad-CAM without averaging the gradient over the positions.

    If one linear layer follows the feature maps, pooled or flattened, the map before resizing sums to the logit minus
    the bias. LayerCAM uses the positive gradients only.

    Departures: signed, since the definition has no ReLU. The ``grad-cam`` package clips the map at zero before it
    enlarges it. Scaled to [0, 1], its maps of SqueezeNet differ by up to 0.9 from this map clipped after enlarging, and
    by 1.2e-7 from this map clipped before.
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("HiResCAM", model, layer, images, targets)
        return (gradients * features).sum(1)


@ExplainerInfo(
    "XGrad-CAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Fu et al.: Axiom-based Grad-CAM: Towards Accurate Visualization and Explanation of CNNs. BMVC 2020.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class XGradCAM(FeatureMaps):
    """ReLU of the sum over k of w_k A_k, with w_k the mean of g_k weighted by A_k over the positions.

    w_k = sum over the positions of g_k A_k / sum over the positions of A_k. A feature map that sums to zero has no
    weight (the ``grad-cam`` package and torch-cam add a small number to the denominator instead).
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("XGradCAM", model, layer, images, targets)
        axes = spatial_axes(features)
        area = features.sum(axes)
        weights = torch.where(area == 0, 0.0, (gradients * features).sum(axes) / area)
        return weighted_sum(weights, features).relu()


@ExplainerInfo(
    "Ablation-CAM",
    family="Feature maps",
    needs_gradient=False,
    needs_convolution=True,
    citation="Desai, Ramaswamy: Ablation-CAM: Visual Explanations for Deep Convolutional Network via Gradient-free "
    "Localization. WACV 2020.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class AblationCAM(PerFeatureMapCAM):
    """ReLU of the sum over k of w_k A_k, with w_k = y - y_k the decrease of the output if A_k is set to zero.

    In a transformer, a feature is set to zero in the patches, not in class and register tokens. It takes one forward
    row per k, and one for the image.

    Departures: the paper divides the decrease by y, one factor per sample. This is omitted, since a negative output
    would invert the map and show evidence against the class. The ``grad-cam`` package divides, and otherwise agrees if
    the smallest activation is zero, as after a ReLU (tested); in other cases it uses a value far below the smallest
    activation instead of the paper's zero.
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        with captured(layer) as capture:
            whole = target_output(model, images, targets)
        features, last = layer.as_maps(capture.output), capture.runs
        layout = fastest_layout(model, images)
        ablated = images.new_empty(features.shape[:2])
        for samples, channels in blocks(len(images), features.shape[1], forward_rows(images, self.batch_size)):
            some, maps = images[samples], torch.arange(channels.start, channels.stop, device=images.device)
            rows = some.repeat_interleave(len(maps), 0).contiguous(memory_format=layout)
            numbers = torch.arange(len(rows), device=images.device)
            with captured(layer, zero_feature_map(layer, last, numbers, maps.repeat(len(some)))):
                found = target_output(model, rows, targets[samples].repeat_interleave(len(maps)))
            ablated[samples, channels] = found.reshape(len(some), -1)
        return weighted_sum(whole[:, None] - ablated, features).relu()


#: The value of the game whose players are the activations (see :class:`ShapleyCAM`).
Utility: TypeAlias = Literal["rest", "output"]


@ExplainerInfo(
    "ShapleyCAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Cai: CAMs as Shapley Value-based Explainers. The Visual Computer, 2025. arXiv:2501.06261.",
    passes=3,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class ShapleyCAM(FeatureMaps):
    """ReLU of the sum over k of w_k A_k, with w_k the mean of (g - H A / 2) over the positions of map k.

    g and H are the gradient and the Hessian of the utility U with respect to all activations A of the layer. To second
    order, (g - H A / 2) A are the Shapley values of the activations in the game U. If U is linear in A, as is the logit
    of a network that ends in average pooling and one linear layer, H is zero and the map is that of Grad-CAM.

    The utility of the paper is the residual softmax target class (ReST), the logit plus the logarithm of its softmax
    probability: U = z_c + log p_c. It is defined for logits, so with another ``output`` that output is the utility.

    Attributes:
        utility: ``"rest"``: ReST. ``"output"``: the explained output itself, as in the ``grad-cam`` package by default.
    """

    utility: Utility = "rest"

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        game = _ReST(model) if self.utility == "rest" and getattr(model, "output", "logit") == "logit" else model
        features, gradients, curvature = activations_and_curvature("ShapleyCAM", game, layer, images, targets)
        return weighted_sum((gradients - curvature / 2).mean(spatial_axes(features)), features).relu()


class _ReST(nn.Module):
    """A network whose outputs are logits plus log-probabilities, ``[N, K]``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits + torch.log_softmax(logits, 1)


@ExplainerInfo(
    "Finer-CAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Zhang et al.: Finer-CAM: Spotting the Difference Reveals Finer Details for Visual Explanation. CVPR "
    "2025.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class FinerCAM(FeatureMaps):
    """Grad-CAM of y - gamma times the mean output of the most similar classes: what distinguishes the target from them.

    The most similar classes are those whose outputs are closest to that of the target; of two classes, the other one.

    Departure: the released code also weights the classes by their probabilities, which the paper does not; torch-cam
    agrees with this implementation (tested).

    Attributes:
        gamma: Weight of the other classes; 0 is Grad-CAM, the paper uses 0.6.
        n_references: Maximum number of other classes; 3 in the paper.
    """

    gamma: float = 0.6
    n_references: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("gamma", self.gamma, above=False, owner="FinerCAM")

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        compared = _ClassDifference(model, targets, self.gamma, self.n_references)
        features, gradients = activations_and_gradients("FinerCAM", compared, layer, images, torch.zeros_like(targets))
        return weighted_sum(gradients.mean(spatial_axes(features)), features).relu()


class _ClassDifference(nn.Module):
    """Return one output per image ``[N, 1]``: that of the target minus the mean of similar classes, times gamma."""

    def __init__(self, model: nn.Module, targets: Tensor, gamma: float, n_references: int) -> None:
        super().__init__()
        self.model, self.targets, self.gamma, self.n_references = model, targets[:, None], gamma, n_references

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.model(images)
        if outputs.shape[1] < 2:
            raise UnsupportedModelError(
                f"FinerCAM: the model has {outputs.shape[1]} output, expected two or more classes, whose "
                "difference it explains. gradcam explains a single output."
            )
        own = outputs.gather(1, self.targets)
        apart = (outputs - own).detach().abs().scatter(1, self.targets, torch.inf)
        nearest = apart.argsort(stable=True, dim=1)[:, : min(self.n_references, outputs.shape[1] - 1)]
        return own - self.gamma * outputs.gather(1, nearest).mean(1, keepdim=True)


#: Kernels between the features of two positions (see :class:`KPCACAM`).
Kernel: TypeAlias = Literal["sigmoid", "rbf", "poly", "linear"]


@ExplainerInfo(
    "KPCA-CAM",
    family="Feature maps",
    needs_convolution=True,
    needs_gradient=False,
    citation="Karmani et al.: KPCA-CAM: Visual Explainability of Deep Computer Vision Models using Kernel PCA. "
    "IEEE MMSP 2024. arXiv:2410.00267.",
    passes=1,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class KPCACAM(FeatureMaps):
    """The projection of the features at each position onto their first kernel principal component.

    The map does not depend on the target.

    With x_i the features at position i minus their mean over the positions, K_ij = k(x_i, x_j), and K' = K with the
    means of its rows and columns removed, the value at position i is sqrt(s) u_i, with s and u the largest eigenvalue
    of K' and its eigenvector. The sign, which is arbitrary, makes the value of largest magnitude positive. Signed, as
    in :class:`.EigenCAM`, which is the kernel ``"linear"``. A feature map that is equal at all positions gives zeros.

    This is the definition of the ``grad-cam`` package, which uses ``KernelPCA`` of scikit-learn, and agrees with it
    (tested). K has a row and a column for each position of the layer, so early layers need much memory.

    Attributes:
        kernel: ``"sigmoid"``: tanh(gamma x·y + 1). ``"rbf"``: exp(-gamma |x - y|²). ``"poly"``: (gamma x·y + 1)³.
            ``"linear"``: x·y.
        gamma: Scale of the kernel; ``None``: one over the number of feature maps.
    """

    kernel: Kernel = "sigmoid"
    gamma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is not None:
            check_amount("gamma", self.gamma, owner="KPCACAM")

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features = activations(model, layer, images)
        # The decomposition is not available in half precision.
        rows = features.flatten(2).transpose(1, 2).to(torch.promote_types(features.dtype, torch.float32))
        maps = torch.stack([self._project(x - x.mean(0)) for x in rows])
        return maps.reshape(-1, *features.shape[2:]).to(features.dtype)

    def _project(self, x: Tensor) -> Tensor:
        """Return the projections ``[n]`` of centered features ``[n, C]``."""
        kernel = self._kernel_matrix(x)
        largest = kernel.abs().max()
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
        values, vectors = torch.linalg.eigh(kernel)
        # An eigenvalue of the size of its rounding error has an arbitrary eigenvector.
        value = torch.where(values[-1] > len(x) * torch.finfo(x.dtype).eps * largest, values[-1], 0.0)
        projection: Tensor = value.sqrt() * vectors[:, -1]
        return projection * projection.gather(0, projection.abs().argmax(0, keepdim=True)).sign()

    def _kernel_matrix(self, x: Tensor) -> Tensor:
        products: Tensor = x @ x.T
        if self.kernel == "linear":
            return products
        gamma = self.gamma or 1 / x.shape[1]
        if self.kernel == "sigmoid":
            return torch.tanh(gamma * products + 1)
        if self.kernel == "poly":
            return (gamma * products + 1).pow(3)
        squares = products.diagonal()
        distances = (squares[:, None] + squares - 2 * products).clamp(min=0)
        return torch.exp(-gamma * distances)
