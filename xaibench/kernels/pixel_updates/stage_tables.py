"""Store stages as tables for the compiled loops: where the change of each value of the image and each unit goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xaibench.kernels.pixel_updates.network_stages import ConvStage

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StageTables:
    """The tables of a network for :func:`xaibench.kernels.pixel_updates.loops.run_walks`.

    Attributes:
        stages: ``[L, 14]``: input and output channels, step between the weights of consecutive channels, first run,
            runs per position, first entry of ``reach``, its entries per position, first entry of ``windows``, positions
            per window, whether there is a ReLU, first sum, first input unit, first output unit, windows of earlier
            stages.
        runs: ``[., 3]``: the first sum, the first weight and the length of a run. Filters at neighboring positions are
            joined, so that the loop over them is long. Length 0 is padding.
        reach: The windows that a position affects, padded with -1.
        windows: The positions in each pooling window; some occur twice at borders.
        weights: ``[h, C, w, O]`` of each stage, with the columns of the kernel reversed.
    """

    stages: IntArray
    runs: IntArray
    reach: IntArray
    windows: IntArray
    weights: FloatArray

    @staticmethod
    def of(stages: Sequence[ConvStage]) -> StageTables:
        """Create the tables of some stages."""
        parts: list[tuple[IntArray, ...]] = []
        weights: list[FloatArray] = []
        seen = np.zeros(7, np.int64)  # runs, entries of reach and windows, sums, units, windows, weights
        for stage in stages:
            filters, channels, _, wide = stage.weight.shape
            y, x = (_Axis.of(stage, i) for i in range(2))
            runs, reach, windows = _weight_runs(y, x, stage), _reached_windows(y, x), _pooling_windows(y, x)
            runs[..., 0] += seen[3]
            runs[..., 1] += seen[6]
            going_out = seen[4] + math.prod(stage.in_shape)
            row = [
                channels, filters, wide * filters, seen[0], runs.shape[1], seen[1], reach.shape[1],
                seen[2], windows.shape[1], stage.relu, seen[3], seen[4], going_out, seen[5],
            ]  # fmt: skip
            parts.append((np.array([row]), runs.reshape(-1, 3), reach.ravel(), windows.ravel()))
            # [h, C, w, O], both axes reversed: the sums that a position affects are in the order of the weights.
            weights.append(stage.weight.double().flip(2, 3).permute(2, 1, 3, 0).contiguous().numpy().ravel())
            used = len(parts[-1][1]), reach.size, windows.size, math.prod(stage.sums_shape), math.prod(stage.in_shape)
            seen += [*used, len(windows), weights[-1].size]
        numbers, runs, reach, windows = (np.concatenate(each) for each in zip(*parts, strict=True))
        return StageTables(numbers.astype(np.int64), runs, reach, windows, np.concatenate(weights))


@dataclass(frozen=True)
class _Axis:
    """A stage along one axis.

    Attributes:
        taps: ``[P, R, 3]``, for each input position: tap (reversed), sum, count. With stride 1, neighboring taps meet
            neighboring sums and are one entry; count 0 is padding.
        windows: ``[Q, V]``, the sums in each pooling window. Padding repeats the nearest sum.
        reach: ``[P, U]``, the windows that a position affects, padded with -1.
        sums: Number of sums.
    """

    taps: IntArray
    windows: IntArray
    reach: IntArray
    sums: int

    @staticmethod
    def of(stage: ConvStage, i: int) -> _Axis:
        """Create the axis of a stage: 0 is the height, 1 the width."""
        kernel, stride, padding = stage.weight.shape[2 + i], stage.stride[i], stage.padding[i]
        size, step, around = (each[i] for each in stage.pool)
        sums = stage.sums_shape[1 + i]
        windows = (np.arange(stage.shape[1 + i])[:, None] * step - around + np.arange(size)).clip(0, sums - 1)
        meets: list[set[int]] = [set() for _ in range(sums)]
        for window, members in enumerate(windows.tolist()):
            for member in members:
                meets[member].add(window)
        taps, reach = [], []
        for position in range(stage.in_shape[1 + i]):
            met = [(kernel - 1 - k, *divmod(position + padding - k, stride)) for k in reversed(range(kernel))]
            there = [(tap, at, 1) for tap, at, rest in met if rest == 0 and 0 <= at < sums]
            reach.append(sorted(set().union(*(meets[at] for _, at, _ in there))))
            # Along the width, neighbors are adjacent in memory.
            taps.append([(*there[0][:2], len(there))] if there and i and stride == 1 else there)
        return _Axis(_pad_lists(taps, (0, 0, 0)), windows, _pad_lists(reach, -1), sums)


def _pad_lists(lists: Sequence[Sequence[Any]], empty: Any) -> IntArray:
    """Return lists of different lengths as one array of at least one column."""
    most = max(1, max(map(len, lists)))
    return np.array([[*each, *[empty] * (most - len(each))] for each in lists], np.int64)


def _weight_runs(y: _Axis, x: _Axis, stage: ConvStage) -> IntArray:
    """Return ``[P, R, 3]``, counted from the first sum and weight of the stage."""
    filters, channels, _, wide = stage.weight.shape
    high, along = y.taps[:, None, :, None], x.taps[None, :, None, :]
    first = (high[..., 1] * x.sums + along[..., 1]) * filters
    source = (high[..., 0] * channels * wide + along[..., 0]) * filters
    length = high[..., 2] * along[..., 2] * filters
    return np.stack([first, source, length], -1).reshape(len(y.taps) * len(x.taps), -1, 3)


def _reached_windows(y: _Axis, x: _Axis) -> IntArray:
    """Return the pooling windows that each pixel affects, ``[P, U]``; -1 fills the rows."""
    high, along = y.reach[:, None, :, None], x.reach[None, :, None, :]
    found = np.where((high < 0) | (along < 0), -1, high * len(x.windows) + along)
    return found.reshape(len(y.reach) * len(x.reach), -1)


def _pooling_windows(y: _Axis, x: _Axis) -> IntArray:
    """Return the positions ``[Q, V]`` of the pooling windows."""
    found = y.windows[:, None, :, None] * x.sums + x.windows[None, :, None, :]
    return found.reshape(len(y.windows) * len(x.windows), -1)
