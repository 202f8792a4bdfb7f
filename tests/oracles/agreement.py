"""Spearman's correlation with mean ranks, and the point-biserial one, from their textbook formulas."""

import math


def _ranks(values):
    return [sum(w < v for w in values) + (1 + sum(w == v for w in values)) / 2 for v in values]


def _pearson(x, y):
    n = len(x)
    mx, my = math.fsum(x) / n, math.fsum(y) / n
    sxy = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    sxx, syy = math.fsum((a - mx) ** 2 for a in x), math.fsum((b - my) ** 2 for b in y)
    return sxy / math.sqrt(sxx * syy)


def spearman(x, y):
    return _pearson(_ranks(x), _ranks(y))


def point_biserial(hits, y):
    """(mean among the hits - mean among the misses) / population standard deviation * sqrt(n1 n0 / n^2)."""
    n = len(y)
    ones = [value for hit, value in zip(hits, y, strict=True) if hit == 1]
    zeros = [value for hit, value in zip(hits, y, strict=True) if hit == 0]
    mean = math.fsum(y) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in y) / n)
    difference = math.fsum(ones) / len(ones) - math.fsum(zeros) / len(zeros)
    return difference / spread * math.sqrt(len(ones) * len(zeros) / n**2)
