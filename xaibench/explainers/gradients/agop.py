"""AGOP: the gradient weighted by the average gradient outer product (AGOP) of the training images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import Attribution, Channels, reduce_channels, target_gradient
from xaibench.explainers.registered import gradient_free_advice
from xaibench.explainers.shared.fitting import iterate_parts, network_for_fitting, not_fitted
from xaibench.explainers.shared.passes import GRADIENT
from xaibench.network.answers import skip_last_layer
from xaibench.network.explained_output import UnsupportedModelError, correct_gradient_of_single_image
from xaibench.network.outputs import check_logits
from xaibench.registry.info import ExplainerInfo

#: Quantity that the map shows (see :class:`AGOP`).
Variant: TypeAlias = Literal["weighted", "global"]
#: The outputs of the network whose gradients are averaged (see :class:`AGOP`).
AveragedOutputs: TypeAlias = Literal["all", "predicted"]


@ExplainerInfo(
    "AGOP",
    family="Gradients",
    citation="Katakam: AGOP as Explanation: From Feature Learning to Per-Sample Attribution in Image Classifiers. "
    "arXiv:2605.12816, 2026.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class AGOP(Attribution):
    """The gradient of the target's logit times sqrt(d / max d), with d the mean squared gradient over training images.

    d is the diagonal of the average gradient outer product M: the mean over the training images of the squared
    gradient of a logit with respect to each value, summed over the logits. Pixels on which the network hardly depends
    in any training image get little weight. With a constant d, the map is :class:`.Saliency` of the logit. Since d is
    the same for every image, scores on images with the ground truth at one place, as in most scenarios of XAI-TRIS,
    favor it: compare with the control ``prior``.

    It is fitted first: ``fitted = AGOP().fit(model, loader)``. The definition of the map is that of the paper's
    abstract, which does not specify the averaged outputs; all outputs are the usual definition of M (Radhakrishnan et
    al., Science 2024).

    Attributes:
        variant: ``"weighted"``: the map above (AGOP-Weighted). ``"global"``: d itself, the same map for every image
            (AGOP-Global); it takes no passes.
        outputs: ``"all"``: d is summed over the outputs of the network, one gradient each. ``"predicted"``: d has the
            gradient of the largest output only, which is faster for many classes.
        diagonal: ``[C, H, W]`` float64, the diagonal d; ``None`` before :meth:`fit`.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 1, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[4.0, -2.0]]))
        >>> fitted = AGOP().fit(model, [torch.zeros(3, 1, 1, 2)])
        >>> fitted.diagonal.tolist()
        [[[16.0, 4.0]]]
        >>> fitted(model, torch.zeros(1, 1, 1, 2), torch.tensor([0]))
        tensor([[[ 4., -1.]]])
    """

    channels: Channels = "max_abs"
    variant: Variant = "weighted"
    outputs: AveragedOutputs = "all"
    diagonal: Tensor | None = field(default=None, repr=False, compare=False)
    #: The explained output by default.
    explains: ClassVar[Output] = "logit"

    @property
    def fitted(self) -> bool:
        """Whether the diagonal is known."""
        return self.diagonal is not None

    def passes_with(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of passes, not counting :meth:`fit`.

        Args:
            model: Not used.
            images: ``[N, C, H, W]``.

        Returns:
            One gradient per image, or none for ``"global"``.
        """
        return 0 if self.variant == "global" else GRADIENT * len(images)

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Average the squared gradients over the training images, in one pass over them.

        Args:
            model: Returns logits; a final softmax or sigmoid is left out. It is used in evaluation mode, on its own
                device and in ``model.explain_dtype`` if it has that; its state is restored afterwards. Sums are kept in
                float64.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them, usually the training data.

        Returns:
            This explainer with the diagonal of the model.

        Raises:
            TypeError: If a batch does not begin with a floating-point tensor.
            ValueError: If the loader is empty, or yields single images, or images of different size.
            UnsupportedModelError: If the outputs have no gradient with respect to the images.
        """
        total, count = None, 0
        with network_for_fitting("AGOP", model) as network:
            for images in iterate_parts("AGOP", loader, network, self.rows):
                if total is None:
                    skip_last_layer(network, images, "softmax", "sigmoid")
                squares = self._squared_gradients(network, images)
                if total is not None and squares.shape != total.shape:
                    raise ValueError(
                        f"AGOP.fit: images {list(squares.shape)} follow images {list(total.shape)}, expected images of "
                        "one size."
                    )
                total, count = squares if total is None else total + squares, count + len(images)
            assert total is not None  # an empty loader is an error
            # In inference mode, the quotient would be a tensor that autograd cannot use.
            diagonal = (total / count).cpu()
        return replace(self, diagonal=diagonal)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was called with images of another size.
            UnsupportedModelError: If the output has no gradient with respect to the images.
        """
        if self.diagonal is None:
            raise not_fitted("AGOP", "the network and the training images")
        if self.diagonal.shape != images.shape[1:]:
            raise ValueError(
                f"AGOP: fitted to images {list(self.diagonal.shape)}, got {list(images.shape[1:])}. Fit it to images "
                "of the size that is explained."
            )
        diagonal = self.diagonal.to(images.device)
        if self.variant == "global":
            return reduce_channels(diagonal.to(images).expand_as(images), self.channels).clone()
        # The largest is zero if no output depends on the images.
        weights = (diagonal / diagonal.max().clamp(min=torch.finfo(diagonal.dtype).tiny)).sqrt().to(images)
        return self.by_chunk(lambda x, y: weights * target_gradient(model, x, y), images, targets)

    def _squared_gradients(self, network: nn.Module, images: Tensor) -> Tensor:
        """Return the squared gradients of the averaged outputs, summed over outputs and images: ``[C, H, W]``."""
        with torch.enable_grad():
            images = images.detach().clone().requires_grad_()
            # A copy, since the network may change its input in place.
            outputs = check_logits(network(images.clone()), len(images))
        if not outputs.requires_grad:
            raise UnsupportedModelError(
                "AGOP.fit: the outputs of the model have no gradient with respect to the images. "
                f"{gradient_free_advice()}"
            )
        if len(images) == 1:
            correct_gradient_of_single_image(outputs)
        columns = outputs.amax(1, keepdim=True) if self.outputs == "predicted" else outputs
        total = torch.zeros_like(images[0], dtype=torch.float64)
        for column in columns.unbind(1):
            (gradient,) = torch.autograd.grad(column.sum(), images, retain_graph=True)
            total += gradient.double().square().sum(0)
        return total
