"""Maps that were scored as chance, and undefined scores, counted per method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from xaibench.core.messages import listed
from xaibench.core.types import SCORED_AS_CHANCE

_MAP = ["dataset", "model", "data_seed", "seed", "sample"]


#: Largest number of methods that a sentence names, those with the largest shares.
_MAX_NAMES = 3


@dataclass(frozen=True)
class UnscoredMaps:
    """Numbers of maps that a method's scores treat as chance, and of undefined scores, over the samples that count.

    Attributes:
        as_chance: Maps that at least one metric scored as chance, because they are constant or no pixel is above the
            threshold of the metric.
        maps: All maps.
        undefined: Undefined scores, which enter no mean.
        scores: All scores.
    """

    as_chance: int
    maps: int
    undefined: int
    scores: int


def count_unscored(scores: pd.DataFrame) -> dict[str, UnscoredMaps]:
    """Count maps that were scored as chance, and undefined scores.

    Args:
        scores: Rows as in ``scores.parquet``. Only samples that count (``correct``) are counted.

    Returns:
        By method, in the order of the rows; methods without any are left out.
    """
    scores = scores[scores["correct"]]
    chance = is_scored_as_chance(scores["reason"]) & scores["value"].notna()
    found = {}
    for name in dict.fromkeys(scores["explainer"][chance | scores["value"].isna()]):
        own = scores["explainer"] == name
        rows = scores.loc[own, _MAP]
        as_chance, maps = len(rows[chance[own]].drop_duplicates()), len(rows.drop_duplicates())
        found[str(name)] = UnscoredMaps(as_chance, maps, int(scores["value"][own].isna().sum()), int(own.sum()))
    return found


def is_scored_as_chance(reasons: pd.Series) -> pd.Series:
    """Return for which scores the reason is that the map was scored as chance."""
    # Few reasons are distinct, so that text is compared once per reason.
    known = [reason for reason in reasons.unique() if str(reason).endswith(SCORED_AS_CHANCE)]
    return reasons.isin(known)


def unscored_notes(counts: Mapping[str, UnscoredMaps], labels: Mapping[str, str]) -> list[str]:
    """Return a sentence about maps that were scored as chance, and one about undefined scores, if there are any.

    Args:
        counts: From :func:`count_unscored`.
        labels: Display name of each method of the run.
    """
    chance = {name: (one.as_chance, one.maps) for name, one in counts.items() if one.as_chance}
    undefined = {name: (one.undefined, one.scores) for name, one in counts.items() if one.undefined}
    starts = (
        "Maps scored as chance, because they are constant or no pixel is above the threshold",
        "Undefined scores, which enter no mean",
    )
    return [
        f"{start}: {_counts_in_words(part, labels)}."
        for start, part in zip(starts, (chance, undefined), strict=True)
        if part
    ]


def _counts_in_words(counts: Mapping[str, tuple[int, int]], labels: Mapping[str, str]) -> str:
    if len(counts) == len(labels) > 1 and len(set(counts.values())) == 1:
        part, whole = next(iter(counts.values()))
        return f"{part:,} of {whole:,} of every method"
    known = sorted((name for name in labels if name in counts), key=lambda name: -counts[name][0] / counts[name][1])
    named = [f"{labels[name]} {counts[name][0]:,} of {counts[name][1]:,}" for name in known[:_MAX_NAMES]]
    if len(known) <= _MAX_NAMES:
        return listed(named)
    part, whole = counts[known[_MAX_NAMES]]
    return f"{', '.join(named)} and at most {part / whole:.0%} of {len(known) - _MAX_NAMES} others".replace("%", " %")
