"""Signal-to-noise ratios and test accuracies in the XAI-TRIS paper.

Clark, Wilming and Haufe (2023), arXiv 2306.12816, Table 1 (64×64) and Table 3 (8×8). Some ratios differ in the released
configuration; the tables are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CITATION = (
    "B. Clark, R. Wilming, S. Haufe: XAI-TRIS: Non-linear image benchmarks for evaluating false positive post-hoc "
    "attribution of feature importance. arXiv:2306.12816 (2023); Machine Learning (2024)."
)


@dataclass(frozen=True)
class PaperCell:
    """Published values for a scenario, background and size.

    Attributes:
        alpha: Signal-to-noise ratio in [0, 1].
        accuracy: Mean test accuracy of each model in percent.
    """

    alpha: float
    accuracy: Mapping[str, float]


def _cell(alpha: float, **accuracy: float) -> PaperCell:
    return PaperCell(alpha, MappingProxyType(accuracy))


#: ``(scenario, background, size)`` to published values. The paper has no IMAGENET sets at 8×8.
PAPER: Mapping[tuple[str, str, int], PaperCell] = MappingProxyType(
    {
        ("lin", "white", 64): _cell(0.03, llr=89.7, mlp=87.9, cnn=90.1),
        ("lin", "corr", 64): _cell(0.02, llr=100.0, mlp=100.0, cnn=99.9),
        ("lin", "imagenet", 64): _cell(0.1, llr=87.5, mlp=86.2, cnn=93.9),
        ("lin", "white", 8): _cell(0.18, llr=88.9, mlp=87.9, cnn=83.0),
        ("lin", "corr", 8): _cell(0.0125, llr=99.9, mlp=99.9, cnn=86.4),
        ("mult", "white", 64): _cell(0.64, mlp=85.8, cnn=100.0),
        ("mult", "corr", 64): _cell(0.04, mlp=89.2, cnn=98.5),
        ("mult", "imagenet", 64): _cell(0.3, mlp=91.2, cnn=91.3),
        ("mult", "white", 8): _cell(0.70, mlp=93.6, cnn=83.1),
        ("mult", "corr", 8): _cell(0.10, mlp=99.4, cnn=90.6),
        ("rigid", "white", 64): _cell(0.575, mlp=88.9, cnn=100.0),
        ("rigid", "corr", 64): _cell(0.375, mlp=99.5, cnn=100.0),
        ("rigid", "imagenet", 64): _cell(0.6, mlp=92.0, cnn=99.9),
        ("rigid", "white", 8): _cell(0.65, mlp=91.9, cnn=93.7),
        ("rigid", "corr", 8): _cell(0.20, mlp=99.9, cnn=88.8),
        ("xor", "white", 64): _cell(0.1, mlp=99.9, cnn=100.0),
        ("xor", "corr", 64): _cell(0.1, mlp=100.0, cnn=100.0),
        ("xor", "imagenet", 64): _cell(0.2, mlp=99.9, cnn=100.0),
        ("xor", "white", 8): _cell(0.35, mlp=99.5, cnn=95.2),
        ("xor", "corr", 8): _cell(0.15, mlp=100.0, cnn=99.5),
    }
)


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
    cell = PAPER.get((scenario, background, size))
    return None if cell is None else cell.alpha


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
    cell = PAPER.get((scenario, background, size))
    return None if cell is None else cell.accuracy.get(model)
