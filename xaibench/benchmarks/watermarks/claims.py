"""Statements of Clark, Oliveira, Wilming, Haufe (2026, arXiv 2602.09238), from the abstract of the paper.

The bounds of R² are the paper's. Its models are not described in the abstract and not in the released code, so the R²
are those of one-way models here: of the presence of the watermark, in each regime; and of the regime (the watermark
tells the class, or is noise), over test images with the watermark. The paper explains the predicted class, a run the
class of the image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from xaibench.benchmarks.claims import Cell, Floats, Pairs, PairStatement, PaperClaims
from xaibench.benchmarks.watermarks.regimes import PLAIN, REGIMES, WATERMARKED
from xaibench.statistics import explained_variance, rank_share

#: The paper's five methods: ``lrp`` is Captum's, ``lrp_alpha_beta`` has alpha 2 and beta 1.
METHODS = ("integrated_gradients", "gradient_shap", "deconvolution", "lrp", "lrp_alpha_beta")
FILTERS = ("sobel", "laplace")
NETWORK = "small_cnn"


def _applies(cell: Cell) -> bool:
    """Return whether a cell is of the suite's network in one of the three regimes."""
    return cell[0] in REGIMES and cell[2] == NETWORK


def _scores(scores: Pairs, names: tuple[str, ...], form: str = "bright") -> Iterator[tuple[str, str, Floats]]:
    """Yield regime, method and scores ``[D, G, 2]``."""
    for (regime, variant, _), methods in scores.items():
        if variant == form:
            yield from ((regime, name, methods[name]) for name in names if name in methods)


def _least(values: list[float]) -> float:
    return min(values, default=math.nan)


def _least_presence(scores: Pairs) -> float:
    found = [explained_variance([pairs[..., 0], pairs[..., 1]]) for _, _, pairs in _scores(scores, METHODS)]
    return _least(found)


def _least_rank_share(scores: Pairs, *, names: tuple[str, ...]) -> float:
    return _least([rank_share(pairs[..., 0].ravel(), pairs[..., 1].ravel()) for _, _, pairs in _scores(scores, names)])


def _largest_of_class(scores: Pairs) -> float:
    by = {(regime, name): pairs[..., 0] for regime, name, pairs in _scores(scores, METHODS)}
    both = [name for name in METHODS if {("confounder", name), ("suppressor", name)} <= set(by)]
    found = [explained_variance([by["confounder", name], by["suppressor", name]]) for name in both]
    return max(found, default=math.nan)


def _dark_over_bright(scores: Pairs) -> float:
    dark = {(regime, name): pairs for regime, name, pairs in _scores(scores, METHODS, "inverted")}
    ratios = [
        np.nanmean(dark[regime, name][..., 0]) / np.nanmean(pairs[..., 0])
        for regime, name, pairs in _scores(scores, METHODS)
        if (regime, name) in dark
    ]
    return float(np.mean(ratios)) if ratios else math.nan


_ABSTRACT = "Clark et al. 2026, abstract"
_STATED = partial(PairStatement, source=_ABSTRACT, metric="relative_importance")
STATEMENTS = (
    _STATED(
        "Watermarks get more importance in every training setting",
        source="Clark et al. 2026, quantitative_hypotheses.ipynb (smallest there: 0.73, Deconvolution, suppressor)",
        quantity="smallest share of ranks with more importance in the image with the watermark than without it, over "
        "five methods and three regimes; 0.5 = no effect",
        bound=0.5,
        above=True,
        compute=partial(_least_rank_share, names=METHODS),
    ),
    _STATED(
        "Importance is substantially elevated in watermarked areas regardless of the training setting (R² ≥ .45)",
        quantity="smallest R² of the presence of the watermark, over five methods and three regimes",
        bound=0.45,
        above=True,
        compute=_least_presence,
    ),
    _STATED(
        "Whether the watermark is class-dependent has only a marginal effect (R² ≤ .03)",
        quantity="largest R² of the regime (tells the class, or is noise) over images with the watermark, over five "
        "methods",
        bound=0.03,
        above=False,
        compute=_largest_of_class,
    ),
    _STATED(
        "Edge detection filters show similar behavior",
        quantity="smallest share of ranks with more importance in the image with the watermark, of Sobel and Laplace",
        bound=0.9,
        above=True,
        compute=partial(_least_rank_share, names=FILTERS),
        tried=(0.8, 0.95),
    ),
    _STATED(
        "Watermarks get substantially less importance if bright intensities are encoded by small values",
        quantity="importance with inverted intensities divided by importance without, mean over five methods and three "
        "regimes",
        bound=0.8,
        above=False,
        compute=_dark_over_bright,
        tried=(0.7, 0.9),
    ),
)

CLAIMS = PaperClaims(_applies, (), pairs=STATEMENTS, forms=(WATERMARKED, PLAIN))
