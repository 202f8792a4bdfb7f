"""Gini index from the definition by sorted values, and from all differences; entropy term by term."""

import math
from fractions import Fraction


def sparseness(values):
    """1 - 2 sum_k v_(k) / |v|_1 * (d - k + 1/2) / d, in fractions."""
    v = sorted(Fraction(abs(float(value))) for value in values.ravel())
    d, total = len(v), sum(v)
    if total == 0:
        return math.nan
    return float(1 - 2 * sum(v[k - 1] / total * (d - k + Fraction(1, 2)) / d for k in range(1, d + 1)))


def mean_difference(values):
    """Half the mean absolute difference of two pixels over the mean: the other definition of the Gini index."""
    v = [Fraction(abs(float(value))) for value in values.ravel()]
    if sum(v) == 0:
        return math.nan
    return float(sum(abs(a - b) for a in v for b in v) / (2 * len(v) * sum(v)))


def complexity(values):
    v = [Fraction(abs(float(value))) for value in values.ravel()]
    if sum(v) == 0:
        return math.nan
    shares = [float(value / sum(v)) for value in v]
    return -math.fsum(p * math.log(p) for p in shares if p > 0)
