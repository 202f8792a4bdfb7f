"""KPCA-CAM: the first kernel principal component of the features at each position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_amount, check_choice
from xaibench.explainers.cam.gradcam import FeatureMaps
from xaibench.explainers.shared.layers import Layer, activations

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
        check_choice("kernel", self.kernel, get_args(Kernel), owner=type(self).__name__)
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
