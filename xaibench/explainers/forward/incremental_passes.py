"""Outputs for images that differ from each other in few values, without whole passes.

Along a permutation one value changes a step. In a small network of convolution, ReLU, pooling and linear layers that
changes a few numbers of each layer: they are carried along, the change times the weights is added to them, and ReLU and
max-pooling are done again only where something changed. Of the 1.4 million multiplications of a pass of the 64×64 CNN
some 50 to 100 thousand are left. It is done in float64, so that what thousands of additions round does not show, and
the last row is held against a plain pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.compiled_loops import kernels_enabled
from xaibench.core.compute.row_memory import Rows
from xaibench.explainers.forward.network_stages import LANES, Stage, stages_of
from xaibench.explainers.forward.stage_tables import Floats, Ints, Tables
from xaibench.explainers.shared.explained_output import ExplainedOutput

#: How far rounding may take the last row's output from that of a plain pass, relative to the largest.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}

#: Weights and positions of a network from which the tables would take more memory than they are worth.
MOST_WEIGHTS = 2**21

#: Which part of a pass's multiplications a step may take, that it is worth it. At a third, whole passes take as long
#: for the smallest networks, those of linear layers only.
MOST_WORK = 1 / 3

#: Numbers of the rows that are in work at a time.
_NUMBERS = 2**22

#: Steps that are worth a thread.
_GRAIN = 2**10


@dataclass(frozen=True)
class Steps:
    """Which values of an image change at each step.

    Attributes:
        which: ``[P, T]`` int64, values of the flattened image, step by step; P = 1: the same in all walks.
        ends: ``[P, S + 1]`` int64: step s changes ``which[:, ends[s] : ends[s + 1]]``.
    """

    which: Tensor
    ends: Tensor

    @classmethod
    def of(cls, place: Tensor, steps: int) -> Steps:
        """From the step at which each value changes, ``[P, D]``."""
        counts = place.new_zeros(len(place), steps).scatter_add_(1, place, torch.ones_like(place))
        return cls(place.argsort(dim=1, stable=True), nn.functional.pad(counts.cumsum(1), (1, 0)))


@dataclass(frozen=True)
class IncrementalPasses:
    """A network whose outputs can be carried along.

    Attributes:
        model: What is explained.
        stages: Of its network, with filters of zeros up to a multiple of four.
        tables: The same for the compiled loops.
        classes: Logits.
    """

    model: nn.Module
    stages: list[Stage]
    tables: Tables
    classes: int

    @classmethod
    def find(cls, model: nn.Module, images: Tensor, values: float) -> IncrementalPasses | None:
        """For steps that change so many ``values`` of images ``[N, C, H, W]``, about; None where it would not do.

        That is a network of other layers, or large, or on a GPU, or in another precision than single and double; and
        steps that change so much that whole passes are as fast.
        """
        if not kernels_enabled():
            return None
        there = images.device.type == "cpu" and images.dtype in _TOLERANCE and not torch.is_autocast_enabled("cpu")
        parameters = list(model.parameters())
        # What is made in inference mode does not say whether it was written to.
        there = there and not torch.is_inference_mode_enabled() and not images.is_inference()
        if not there or any(each.dtype != images.dtype or each.device != images.device for each in parameters):
            return None
        if sum(each.numel() for each in parameters) + images[0].numel() > MOST_WEIGHTS:
            return None
        stages = stages_of(model, images[:1])
        if stages is None or _work(stages, values / images.shape[1]) > MOST_WORK:
            return None
        filled: list[Stage] = []
        for stage in stages:
            filled.append(stage.filled(LANES, len(filled[-1].bias) if filled else images.shape[1]))
        return cls(model, filled, Tables.of(filled), len(stages[-1].bias))

    def walks(self, entries: int) -> int:
        """How many walks, of so many entries of ``which``, are worth being done at a time for the memory they take."""
        state = sum(math.prod(stage.sums_shape) + math.prod(stage.in_shape) for stage in self.stages)
        return max(1, _NUMBERS // (state + 4 * entries))

    def outputs(
        self, starts: Tensor, steps: Steps, to: Tensor, targets: Tensor, last: Tensor, carry: bool
    ) -> Tensor | None:
        """Target outputs ``[W, S]`` after each step of W walks; None if the last are not those of plain passes.

        Args:
            starts: Images ``[W, C, H, W]``, or one for all walks.
            steps: What changes. Each of P rows is for W / P walks that follow each other.
            to: ``[W, T]``, what the values ``steps.which`` become.
            targets: ``[W]``.
            last: ``[W]``, the output that a plain pass has for the row of the last step.
            carry: Whether a step begins where the one before ended; else at the start.
        """
        logits = torch.from_numpy(self._walk(starts, steps, to, carry)).to(to.dtype).flatten(0, 1)
        given = self.model
        if isinstance(given, ExplainedOutput):
            given.watch(len(logits))
            logits = given.head(logits)
        count = steps.ends.shape[1] - 1
        found = logits.gather(1, targets.repeat_interleave(count)[:, None]).reshape(-1, count)
        tolerance = _TOLERANCE[to.dtype]
        close = torch.allclose(found[:, -1], last, tolerance, tolerance * found.abs().max().item())
        return found if close else None

    def _walk(self, starts: Tensor, steps: Steps, to: Tensor, carry: bool) -> Floats:
        """The logits ``[W, S, K]``."""
        area = math.prod(starts.shape[2:])
        which = (steps.which % area * starts.shape[1] + steps.which // area).numpy()  # channels last
        ends = steps.ends.contiguous().numpy()
        row = np.arange(len(to)) // (len(to) // len(which))
        out = np.empty((len(to), ends.shape[1] - 1, self.classes))
        base = self._base(starts) if len(starts) == 1 else None
        for some in Rows(self.walks(to.shape[1])).parts(len(to)):
            values = to[some].double().contiguous().numpy()
            self._spread(base or self._base(starts[some]), (row[some], which, ends), values, carry, out[some])
        return out

    def _spread(
        self, base: tuple[Floats, Floats], order: tuple[Ints, Ints, Ints], values: Floats, carry: bool, out: Floats
    ) -> None:
        """Fill ``out``, on as many threads as torch may use and the work is worth."""
        from xaibench.explainers.forward.increment_loops import walk  # loads numba

        tables, (row, which, ends) = self.tables, order
        network = tables.stages, tables.runs, tables.reach, tables.windows, tables.weights

        def run(part: slice) -> None:
            own = base if len(base[0]) == 1 else (base[0][part], base[1][part])
            walk(*network, *own, row[part], which, ends, values[part], carry, out[part])

        threads = min(torch.get_num_threads(), len(values), 1 + out[..., 0].size // _GRAIN)
        parts = Rows(-(-len(values) // threads)).parts(len(values))
        if threads == 1:
            run(parts[0])
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, parts))

    def _base(self, images: Tensor) -> tuple[Floats, Floats]:
        """The sums and the units of images, ``[N, .]``, those of all stages side by side and channels last."""
        x = images.double()
        sums, units = [], [x]
        for stage in self.stages:
            found, x = stage.run(x)
            sums.append(found)
            units.append(x)
        flat = (torch.cat([x.permute(0, 2, 3, 1).flatten(1) for x in each], 1).numpy() for each in (sums, units))
        return next(flat), next(flat)


def _work(stages: Sequence[Stage], values: float) -> float:
    """Which part of the multiplications of whole passes a step takes that changes a square of so many positions."""
    side = math.ceil(math.sqrt(values))
    high, wide, total = side, side, 0
    for stage in stages:
        done, high, wide = stage.products_after(high, wide)
        total += done
    return total / sum(stage.products for stage in stages)
