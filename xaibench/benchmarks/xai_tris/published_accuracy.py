"""Signal-to-noise ratios and test accuracies in the XAI-TRIS paper.

Clark, Wilming and Haufe (2023), arXiv 2306.12816, Table 1 (64×64) and Table 3 (8×8). Some ratios differ in the released
configuration; the tables are used.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

CITATION = (
    "B. Clark, R. Wilming, S. Haufe: XAI-TRIS: Non-linear image benchmarks for evaluating false positive post-hoc "
    "attribution of feature importance. arXiv:2306.12816 (2023); Machine Learning (2024)."
)


with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    #: ``(scenario, background, size)`` to the signal-to-noise ratio ``"alpha"`` in [0, 1] and the mean test accuracy of
    #: each model in percent. The paper has no IMAGENET sets at 8×8.
    PAPER: Mapping[tuple[str, str, int], Mapping[str, float]] = {
        (row["scenario"], row["background"], int(row["size"])): {
            name: float(row[name]) for name in ("alpha", "llr", "mlp", "cnn") if row[name]
        }
        for row in csv.DictReader(_file)
    }


def paper_alpha(scenario: str, background: str, size: int) -> float | None:
    """Return the published signal-to-noise ratio alpha of a data set (Tables 1 and 3).

    Args:
        scenario: ``"lin"``, ``"mult"``, ``"rigid"`` or ``"xor"``.
        background: ``"white"``, ``"corr"`` or ``"imagenet"``.
        size: Height and width of the images in pixels, 8 or 64.

    Returns:
        The ratio in [0, 1]; None if the paper does not have this data set.

    Example:
        >>> paper_alpha("lin", "corr", 8), paper_alpha("lin", "imagenet", 8)
        (0.0125, None)
    """
    return PAPER.get((scenario, background, size), {}).get("alpha")


def paper_accuracy(scenario: str, background: str, size: int, model: str) -> float | None:
    """Return the published mean test accuracy of a network on a data set (Tables 1 and 3).

    Args:
        scenario: As for :func:`paper_alpha`.
        background: As for :func:`paper_alpha`.
        size: As for :func:`paper_alpha`.
        model: ``"llr"``, ``"mlp"`` or ``"cnn"``.

    Returns:
        The accuracy in percent; None if the paper does not report one.

    Example:
        >>> paper_accuracy("rigid", "corr", 8, "cnn"), paper_accuracy("rigid", "corr", 8, "llr")
        (88.8, None)
    """
    return PAPER.get((scenario, background, size), {}).get(model)
