"""Correlations between metrics over samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xaibench.core.types import Floats

if TYPE_CHECKING:
    import pandas as pd


class MetricAgreement(NamedTuple):
    """Agreement of metrics by pair: three square tables with a row and a column per metric.

    Attributes:
        coefficients: Correlation in [-1, 1], higher = more agreement; NaN where it is undefined.
        n: Number of samples that both metrics score, over which the coefficient is computed.
        kind: ``"spearman"``, or ``"point-biserial"`` if one of the two is binary.
    """

    coefficients: pd.DataFrame
    n: pd.DataFrame
    kind: pd.DataFrame


def correlate(columns: Mapping[str, Floats], binary: Collection[str]) -> MetricAgreement:
    """Correlate every two metrics over the samples that both score.

    Args:
        columns: Scores ``[N]`` by metric; higher is better, NaN if undefined.
        binary: The binary metrics. Correlations with these are point-biserial, all others Spearman's.
    """
    import pandas as pd

    names = list(columns)
    coefficients = pd.DataFrame(np.nan, index=names, columns=names)
    n = pd.DataFrame(0, index=names, columns=names)
    kind = pd.DataFrame("spearman", index=names, columns=names)
    for i, one in enumerate(names):
        for other in names[i:]:
            both = ~(np.isnan(columns[one]) | np.isnan(columns[other]))
            biserial = one in binary or other in binary
            r = _coefficient(columns[one][both], columns[other][both], biserial=biserial)
            for row, column in ((one, other), (other, one)):
                coefficients.loc[row, column], n.loc[row, column] = r, both.sum()
                kind.loc[row, column] = "point-biserial" if biserial else "spearman"
    return MetricAgreement(coefficients, n, kind)


def is_binary(values: Floats) -> bool:
    """Return whether all defined scores are 0 or 1."""
    defined = values[~np.isnan(values)]
    return len(defined) > 0 and bool(np.isin(defined, (0.0, 1.0)).all())


def _coefficient(x: Floats, y: Floats, *, biserial: bool) -> float:
    from scipy.stats import rankdata

    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    x, y = (x, y) if biserial else (rankdata(x), rankdata(y))
    # Scale before and after centering, so that neither huge nor tiny scores overflow or underflow.
    x, y = (v / np.abs(v).max() for v in (x, y))
    x, y = (v - v.mean() for v in (x, y))
    x, y = (v / np.abs(v).max() for v in (x, y))
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))
