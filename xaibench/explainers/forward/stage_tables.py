"""Stages as tables for the compiled loops: where each value of the image and each unit goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xaibench.explainers.forward.network_stages import Stage

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tables:
    """What :func:`xaibench.explainers.forward.increment_loops.walk` has to know of a network.

    Attributes:
        stages: ``[L, 14]``: channels in and out, step from a channel's weights to the next, first run, runs of a
            position, first entry of ``reach``, its entries for a position, first entry of ``windows``, positions in a
            window, ReLU or not, first sum, first unit that comes in, first that goes out, windows of earlier stages.
        runs: ``[., 3]``: the first sum, the first weight and the length of a run: of the filters at neighbouring
            positions, so that a loop over them is long. Length 0 fills up.
        reach: Windows that a position reaches; -1 fills up.
        windows: Positions in a pooling window, some of them twice at borders.
        weights: Of each stage, ``[h, C, w, O]`` with the columns of the kernel in reverse.
    """

    stages: Ints
    runs: Ints
    reach: Ints
    windows: Ints
    weights: Floats

    @staticmethod
    def of(stages: Sequence[Stage]) -> Tables:
        """The tables of some stages."""
        parts: list[tuple[Ints, ...]] = []
        weights: list[Floats] = []
        seen = np.zeros(7, np.int64)  # runs, entries of reach and windows, sums, units, windows, weights
        for stage in stages:
            filters, channels, _, wide = stage.weight.shape
            y, x = (_Axis.of(stage, i) for i in range(2))
            runs, reach, windows = _runs(y, x, stage), _reach(y, x), _windows(y, x)
            runs[..., 0] += seen[3]
            runs[..., 1] += seen[6]
            going_out = seen[4] + math.prod(stage.in_shape)
            row = [
                channels, filters, wide * filters, seen[0], runs.shape[1], seen[1], reach.shape[1],
                seen[2], windows.shape[1], stage.relu, seen[3], seen[4], going_out, seen[5],
            ]  # fmt: skip
            parts.append((np.array([row]), runs.reshape(-1, 3), reach.ravel(), windows.ravel()))
            # [h, C, w, O], both axes in reverse: the sums that a position reaches lie as the weights do.
            weights.append(stage.weight.double().flip(2, 3).permute(2, 1, 3, 0).contiguous().numpy().ravel())
            used = len(parts[-1][1]), reach.size, windows.size, math.prod(stage.sums_shape), math.prod(stage.in_shape)
            seen += [*used, len(windows), weights[-1].size]
        numbers, runs, reach, windows = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Tables(numbers.astype(np.int64), runs, reach, windows, np.concatenate(weights))


@dataclass(frozen=True)
class _Axis:
    """A stage along one axis.

    Attributes:
        taps: ``[P, R, 3]``, for each position that comes in: tap (in reverse), sum, count. With stride 1, neighbouring
            taps meet neighbouring sums, and are one entry; count 0 fills up.
        windows: ``[Q, V]``, the sums in each pooling window. Padding is the nearest sum again.
        reach: ``[P, U]``, the windows that a position reaches; -1 fills up.
        sums: Their number.
    """

    taps: Ints
    windows: Ints
    reach: Ints
    sums: int

    @staticmethod
    def of(stage: Stage, i: int) -> _Axis:
        """Axis 0 is the height, 1 the width."""
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
            # Along the width neighbours lie side by side in memory.
            taps.append([(*there[0][:2], len(there))] if there and i and stride == 1 else there)
        return _Axis(_filled(taps, (0, 0, 0)), windows, _filled(reach, -1), sums)


def _filled(lists: Sequence[Sequence[Any]], empty: Any) -> Ints:
    """Lists of different lengths as one array, at least one entry long."""
    most = max(1, max(map(len, lists)))
    return np.array([[*each, *[empty] * (most - len(each))] for each in lists], np.int64)


def _runs(y: _Axis, x: _Axis, stage: Stage) -> Ints:
    """``[P, R, 3]``, counted from the stage's own first sum and weight."""
    filters, channels, _, wide = stage.weight.shape
    high, along = y.taps[:, None, :, None], x.taps[None, :, None, :]
    first = (high[..., 1] * x.sums + along[..., 1]) * filters
    source = (high[..., 0] * channels * wide + along[..., 0]) * filters
    length = high[..., 2] * along[..., 2] * filters
    return np.stack([first, source, length], -1).reshape(len(y.taps) * len(x.taps), -1, 3)


def _reach(y: _Axis, x: _Axis) -> Ints:
    """``[P, U]``."""
    high, along = y.reach[:, None, :, None], x.reach[None, :, None, :]
    found = np.where((high < 0) | (along < 0), -1, high * len(x.windows) + along)
    return found.reshape(len(y.reach) * len(x.reach), -1)


def _windows(y: _Axis, x: _Axis) -> Ints:
    """``[Q, V]``."""
    found = y.windows[:, None, :, None] * x.sums + x.windows[None, :, None, :]
    return found.reshape(len(y.windows) * len(x.windows), -1)
