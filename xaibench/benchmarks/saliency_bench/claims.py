"""Statements of the Saliency-Bench paper (Zhang et al. 2023, arXiv 2310.08537): section 6.2 and its supplement.

They are about the eight explainers of that paper, on annotated data sets of photographs and scans. Statements about the
appearance of maps are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from xaibench.benchmarks.claims import (
    Cell,
    Cells,
    CorrelationStatement,
    Floats,
    PaperClaims,
    Statement,
    below,
)

CAMS = ("cam", "gradcam", "gradcam++")
EIGHT = (*CAMS, "integrated_gradients", "guided_backprop", "saliency", "input_x_gradient", "rise")


def _applies(cell: Cell) -> bool:
    """Return whether a cell is of a data set without variants, as all annotated data sets are."""
    return cell[1] == "-"


def _paper_methods(cells: Cells) -> Iterator[dict[str, Floats]]:
    """Yield the paper's explainers in each cell."""
    for _, methods in cells.of_methods():
        yield {name: mean for name, mean in methods.items() if name in EIGHT}


def _below_rise(cells: Cells) -> Iterator[Floats]:
    for methods in _paper_methods(cells):
        if "rise" in methods:
            yield from (below(mean, methods["rise"]) for name, mean in methods.items() if name != "rise")


def _cams_above(cells: Cells) -> Iterator[Floats]:
    for methods in _paper_methods(cells):
        cams = [methods[name] for name in CAMS if name in methods]
        yield from (below(mean, cam) for cam in cams for name, mean in methods.items() if name not in CAMS)


def _recall_above_precision(cells: Cells) -> Iterator[Floats]:
    precision = cells.others.get("precision", {})
    for cell, methods in cells.of_methods():
        if cell in precision:
            both = [name for name in (*CAMS, "rise") if name in methods and name in precision[cell]]
            yield from (methods[name] - precision[cell][name] for name in both)


_PAPER = "Zhang et al. 2023"
STATEMENTS = (
    Statement(
        "RISE outperforms the seven other explainers, in most of the data sets",
        f"{_PAPER}, section 6.2",
        "share of set, network and explainer below RISE",
        0.5,
        True,
        _below_rise,
        ("iou", "precision", "recall"),
    ),
    Statement(
        "By insertion and deletion RISE is consistently the best",
        f"{_PAPER}, section 6.2",
        "share of set, network and explainer below RISE; consistently = over 0.9",
        0.9,
        True,
        _below_rise,
        ("insertion", "deletion"),
        tried=(0.8, 0.95),
    ),
    Statement(
        "In the pointing game CAM, Grad-CAM and Grad-CAM++ are better than the rest",
        f"{_PAPER}, section 6.2",
        "share of set, network and pair of a CAM and another explainer that the CAM leads",
        0.5,
        True,
        _cams_above,
        ("hit",),
    ),
    Statement(
        "CAMs and RISE have a low precision and a high recall",
        f"{_PAPER}, supplement",
        "mean recall less mean precision, over sets, networks and these four",
        0.0,
        True,
        _recall_above_precision,
        ("recall",),
        "pet",
    ),
)

_INSERTION_DELETION = ("insertion", "deletion")
_TABLE_4 = f"{_PAPER}, Table 4"
CORRELATIONS = (
    *(
        CorrelationStatement(
            "Explanations that are good by insertion are bad by deletion",
            _TABLE_4,
            _INSERTION_DELETION,
            name,
            0.0,
            False,
        )
        for name in ("gradcam", "integrated_gradients")
    ),
    CorrelationStatement(
        "Insertion and deletion are not strongly opposed",
        _TABLE_4,
        _INSERTION_DELETION,
        "rise",
        -0.3,
        True,
        (-0.5, -0.1),
    ),
    *(
        CorrelationStatement(
            "Deletion and the pointing game are strongly opposed",
            _TABLE_4,
            ("deletion", "hit"),
            name,
            -0.5,
            False,
            (-0.7, -0.3),
        )
        for name in ("gradcam", "integrated_gradients", "rise")
    ),
    *(
        CorrelationStatement("The pointing game and IoU agree", _TABLE_4, ("hit", "iou"), name, 0.0, True)
        for name in ("gradcam", "rise")
    ),
)

CLAIMS = PaperClaims(_applies, STATEMENTS, correlations=CORRELATIONS)
