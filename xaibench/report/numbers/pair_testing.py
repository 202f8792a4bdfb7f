"""Every two methods of a cell: how far apart they are on the same samples, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.tables import COMPARISONS
from xaibench.statistics import Drawn, holm, nested_means, paired_differences

#: Up to so many explainers of a cell, all pairs are one family of tests; of more, the pairs of a method and a control
#: are one, so that many methods do not hide what each is worth, and those of two methods another.
ALL_PAIRS = 15
Floats = NDArray[np.float64]


def pair_tests(
    methods: Sequence[str], control: Sequence[bool], values: Floats, drawn: Drawn, groups: int
) -> pd.DataFrame:
    """The paired tests of one metric in one cell.

    Args:
        methods: ``M`` names.
        control: ``M``, which of them know no model.
        values: ``[U, M]`` scores; ``nan`` where undefined.
        drawn: Which data set, training and group each row is of.
        groups: How many groups of samples there are.

    Returns:
        A row for each pair with the columns of :data:`~xaibench.runfolder.tables.COMPARISONS` after the metric, and
        ``of_controls``: whether it is in the family that says who beats the controls.
    """
    every = len(methods) <= ALL_PAIRS
    controls, names = np.array(control, dtype=bool), np.array(methods, dtype=object)
    i, j = np.triu_indices(len(methods), 1)
    tested = every | ~(controls[i] & controls[j])
    i, j = i[tested], j[tested]
    if not len(i):
        return pd.DataFrame(columns=[*COMPARISONS.columns, "of_controls"])
    difference = paired_differences(values[:, i], values[:, j])
    found = nested_means(difference, drawn, alike=True)
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
            "freedom": found.freedom,
            "n_valid": (~np.isnan(difference)).sum(axis=0),
            "n_groups": groups,
            "of_controls": of_controls,
        }
    )
