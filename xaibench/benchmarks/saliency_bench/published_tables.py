"""The published tables of Saliency-Bench.

Zhang et al. (2023), XAI Benchmark for Visual Explanation, arXiv 2310.08537: Table 2 (scores of ResNet-18), Table 3
(scores of eight explainers on five data sets), Table 4 (correlation between metrics). The numbers are as printed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

#: The network of the paper's tables.
NETWORK = "resnet18"
#: The paper's data sets. Object-1 is bird, horse, sheep of PASCAL VOC; Object-2 aeroplane, car, bus.
SETS = {"gender": "Gender", "scene": "Scene", "pet": "Cat and Dog", "object1": "Object-1", "object2": "Object-2"}
#: Alternative names in a run, without case and punctuation.
_OTHER_NAMES = {"catdog": "pet", "catsdogs": "pet", "catanddog": "pet", "oxfordpet": "pet", "oxfordiiitpet": "pet"}
_OTHER_NAMES |= {f"{source}object{i}": f"object{i}" for source in ("pascal", "voc") for i in (1, 2)}

#: Table 2, in percent. The paper does not state over what precision, recall and F1 are averaged.
TABLE_2: Mapping[str, Mapping[str, float]] = {
    key: dict(zip(("mean", "precision", "recall", "f1"), scores, strict=True))
    for key, scores in {
        "gender": (74.20, 74.16, 74.13, 74.15),
        "scene": (94.40, 94.41, 94.38, 94.39),
        "pet": (98.14, 98.17, 98.14, 98.13),
        "object1": (87.12, 87.15, 87.12, 87.13),
        "object2": (77.12, 81.71, 77.12, 78.47),
    }.items()
}

TABLE_3_METRICS = ("iou", "precision", "recall", "hit", "insertion", "deletion")
with Path(__file__).with_name("table_3.csv").open(encoding="utf-8", newline="") as _file:
    #: Table 3: ``{(set, explainer): {metric: score}}``.
    TABLE_3: Mapping[tuple[str, str], Mapping[str, float]] = {
        (row["set"], row["explainer"]): {metric: float(row[metric]) for metric in TABLE_3_METRICS}
        for row in csv.DictReader(_file)
    }

#: Table 4: ``{(metric, metric): {explainer: coefficient}}``, with lower-is-better metrics negated.
TABLE_4: Mapping[tuple[str, str], Mapping[str, float]] = {
    pair: dict(zip(("gradcam", "integrated_gradients", "rise"), values, strict=True))
    for pair, values in {
        ("insertion", "deletion"): (-0.5, -0.3, 0.1),
        ("insertion", "hit"): (0.6, 0.1, 0.3),
        ("insertion", "iou"): (0.7, 0.3, 0.3),
        ("deletion", "hit"): (-0.9, -0.6, -0.9),
        ("deletion", "iou"): (-0.8, -0.2, -0.6),
        ("hit", "iou"): (0.9, -0.1, 0.7),
    }.items()
}


def published_set(name: str) -> str | None:
    """Return the key of the paper's data set with this name, or None.

    Example:
        >>> [published_set(name) for name in ("pet", "pascal-object-1", "published:scene", "lidc")]
        ['pet', 'object1', 'scene', None]
    """
    plain = re.sub(r"[^a-z0-9]", "", re.split(r"[:/]", name.lower())[-1])
    key = _OTHER_NAMES.get(plain, plain)
    return key if key in SETS else None
