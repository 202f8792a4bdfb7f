"""Paired tests of every two methods of a cell on the same samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.tables import COMPARISONS
from xaibench.statistics import SamplingDesign, holm, nested_means, paired_differences

#: In cells of up to this many explainers, all pairs are one family of tests. In larger cells, pairs of a method and a
#: control are one family and pairs of two methods another, so that many methods do not weaken the tests against
#: the controls.
ALL_PAIRS = 15
Floats = NDArray[np.float64]


def pair_tests(
    methods: Sequence[str], control: Sequence[bool], values: Floats, drawn: SamplingDesign, groups: int
) -> pd.DataFrame:
    """Run the paired tests of one metric in one cell.

    Args:
        methods: ``M`` names.
        control: ``M`` flags, true for controls.
        values: ``[U, M]`` scores; ``nan`` where undefined.
        drawn: Data set, training and group of each row.
        groups: Number of groups of samples.

    Returns:
        One row per pair with the columns of :data:`~xaibench.runfolder.tables.COMPARISONS` after the metric, and
        ``of_controls``: whether the pair belongs to the family of tests against the controls.
    """
    every = len(methods) <= ALL_PAIRS
    controls, names = np.array(control, dtype=bool), np.array(methods, dtype=object)
    i, j = np.triu_indices(len(methods), 1)
    tested = every | ~(controls[i] & controls[j])
    i, j = i[tested], j[tested]
    if not len(i):
        return pd.DataFrame(columns=[*COMPARISONS.columns, "of_controls"])
    difference = paired_differences(values[:, i], values[:, j])
    found = nested_means(difference, drawn)
    p, intervals = found.p_values(), found.intervals()
    of_controls = every | (controls[i] != controls[j])
    corrected = np.full(len(p), np.nan)
    for family in (of_controls, ~of_controls):
        corrected[family] = holm(p[family])
    return pd.DataFrame(
        {
            "first": names[i],
            "second": names[j],
            "difference": found.mean,
            "low": intervals[:, 0],
            "high": intervals[:, 1],
            "p": p,
            "p_holm": corrected,
            "df": found.df,
            "n_valid": (~np.isnan(difference)).sum(axis=0),
            "n_groups": groups,
            "of_controls": of_controls,
        }
    )
