"""Compute outputs for images that differ in a few values, without full forward passes.

Along a permutation, each step changes one value of the image. In a small network of convolution, ReLU, pooling and
linear layers, this changes a few numbers of each layer. These are updated: the change times the weights is added, and
ReLU and max-pooling are evaluated only where something changed. For the 64×64 CNN this takes some 50 to 100 thousand of
the 1.4 million multiplications of a full pass. The updates are done in float64, so that rounding does not accumulate
over thousands of additions, and the last row is compared with a full pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.kernels.compilation import kernels_enabled
from xaibench.kernels.pixel_updates.network_stages import (
    FILTER_MULTIPLE,
    ConvStage,
    FloatArray,
    IntArray,
    StageTables,
    find_stages,
)
from xaibench.network.explained_output import ExplainedOutput
from xaibench.tensors.batching import BatchSize

#: Tolerance between the last row's output and that of a full pass, relative to the largest output.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}

#: Largest number of weights and positions of a network for which the tables fit into memory reasonably.
MAX_WEIGHTS = 2**21

#: Largest share of a full pass's multiplications that a step may take. At a third, full passes are as fast for the
#: smallest networks, those of linear layers only.
MAX_RELATIVE_COST = 1 / 3

#: Number of values that are held at a time.
_MAX_NUMBERS = 2**22

#: Number of steps that justify a thread.
_STEPS_PER_THREAD = 2**10


@dataclass(frozen=True)
class Steps:
    """The values of an image that change at each step.

    Attributes:
        which: ``[P, T]`` int64, indices into the flattened image, step by step; P = 1 if all walks share them.
        ends: ``[P, S + 1]`` int64: step s changes ``which[:, ends[s] : ends[s + 1]]``.
    """

    which: Tensor
    ends: Tensor

    @classmethod
    def of(cls, place: Tensor, steps: int) -> Steps:
        """Create the steps from the step at which each value changes, ``[P, D]``."""
        counts = place.new_zeros(len(place), steps).scatter_add_(1, place, torch.ones_like(place))
        return cls(place.argsort(dim=1, stable=True), nn.functional.pad(counts.cumsum(1), (1, 0)))


@dataclass(frozen=True)
class IncrementalPasses:
    """A network whose outputs can be updated incrementally.

    Attributes:
        model: The network with its explained output.
        stages: Its stages, with filters padded by zeros to a multiple of four.
        tables: The same stages as tables for the compiled loops.
        classes: Number of logits.
    """

    model: nn.Module
    stages: list[ConvStage]
    tables: StageTables
    classes: int

    @classmethod
    def find(cls, model: nn.Module, images: Tensor, values: float) -> IncrementalPasses | None:
        """Prepare the network for steps that change about ``values`` values of images ``[N, C, H, W]``.

        Returns None if the network has other layers, is large, on a GPU or in another precision than float32 and
        float64, or if the steps change so much that full passes are as fast.
        """
        if not kernels_enabled():
            return None
        there = images.device.type == "cpu" and images.dtype in _TOLERANCE and not torch.is_autocast_enabled("cpu")
        parameters = list(model.parameters())
        # Tensors created in inference mode have no version counter.
        there = there and not torch.is_inference_mode_enabled() and not images.is_inference()
        if not there or any(each.dtype != images.dtype or each.device != images.device for each in parameters):
            return None
        if sum(each.numel() for each in parameters) + images[0].numel() > MAX_WEIGHTS:
            return None
        stages = find_stages(model, images[:1])
        if stages is None or _relative_cost(stages, values / images.shape[1]) > MAX_RELATIVE_COST:
            return None
        filled: list[ConvStage] = []
        for stage in stages:
            filled.append(stage.filled(FILTER_MULTIPLE, len(filled[-1].bias) if filled else images.shape[1]))
        return cls(model, filled, StageTables.of(filled), len(stages[-1].bias))

    def walks(self, entries: int) -> int:
        """Return the number of walks with ``entries`` entries of ``which`` that fit the memory budget."""
        state = sum(math.prod(stage.sums_shape) + math.prod(stage.in_shape) for stage in self.stages)
        return max(1, _MAX_NUMBERS // (state + 4 * entries))

    def outputs(
        self, starts: Tensor, steps: Steps, to: Tensor, targets: Tensor, last: Tensor, carry: bool
    ) -> Tensor | None:
        """Compute target outputs ``[W, S]`` after each step of W walks; None if the last ones differ from full passes.

        Args:
            starts: Images ``[W, C, H, W]``, or one image for all walks.
            steps: The changed values. Each of the P rows is used by W / P consecutive walks.
            to: ``[W, T]``, the new values of ``steps.which``.
            targets: ``[W]``.
            last: ``[W]``, the output of a full pass for the row of the last step.
            carry: Whether a step begins at the end of the previous one; otherwise at the start.
        """
        logits = torch.from_numpy(self._run_walks(starts, steps, to, carry)).to(to.dtype).flatten(0, 1)
        given = self.model
        if isinstance(given, ExplainedOutput):
            given.on_rows(len(logits))
            logits = given.head(given.select(logits, len(logits)))
        count = steps.ends.shape[1] - 1
        found = logits.gather(1, targets.repeat_interleave(count)[:, None]).reshape(-1, count)
        tolerance = _TOLERANCE[to.dtype]
        close = torch.allclose(found[:, -1], last, tolerance, tolerance * found.abs().max().item())
        return found if close else None

    def _run_walks(self, starts: Tensor, steps: Steps, to: Tensor, carry: bool) -> FloatArray:
        """Compute the logits ``[W, S, K]``."""
        area = math.prod(starts.shape[2:])
        which = (steps.which % area * starts.shape[1] + steps.which // area).numpy()  # the kernel stores channels last
        ends = steps.ends.contiguous().numpy()
        row = np.arange(len(to)) // (len(to) // len(which))
        out = np.empty((len(to), ends.shape[1] - 1, self.classes))
        base = self._base_state(starts) if len(starts) == 1 else None
        for some in BatchSize(self.walks(to.shape[1])).slices(len(to)):
            values = to[some].double().contiguous().numpy()
            self._fill_outputs(
                base or self._base_state(starts[some]), (row[some], which, ends), values, carry, out[some]
            )
        return out

    def _fill_outputs(
        self,
        base: tuple[FloatArray, FloatArray],
        order: tuple[IntArray, IntArray, IntArray],
        values: FloatArray,
        carry: bool,
        out: FloatArray,
    ) -> None:
        """Fill ``out``, using as many of torch's threads as the work justifies."""
        from xaibench.kernels.pixel_updates.loops import run_walks  # loads numba

        tables, (row, which, ends) = self.tables, order
        network = tables.stages, tables.runs, tables.reach, tables.windows, tables.weights

        def run(part: slice) -> None:
            own = base if len(base[0]) == 1 else (base[0][part], base[1][part])
            run_walks(*network, *own, row[part], which, ends, values[part], carry, out[part])

        threads = min(torch.get_num_threads(), len(values), 1 + out[..., 0].size // _STEPS_PER_THREAD)
        parts = BatchSize(-(-len(values) // threads)).slices(len(values))
        if threads == 1:
            run(parts[0])
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, parts))

    def _base_state(self, images: Tensor) -> tuple[FloatArray, FloatArray]:
        """Compute the sums and units of images, ``[N, .]``, all stages concatenated, channels last."""
        x = images.double()
        sums, units = [], [x]
        for stage in self.stages:
            found, x = stage.run(x)
            sums.append(found)
            units.append(x)
        flat = (torch.cat([x.movedim(1, -1).flatten(1) for x in each], 1).numpy() for each in (sums, units))
        return next(flat), next(flat)


def _relative_cost(stages: Sequence[ConvStage], values: float) -> float:
    """Return the multiplications of a step that changes a square of ``values`` positions, relative to a full pass."""
    side = math.ceil(math.sqrt(values))
    high, wide, total = side, side, 0
    for stage in stages:
        done, high, wide = stage.products_after(high, wide)
        total += done
    return total / sum(stage.products for stage in stages)
