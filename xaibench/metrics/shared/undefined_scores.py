"""Reasons why a score is NaN, or is the chance level instead."""

NOT_FINITE = "map is not finite"
EMPTY_MASK = "mask is empty"
FULL_MASK = "mask covers the whole image"
ZERO_MAP = "map is all zero"
CONSTANT_MAP = "map is constant"
NOTHING_ABOVE = "no pixel above the threshold"
PERFECT_CHANCE = "noise is perfect already"

#: Reasons caused by the map. A benchmark scores such a map as chance where it knows the chance level.
REASONS_OF_MAP = (ZERO_MAP, CONSTANT_MAP, NOTHING_ABOVE)
