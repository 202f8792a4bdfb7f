"""Training steps that are captured as CUDA graphs if they are small, so that the host launches each as a whole.

A step of networks for tiny images consists of 28 to 57 kernels, each of which the GPU finishes before the host has
launched the next. A graph replays all of them with a single launch. It uses the same memory and the same host values
as at capture: so the batch is copied to the captured batch's memory, Adam counts its steps on the device
(:class:`~xaibench.models.training.network_stack.Adam`), and the generators of dropout are registered with the graph, so
that they continue from one replay to the next.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from xaibench.core.messages import first_line
from xaibench.models.training.network_stack import Single, Stack

_LOGGER = logging.getLogger("xaibench")

#: Loss of each sample ``[M, B]``, from logits ``[M, B, K]`` and targets ``[M, B]``.
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]

#: Function that replays a captured step, and the tensor that then holds its result.
Replay: TypeAlias = tuple[Callable[[], None], Tensor]

#: Number of input values per batch, over all members, up to which a step may be bound by the host. On an H100, five
#: networks with 512 images of 64×64 each (10 million values) become faster by a factor of 4 (MLP), 10 (LLR), 1.2 (CNN).
#: Larger steps are not faster, and a graph would occupy their memory.
LAUNCH_BOUND = 2**24

#: Steps before one is captured. In the first steps, libraries select kernels and allocate memory for them.
WARM_UP = 3


class Graphs(Protocol):
    """Captures computations of a device as graphs."""

    def warm_up(self, call: Callable[[], Tensor]) -> Tensor:
        """Call a function on the stream on which ``capture`` will record it."""
        ...

    def capture(
        self, call: Callable[[], Tensor], draws: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], Tensor]:
        """Capture a call without running it.

        Args:
            call: The function to capture.
            draws: Generators that it uses.

        Raises:
            RuntimeError: If it cannot be captured.
        """
        ...


class CudaGraphs:
    """CUDA graphs on a separate stream, since the default stream cannot be captured."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def warm_up(self, call: Callable[[], Tensor]) -> Tensor:
        """Run the call on the separate stream, ordered with the current stream."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            result = call()
        present.wait_stream(self._stream)
        return result

    def capture(
        self, call: Callable[[], Tensor], draws: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], Tensor]:
        """Capture a call, as described in :class:`Graphs`."""
        graph = torch.cuda.CUDAGraph()
        for generator in draws:
            graph.register_generator_state(generator)
        # The outer block restores the current stream even if the inner one raises at its end.
        with torch.cuda.stream(torch.cuda.current_stream(self._device)), torch.cuda.graph(graph, stream=self._stream):
            result = call()
        return graph.replay, result


#: Graph implementations by device type.
GRAPHS: dict[str, Callable[[torch.device], Graphs]] = {"cuda": CudaGraphs}


@dataclass(frozen=True)
class _Captured:
    """A captured step and the memory of its batch and its losses."""

    images: Tensor
    targets: Tensor
    replay: Callable[[], None]
    losses: Tensor

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        self.images.copy_(images)
        self.targets.copy_(targets)
        self.replay()
        return self.losses


class LearningStep:
    """One training step of all members.

    If the device supports graphs and the step is bound by launches, the first :data:`WARM_UP` batches are trained
    eagerly. Then a step is captured and replayed for every batch of the same shape. Other batches, such as the last of
    an epoch, are trained eagerly. If the capture fails, a warning is logged and all batches are trained eagerly.

    Args:
        learner: The models.
        loss: Loss of each sample.
    """

    def __init__(self, learner: Stack | Single, loss: LossFunction) -> None:
        self._learner, self._loss = learner, loss
        self._graphs: Graphs | None = None
        if isinstance(learner, Stack) and learner.device.type in GRAPHS:
            self._graphs = GRAPHS[learner.device.type](learner.device)
        self._warm_up = WARM_UP
        self._shape: torch.Size | None = None
        self._captured: _Captured | None = None

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        """Train on a batch.

        Args:
            images: Prepared images ``[M, B, ...]``.
            targets: ``[M, B]``.

        Returns:
            The sum of each member's losses ``[M]``, before the step. The next step may overwrite it.
        """
        if self._shape is None:
            self._shape = images.shape
        if self._graphs is None or images.shape != self._shape or images.numel() > LAUNCH_BOUND:
            return self.plain(images, targets)
        if self._warm_up > 0:
            self._warm_up -= 1
            return self._graphs.warm_up(functools.partial(self.plain, images, targets))
        if self._captured is None:
            self._captured = self._capture(self._graphs, images.clone(), targets.clone())
        return (self._captured or self.plain)(images, targets)

    @property
    def replays(self) -> bool:
        """Whether batches of the first one's shape are trained by replaying a graph now."""
        return self._captured is not None

    def retain(self, staying: Tensor) -> None:
        """Continue with fewer members. Their weights are in other memory, so a new step is captured."""
        self._warm_up, self._shape, self._captured = WARM_UP, None, None

    @torch.enable_grad()
    def plain(self, images: Tensor, targets: Tensor) -> Tensor:
        """Run the step eagerly, without a graph."""
        losses = self._loss(self._learner.logits(images, True), targets)
        self._learner.descend(losses.mean(1).sum())
        return losses.detach().sum(1)

    def _capture(self, graphs: Graphs, images: Tensor, targets: Tensor) -> _Captured | None:
        """Capture the step for the memory of ``images`` and ``targets``; None if it cannot be captured."""
        assert isinstance(self._learner, Stack)
        try:
            replay = graphs.capture(functools.partial(self.plain, images, targets), self._learner.generators)
        except RuntimeError as error:
            _LOGGER.warning(
                "A training step cannot be captured as a CUDA graph (%s); training continues without graphs.",
                first_line(error),
            )
            self._graphs = None
            self._learner.renew_generators()
            return None
        return _Captured(images, targets, *replay)
