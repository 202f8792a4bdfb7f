"""Reasons why a score is NaN."""

NOT_FINITE = "map is not finite"
EMPTY_MASK = "mask is empty"
FULL_MASK = "mask covers the whole image"
ZERO_MAP = "map is all zero"
CONSTANT_MAP = "map is constant"
NOTHING_ABOVE = "no pixel above the threshold"
PERFECT_CHANCE = "noise is perfect already"
