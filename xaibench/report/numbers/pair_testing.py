"""Every two methods of a cell: how far apart they are on the same samples, and whether that is more than chance."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.tables import COMPARISONS
from xaibench.statistics import bootstrap_intervals, holm, paired_test

#: Up to so many explainers of a cell, all pairs are one family of tests; of more, the pairs of a method and a control
#: are one, so that many methods do not hide what each is worth, and those of two methods another.
ALL_PAIRS = 15
Floats = NDArray[np.float64]


def pair_tests(
    methods: Sequence[str], control: Sequence[bool], values: Floats, bundles: NDArray[np.int64], groups: int
) -> pd.DataFrame:
    """The paired tests of one metric in one cell.

    Args:
        methods: ``M`` names.
        control: ``M``, which of them know no model.
        values: ``[U, M]`` scores; ``nan`` where undefined.
        bundles: ``[U]`` rows that are drawn and turned together.
        groups: How many groups of samples there are.

    Returns:
        A row for each pair with the columns of :data:`~xaibench.runfolder.tables.COMPARISONS` after the metric, and
        ``of_controls``: whether it is in the family that says who beats the controls.
    """
    every = len(methods) <= ALL_PAIRS
    pairs = [
        (i, j) for i, j in itertools.combinations(range(len(methods)), 2) if every or not (control[i] and control[j])
    ]
    if not pairs:
        return pd.DataFrame(columns=[*COMPARISONS.columns, "of_controls"])
    firsts, seconds = (values[:, list(side)] for side in zip(*pairs, strict=True))
    difference = firsts - seconds
    defined = ~np.isnan(difference)
    sums, n = _bundle_sums(difference, defined, bundles), defined.sum(axis=0)
    p = paired_test(sums)
    of_controls = np.array([every or control[i] != control[j] for i, j in pairs])
    corrected = np.full(len(p), np.nan)
    for family in (of_controls, ~of_controls):
        corrected[family] = holm(p[family])
    intervals = bootstrap_intervals(difference, bundles)
    return pd.DataFrame(
        {
            "first": [methods[i] for i, _ in pairs],
            "second": [methods[j] for _, j in pairs],
            "difference": np.divide(np.nansum(sums, axis=0), n, out=np.full(len(n), np.nan), where=n > 0),
            "low": intervals[:, 0],
            "high": intervals[:, 1],
            "p": p,
            "p_holm": corrected,
            "n_valid": n,
            "n_groups": groups,
            "of_controls": of_controls,
        }
    )


def _bundle_sums(difference: Floats, defined: NDArray[np.bool_], bundles: NDArray[np.int64]) -> Floats:
    """``[B, P]``: the sum of the defined differences of each bundle; ``nan`` where it has none."""
    order = np.argsort(bundles, kind="stable")
    starts = np.flatnonzero(np.diff(bundles[order], prepend=-1))
    sums = np.add.reduceat(np.where(defined, difference, 0.0)[order], starts, axis=0)
    sums[~np.logical_or.reduceat(defined[order], starts, axis=0)] = np.nan
    return np.asarray(sums)
