"""The published tables of Saliency-Bench.

Zhang et al. (2023), XAI Benchmark for Visual Explanation, arXiv 2310.08537: Table 2 (scores of ResNet-18), Table 3
(scores of eight explainers on five data sets), Table 4 (correlation between metrics). The numbers are as printed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The network of the paper's tables.
NETWORK = "resnet18"
#: The paper's data sets. Object-1 is bird, horse, sheep of PASCAL VOC; Object-2 aeroplane, car, bus.
SETS = {"gender": "Gender", "scene": "Scene", "pet": "Cat and Dog", "object1": "Object-1", "object2": "Object-2"}
#: Alternative names in a run, without case and punctuation.
_OTHER_NAMES = {"catdog": "pet", "catsdogs": "pet", "catanddog": "pet", "oxfordpet": "pet", "oxfordiiitpet": "pet"}
_OTHER_NAMES |= {f"{source}object{i}": f"object{i}" for source in ("pascal", "voc") for i in (1, 2)}


def _read_table(number: int, *keys: str) -> dict[Any, dict[str, float]]:
    """Read a table: its numbers by the columns that are keys."""
    with Path(__file__).with_name(f"table_{number}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(tuple(row.pop(key) for key in keys), row) for row in csv.DictReader(file)]
    return {
        names if len(names) > 1 else names[0]: {name: float(cell) for name, cell in row.items()} for names, row in rows
    }


#: Table 2, in percent; ``mean`` is the accuracy. The paper does not state over what the others are averaged.
TABLE_2: Mapping[str, Mapping[str, float]] = _read_table(2, "set")
#: Table 3: ``{(set, explainer): {metric: score}}``.
TABLE_3: Mapping[tuple[str, str], Mapping[str, float]] = _read_table(3, "set", "explainer")
TABLE_3_METRICS = tuple(TABLE_3["pet", "rise"])
#: Table 4: ``{(metric, metric): {explainer: coefficient}}``, with lower-is-better metrics negated.
TABLE_4: Mapping[tuple[str, str], Mapping[str, float]] = _read_table(4, "metric", "other")


def published_set(name: str) -> str | None:
    """Return the key of the paper's data set with this name, or None.

    Example:
        >>> [published_set(name) for name in ("pet", "pascal-object-1", "published:scene", "lidc")]
        ['pet', 'object1', 'scene', None]
    """
    plain = re.sub(r"[^a-z0-9]", "", re.split(r"[:/]", name.lower())[-1])
    key = _OTHER_NAMES.get(plain, plain)
    return key if key in SETS else None
