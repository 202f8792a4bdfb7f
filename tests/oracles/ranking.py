"""AUC from all pairs of pixels, average precision from all thresholds."""

import itertools
import math
from fractions import Fraction

import numpy as np


def with_ties(values):
    """Neighbors in ascending order that differ by at most 1e-9 of the largest magnitude become equal."""
    ordered = sorted(set(values.ravel().tolist()))
    merged = {ordered[0]: ordered[0]}
    for lower, upper in itertools.pairwise(ordered):
        merged[upper] = merged[lower] if upper - lower <= 1e-9 * np.abs(values).max() else upper
    return np.vectorize(merged.get)(values)


def roc_auc(values, mask):
    values = with_ties(values)
    inside, outside = values[mask].tolist(), values[~mask].tolist()
    if not inside or not outside or not values.any():
        return math.nan
    won = sum(Fraction(1 if i > o else 0) + Fraction(1 if i == o else 0) / 2 for i in inside for o in outside)
    return float(won / (len(inside) * len(outside)))


def average_precision(values, mask):
    if not mask.any() or not values.any():
        return math.nan
    values = with_ties(values)
    area, recall = Fraction(0), Fraction(0)
    for threshold in sorted(set(values.ravel().tolist()), reverse=True):
        marked = values >= threshold
        both = int((marked & mask).sum())
        precision, reached = Fraction(both, int(marked.sum())), Fraction(both, int(mask.sum()))
        area, recall = area + (reached - recall) * precision, reached
    return float(area)
