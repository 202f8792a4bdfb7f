"""IG2: Integrated Gradients along the way on which the image becomes one of another class to the network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.compute.sample_draws import sample_generators
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.shared.counted_passes import Repeating
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.fitted_data import NotFittedError, kept_images
from xaibench.explainers.shared.interface import Attribution, chunks, reduce_channels


@described(
    ExplainerInfo(
        "IG2",
        family="Gradients",
        citation="Zhuo, Ge: IG2: Integrated Gradient on Iterative Gradient Path for Feature Attribution. IEEE TPAMI "
        "46, 2024, arXiv 2406.10852.",
    )
)
@dataclass(frozen=True, kw_only=True)
class IG2(Repeating, Attribution):
    """The sum of gradient times step along a path on which the image comes to look, to the network, like another class.

    The path begins at the image. Each step goes down the gradient of the squared distance between the network's
    representation of the point and that of a reference image (normed to unit length; paper, equations 3 and 5), so
    that what the path changes is what tells the two apart, and its end is the baseline. The map is the mean over the
    references. These are training images of which the network says another class than the explained one; any, where it
    says that class of all.

    The representation is what goes into the network's last linear layer, and what the network returns where it has
    none.

    Departures: the released code steps by 256 where images have values in 0 to 255 and 3 × 224 × 224 of them; here a
    step's length is that share of the diagonal of the box that the training images' values lie in, within which values
    are kept. References are drawn from the images kept that are of another class; there they are chosen by hand.

    Attributes:
        n_steps: Of the path; 201 in the released code.
        step_size: Length of a step, as a share of the box's diagonal; 256 in the released code's units is 0.0026.
        n_references: Reference images for each image.
        n_training_images: Training images that are kept, at most, to choose the references from.
        seed: Of what is kept, and of the references. An image draws the same wherever it stands in a batch.
        training_images: ``[B, C, H, W]``, those that are kept; ``None`` before :meth:`fit`.
    """

    counted: ClassVar[str] = "n_steps"

    n_steps: int = 201
    step_size: float = 0.0026
    n_references: int = 1
    n_training_images: int = 20
    seed: int = 0
    training_images: Tensor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step_size > 0:
            raise ValueError(f"IG2(step_size={self.step_size!r}): expected a number above 0.")

    @property
    def fitted(self) -> bool:
        """Whether it has training images."""
        return self.training_images is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Keep some of the training images, each as likely as the other, in one pass, in an order that is drawn.

        Args:
            model: Not looked at.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them; the training data, by rights.

        Returns:
            This explainer with its images.

        Raises:
            TypeError: If a batch does not begin with a floating tensor.
            ValueError: If the loader is empty, or yields single images.
        """
        return replace(
            self, training_images=kept_images(type(self).__name__, loader, self.n_training_images, self.seed)
        )

    def passes_each(self, images: Tensor) -> int:
        """Passes for an image for each step.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            Forward once, and back twice, for each reference.
        """
        return 3 * self.n_references

    def cheaper_each(self) -> str:
        """What else to change.

        Returns:
            In words; empty where there is one reference already.
        """
        return f"n_references below {self.n_references}" if self.n_references > 1 else ""

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``; with ever shorter steps they sum to f(x) less the mean of f at the ends of the paths.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If the images kept have another shape.
        """
        if self.training_images is None:
            raise NotFittedError(
                "IG2 has no training images: fit it to them first, fitted = IG2().fit(model, loader), and explain with "
                "what that returns, explain(fitted, model, images, targets)."
            )
        kept = self.training_images.to(images)
        if kept.shape[1:] != images.shape[1:]:
            raise ValueError(f"IG2 was fitted to images {list(kept.shape[1:])}, got {list(images.shape[1:])}.")
        box = self.training_images.amin().item(), self.training_images.amax().item()
        length = self.step_size * (box[1] - box[0]) * images[0].numel() ** 0.5
        with _Representation(model) as seen:
            known, said = self._looked_up(model, seen, kept)
            references = self._references(images, said, targets)
            total = torch.zeros_like(images)
            rows = self.rows(images)
            for start in range(0, len(images), rows):
                part = slice(start, start + rows)
                for chosen in references[part].T:
                    total[part] += self._along(model, seen, images[part], targets[part], known[chosen], length, box)
        return reduce_channels(total / self.n_references, self.channels)

    def _looked_up(self, model: nn.Module, seen: _Representation, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The representations ``[B, R]`` of the images kept, and the classes ``[B]`` that the network says."""
        found, said = [], []
        with torch.no_grad():
            for (part,) in chunks(self.rows(kept), kept):
                outputs = model(part)
                found.append(seen.of(outputs))
                said.append(outputs.argmax(1))
        return torch.cat(found), torch.cat(said)

    def _references(self, images: Tensor, said: Tensor, targets: Tensor) -> Tensor:
        """Which of the B images kept are each image's, ``[N, n_references]``; of its own class only if no other is."""
        drawn = np.stack([rng.permutation(len(said)) for rng in sample_generators(self.seed, images)])
        order = torch.from_numpy(drawn).to(said.device)
        own = (said[order] == targets[:, None]).long()
        first = order.gather(1, own.argsort(dim=1, stable=True))
        return first[:, torch.arange(self.n_references) % len(said)]

    def _along(
        self,
        model: nn.Module,
        seen: _Representation,
        images: Tensor,
        targets: Tensor,
        aims: Tensor,
        length: float,
        box: tuple[float, float],
    ) -> Tensor:
        """Attributions ``[n, C, H, W]`` along the path towards the representations ``aims`` ``[n, R]``."""
        at, total = images.detach(), torch.zeros_like(images)
        low, high = images.clamp(max=box[0]), images.clamp(min=box[1])  # the image's own values stay within, too
        for _ in range(self.n_steps):
            with torch.enable_grad():
                point = at.detach().requires_grad_()
                outputs = model(point)
                distance = (seen.of(outputs) - aims).square().sum()
                (towards,) = torch.autograd.grad(distance, point, retain_graph=True)
                if isinstance(model, ExplainedOutput):
                    model.watch(len(point))  # what goes back from within the network does not come by its output
                (gradient,) = torch.autograd.grad(outputs.gather(1, targets[:, None]).sum(), point)
            size = towards.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
            # Where the distance has no slope, the path ends.
            step = torch.where(size > 0, length * towards / size.clamp(min=torch.finfo(size.dtype).tiny), 0.0)
            to = (at - step).clamp(low, high)
            total += (at - to) * gradient
            at = to
        return total


class _Representation(contextlib.AbstractContextManager["_Representation"]):
    """What goes into the last linear layer of the network, as it passes."""

    def __init__(self, model: nn.Module) -> None:
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
        """The representation ``[n, R]`` of the rows that gave these outputs."""
        return (outputs if self._seen is None else self._seen).flatten(1)
