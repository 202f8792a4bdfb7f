"""IG2: Integrated Gradients along a path on which the image approaches one of another class."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.explainers.base import Attribution, append_axes, check_has_gradient, chunks, reduce_channels
from xaibench.explainers.shared.fitting import KeepsTrainingImages, not_fitted
from xaibench.explainers.shared.layers import check_rows
from xaibench.explainers.shared.passes import Repeating
from xaibench.network.answers import assigned_classes
from xaibench.network.explained_output import ExplainedOutput, UnsupportedModelError, network_of
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import sample_generators


@ExplainerInfo(
    "IG2",
    family="Gradients",
    citation="Zhuo, Ge: IG2: Integrated Gradient on Iterative Gradient Path for Feature Attribution. IEEE TPAMI "
    "46, 2024, arXiv 2406.10852.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class IG2(KeepsTrainingImages, Repeating, Attribution):
    """The sum of gradient times step along a path on which the representation approaches that of another class.

    The path begins at the image. Each step follows the negative gradient of the squared distance between the network's
    representation of the point and that of a reference image (normalized to unit length; paper, equations 3 and 5). The
    path therefore changes what distinguishes the two, and its end is the baseline. The map is the mean over the
    references. These are training images that the network assigns to another class than the explained one, or any
    training images if there are none.

    The representation is the input of the network's last linear layer, or the output of the network if it has none.

    Departures: the released code uses steps of length 256 for images with values in 0 to 255 and 3 × 224 × 224 values.
    Here the length is the same fraction of the diagonal of the box spanned by the values of the training images, and
    values stay within that box. References are drawn from the kept images of another class; in the released code they
    are chosen by hand.

    Attributes:
        n_steps: Steps of the path; 201 in the released code.
        step_size: Length of a step, as a fraction of the box's diagonal; 256 in the units of the released code is
            0.0026.
        n_references: Reference images per image.
        n_training_images: Maximum number of training images that are kept, from which the references are chosen.
        seed: Seed of the kept images and of the references. The draws of an image do not depend on its position in the
            batch.
        training_images: ``[B, C, H, W]``, the kept training images; ``None`` before :meth:`fit`.
    """

    counted: ClassVar[str] = "n_steps"

    n_steps: int = 201
    step_size: float = 0.0026
    n_references: int = 1
    n_training_images: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("step_size", self.step_size, owner="IG2")

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and step: one forward and two backward, per reference."""
        return 3 * self.n_references

    def cheaper_each(self) -> str:
        """Return advice on reducing the references, for error messages; empty if there is one reference."""
        return f"n_references below {self.n_references}" if self.n_references > 1 else ""

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; with small steps they sum to f(x) minus the mean of f at the ends of the paths.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was called with images of another size.
            UnsupportedModelError: If the network is scripted or traced.
        """
        if self.training_images is None:
            raise not_fitted("IG2")
        kept = self.training_images.to(images)
        if kept.shape[1:] != images.shape[1:]:
            raise ValueError(f"IG2 was fitted to images {list(kept.shape[1:])}, got {list(images.shape[1:])}.")
        box = self.training_images.amin().item(), self.training_images.amax().item()
        length = self.step_size * (box[1] - box[0]) * images[0].numel() ** 0.5
        with _Representation(model) as seen:
            represented, assigned = self._represent_training_images(model, seen, kept)
            drawn = np.stack([rng.permutation(len(assigned)) for rng in sample_generators(self.seed, images)])
            order = torch.from_numpy(drawn).to(assigned.device)
            # Training images that are assigned to other classes come first.
            first = order.gather(1, assigned.T[targets].gather(1, order).long().argsort(dim=1, stable=True))
            references = first[:, torch.arange(self.n_references) % len(assigned)]
            total = torch.zeros_like(images)
            rows = self.rows(images)
            for start in range(0, len(images), rows):
                part = slice(start, start + rows)
                for chosen in references[part].T:
                    total[part] += self._follow_path(
                        model, seen, images[part], targets[part], represented[chosen], length, box
                    )
        return reduce_channels(total / self.n_references, self.channels)

    def _represent_training_images(
        self, model: nn.Module, seen: _Representation, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the representations ``[B, R]`` of the training images, and the classes they are assigned to."""
        found, assigned = [], []
        with torch.no_grad():
            for (part,) in chunks(self.rows(kept), kept):
                outputs = model(part)
                found.append(seen.of(outputs))
                assigned.append(assigned_classes(outputs, getattr(model, "output", None), threshold=0.5))
        return torch.cat(found), torch.cat(assigned)

    def _follow_path(
        self,
        model: nn.Module,
        seen: _Representation,
        images: Tensor,
        targets: Tensor,
        aims: Tensor,
        length: float,
        box: tuple[float, float],
    ) -> Tensor:
        """Compute attributions ``[n, C, H, W]`` along the path towards the representations ``aims`` ``[n, R]``."""
        at, total = images.detach(), torch.zeros_like(images)
        low, high = images.clamp(max=box[0]), images.clamp(min=box[1])  # the box includes the values of the image
        for _ in range(self.n_steps):
            with torch.enable_grad():
                point = at.detach().requires_grad_()
                outputs = model(point)
                check_has_gradient(outputs)
                distance = (seen.of(outputs) - aims).square().sum()
                (towards,) = torch.autograd.grad(distance, point, retain_graph=True)
                if isinstance(model, ExplainedOutput):
                    model.on_rows(len(point))  # this backward pass does not start at the output
                (gradient,) = torch.autograd.grad(outputs.gather(1, targets[:, None]).sum(), point)
            size = append_axes(towards.flatten(1).norm(dim=1), towards)
            # The path ends where the gradient of the distance is zero.
            step = torch.where(size > 0, length * towards / size.clamp(min=torch.finfo(size.dtype).tiny), 0.0)
            to = (at - step).clamp(low, high)
            total += (at - to) * gradient
            at = to
        return total


class _Representation(contextlib.AbstractContextManager["_Representation"]):
    """Record the input of the last linear layer of the network."""

    def __init__(self, model: nn.Module) -> None:
        hidden = (torch.jit.ScriptModule, torch.fx.GraphModule)
        if any(isinstance(module, hidden) for module in model.modules()):
            raise UnsupportedModelError(
                f"IG2: {type(network_of(model)).__name__} is scripted, traced, exported or has such layers, which hide "
                "its last linear layer. Pass the network that it was made from."
            )
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        self._layer = linear[-1] if linear else None
        self._seen: Tensor | None = None

    def __enter__(self) -> _Representation:
        if self._layer is not None:
            self._handle = self._layer.register_forward_pre_hook(self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        if self._layer is not None:
            self._handle.remove()
        self._seen = None

    def _keep(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        self._seen = given[0]

    def of(self, outputs: Tensor) -> Tensor:
        """Return the representation ``[n, R]`` in the last pass: the input of the last linear layer, or ``outputs``."""
        if self._seen is None:
            return outputs.flatten(1)
        check_rows("IG2: the last linear layer", self._seen, outputs)
        return self._seen.flatten(1)
