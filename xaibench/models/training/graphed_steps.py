"""A training step, captured as a CUDA graph where it is small: the host then launches it as one.

A step of networks for tiny images is 28 to 87 kernels, each of which the GPU has done before the host has launched the
next. A graph replays them all by one launch, from the same memory to the same memory, with the numbers that the host
put in when it was captured: so the batch is copied to where the captured one lay, Adam counts its steps on the device
(:class:`~xaibench.models.training.network_stack.Adam`), and the graph knows the generators of dropout, which go on
from one replay to the next as they would from step to step.
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

#: What does a captured step again, and where its result lies then.
Replay: TypeAlias = tuple[Callable[[], None], Tensor]

#: Numbers in the images of a batch, of all members, up to which the host is what a step may wait for. On an H100 five
#: networks of 512 images of 64×64 each, 10 million numbers, gain a factor of 3 (MLP) and 10 (LLR), and nothing (CNN).
#: Larger steps gain nothing, and a graph would keep their memory for itself.
LAUNCH_BOUND = 2**24

#: Steps that are taken before one is captured: in the first ones libraries choose kernels and reserve what these need.
WARM_UP = 3


class Graphs(Protocol):
    """Captures what a device is told to do."""

    def warm_up(self, call: Callable[[], Tensor]) -> Tensor:
        """Do it where it will be captured."""
        ...

    def capture(
        self, call: Callable[[], Tensor], draws: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], Tensor]:
        """Capture it; nothing is done yet.

        Args:
            call: What to capture.
            draws: The generators that it draws from.

        Raises:
            RuntimeError: If it cannot be captured.
        """
        ...


class CudaGraphs:
    """CUDA graphs, on a stream of their own: the default one cannot be captured."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def warm_up(self, call: Callable[[], Tensor]) -> Tensor:
        """Run it on the stream, between what came before it and what comes after."""
        present = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(present)
        with torch.cuda.stream(self._stream):
            found = call()
        present.wait_stream(self._stream)
        return found

    def capture(
        self, call: Callable[[], Tensor], draws: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], Tensor]:
        """As :class:`Graphs` has it."""
        graph = torch.cuda.CUDAGraph()
        for generator in draws:
            graph.register_generator_state(generator)
        # The outer block goes back to the present stream also where the inner one breaks off at its end.
        with torch.cuda.stream(torch.cuda.current_stream(self._device)), torch.cuda.graph(graph, stream=self._stream):
            found = call()
        return graph.replay, found


#: By type of device.
GRAPHS: dict[str, Callable[[torch.device], Graphs]] = {"cuda": CudaGraphs}


@dataclass(frozen=True)
class _Captured:
    """A captured step, and where in memory it finds its batch and leaves its losses."""

    images: Tensor
    targets: Tensor
    replay: Callable[[], None]
    lost: Tensor

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        self.images.copy_(images)
        self.targets.copy_(targets)
        self.replay()
        return self.lost


class LearningStep:
    """One step of all members down the loss of a batch.

    On an accelerator that has graphs, and where the step is bound by its launches, the first :data:`WARM_UP` batches
    are learned from as they come; then a step is captured, and replayed for every batch of the same shape. Any other
    batch, as the last of an epoch, is learned from as it comes; so is every batch where nothing can be captured, after
    one warning.

    Args:
        learner: Who learns.
        loss: Of each sample.
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
        """Learn from a batch.

        Args:
            images: Prepared, ``[M, B, ...]``.
            targets: ``[M, B]``.

        Returns:
            The sum of each member's losses ``[M]``, before the step; it may be overwritten by the next step.
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
        """Whether batches of the first one's shape are learned from by replaying a graph by now."""
        return self._captured is not None

    def retain(self, staying: Tensor) -> None:
        """Go on for fewer members: their weights lie elsewhere, so another step is captured."""
        self._warm_up, self._shape, self._captured = WARM_UP, None, None

    @torch.enable_grad()
    def plain(self, images: Tensor, targets: Tensor) -> Tensor:
        """The same, kernel by kernel."""
        losses = self._loss(self._learner.logits(images, True), targets)
        self._learner.descend(losses.mean(1).sum())
        return losses.detach().sum(1)

    def _capture(self, graphs: Graphs, images: Tensor, targets: Tensor) -> _Captured | None:
        """The step for what will lie in ``images`` and ``targets``; None where none can be captured, now or later."""
        assert isinstance(self._learner, Stack)
        try:
            replay = graphs.capture(functools.partial(self.plain, images, targets), self._learner.generators)
        except RuntimeError as error:
            _LOGGER.warning("no CUDA graph of a training step (%s); going on step by step", first_line(error))
            self._graphs = None
            self._learner.renew_generators()
            return None
        return _Captured(images, targets, *replay)
