"""What the trials of the metrics came to (``metric_verdicts.json``), so that a page can say which numbers to doubt.

The file is made by ``docs/generate/metric_trials.py`` from :func:`xaibench.meta_evaluate`, and says which revision of
each metric was tried.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")

#: What a metric may get wrong and pass.
DOUBT = 0.05

#: What was done to the maps or explainers, and of what the trials were, in words that end a sentence.
_DEGRADED = {
    "moved": "where values are moved off the ground truth",
    "noisy": "where noise is mixed in",
    "unmoved": "where a picture is mixed in that takes no notice of the network or the image",
}
_OF = {
    "data": "tetrominoes",
    "human": "outlines and boxes",
    "use": "networks of which it is certain what they use",
    "intervention": "networks of which it is known what each pixel is worth",
}


@dataclass(frozen=True)
class MetricVerdict:
    """How a metric did with one kind of truth.

    Attributes:
        verdict: ``"passes"``, ``"coarse"`` (it ties) or ``"fails"`` (it errs).
        right: Share of the draws that it ranked rightly, by what was done to the maps.
        wrong: Share in which it put a worse map before a better one, likewise; the rest are ties.
    """

    verdict: str
    right: Mapping[str, float]
    wrong: Mapping[str, float]

    def caution(self, truth: str) -> str:
        """What a reader of its scores must know; empty where it passes.

        Args:
            truth: The kind of truth that it was tried with.

        Example:
            >>> MetricVerdict("fails", {"noisy": 0.25}, {"noisy": 0.75}).caution("data")
            'On tetrominoes it put a worse map before a better one in 75 % of the draws where noise is mixed in.'
        """
        if self.verdict == "passes":
            return ""
        if self.verdict == "fails":
            shares, what = dict(self.wrong), "it put a worse map before a better one"
        else:
            shares = {way: 1 - right for way, right in self.right.items()}
            what = "it gave two maps of which one is worse the same score"
        found = [
            f"in {100 * share:.0f} % of the draws {_DEGRADED[way]}" for way, share in shares.items() if share > DOUBT
        ]
        return f"On {_OF[truth]} {what} {' and '.join(found)}."


@functools.cache
def known_verdicts() -> Mapping[str, Mapping[str, MetricVerdict]]:
    """Name of a metric to kind of truth to how it did; without any for a metric that describes the map alone."""
    tried: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["metrics"]
    return {
        name: {truth: MetricVerdict(**verdict) for truth, verdict in one["truths"].items()}
        for name, one in tried.items()
    }
