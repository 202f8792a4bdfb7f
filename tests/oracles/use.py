"""Metrics of what a network uses, pixel by pixel, in exact fractions."""

import math
from fractions import Fraction


def mass(values):
    return sum((abs(Fraction(float(value))) for value in values), Fraction())


def mass_outside(map_, mask):
    """The share of the mass outside, over the share of the pixels outside."""
    inside = [value for value, used in zip(map_.flat, mask.flat, strict=True) if used]
    outside = [value for value, used in zip(map_.flat, mask.flat, strict=True) if not used]
    if not inside or not outside or not mass(map_.flat):
        return math.nan
    return float(mass(outside) / mass(map_.flat) / Fraction(len(outside), map_.size))


def grid_pointing(map_, mask):
    """The share of what is positive inside."""
    positive = [
        (max(Fraction(float(value)), Fraction()), used) for value, used in zip(map_.flat, mask.flat, strict=True)
    ]
    whole = sum((value for value, _ in positive), Fraction())
    if not mask.any() or not whole:
        return math.nan
    return float(sum((value for value, used in positive if used), Fraction()) / whole)


def pairs_won(map_, mask):
    """Pairs of a used and an unused pixel that the used one wins by magnitude, a tie counting for half."""
    used, unused = abs(map_[mask]), abs(map_[~mask])
    if not len(used) or not len(unused) or not map_.any():
        return math.nan
    won = sum(Fraction(int(a > b)) + Fraction(int(a == b), 2) for a in used for b in unused)
    return float(won / (len(used) * len(unused)))


def precision_at_each(map_, mask):
    """Of each used pixel: the precision of all pixels of at least its magnitude; their mean."""
    if not mask.any() or not map_.any():
        return math.nan
    sizes = abs(map_)
    found = [Fraction(int(mask[sizes >= size].sum()), int((sizes >= size).sum())) for size in sizes[mask]]
    return float(sum(found, Fraction()) / len(found))


def shapley_error(map_, values):
    far = sum(
        (abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(map_.flat, values.flat, strict=True)), Fraction()
    )
    return float(far / mass(values.flat)) if values.any() else math.nan


def sign_agreement(map_, values):
    pairs = [(a, b) for a, b in zip(map_.flat, values.flat, strict=True) if b != 0]
    return sum((a > 0) == (b > 0) and a != 0 for a, b in pairs) / len(pairs) if pairs else math.nan
