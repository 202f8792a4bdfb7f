"""Statements of the Saliency-Bench paper (Zhang et al. 2023, arXiv 2310.08537): section 6.2 and its supplement.

They are about the eight explainers of that paper, on annotated data sets of photographs and scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from xaibench.report.claims.claim import Cells, Claim, Statement, below, relative_range
from xaibench.report.claims.xai_tris_statements import SCENARIOS
from xaibench.report.numbers.inference import Floats, Matrices
from xaibench.report.numbers.ranks_and_agreement import coefficient
from xaibench.report.read.results import RunResults

CAMS = ("cam", "gradcam", "gradcam++")
EIGHT = (*CAMS, "integrated_gradients", "guided_backprop", "saliency", "input_x_gradient", "rise")
#: Largest number of resamples of correlations, which cost more than those of means.
_RESAMPLES = 500


def _paper_methods(cells: Cells) -> Iterator[dict[str, Floats]]:
    """Yield the paper's explainers in each cell of data sets other than XAI-TRIS."""
    for cell, methods in cells.of_methods():
        if cell[0] not in SCENARIOS:
            yield {name: mean for name, mean in methods.items() if name in EIGHT}


def _below_rise(cells: Cells) -> Iterator[Floats]:
    for methods in _paper_methods(cells):
        if "rise" in methods:
            yield from (below(mean, methods["rise"]) for name, mean in methods.items() if name != "rise")


def _cams_above(cells: Cells) -> Iterator[Floats]:
    for methods in _paper_methods(cells):
        cams = [methods[name] for name in CAMS if name in methods]
        yield from (below(mean, cam) for cam in cams for name, mean in methods.items() if name not in CAMS)


def _cams_alike(cells: Cells) -> Iterator[Floats]:
    for methods in _paper_methods(cells):
        cams = [methods[name] for name in CAMS if name in methods]
        if 1 < len(cams) < len(methods):
            yield relative_range(cams, list(methods.values()))


def _recall_above_precision(cells: Cells) -> Iterator[Floats]:
    precision = cells.others.get("precision", {})
    for cell, methods in cells.of_methods():
        if cell[0] not in SCENARIOS and cell in precision:
            both = [name for name in (*CAMS, "rise") if name in methods and name in precision[cell]]
            yield from (methods[name] - precision[cell][name] for name in both)


_PAPER = "Zhang et al. 2023"
STATEMENTS = (
    Statement(
        "RISE outperforms the seven other explainers",
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
        "CAM, Grad-CAM and Grad-CAM++ are alike",
        f"{_PAPER}, supplement",
        "range of the means of the three, as a share of that of the eight",
        0.5,
        False,
        _cams_alike,
        ("iou", "precision", "recall", "hit", "insertion", "deletion"),
    ),
    Statement(
        "CAMs and RISE have a low precision and a high recall",
        f"{_PAPER}, supplement",
        "mean recall less mean precision, over sets, networks and these four",
        0.0,
        True,
        _recall_above_precision,
        ("recall",),
    ),
)

#: Statement, metrics (oriented so that higher is better), explainer, bound, whether the statement holds above it.
_CORRELATIONS = (
    *(
        ("Explanations that are good by insertion are bad by deletion", ("insertion", "deletion"), name, 0.0, False)
        for name in ("gradcam", "integrated_gradients")
    ),
    ("Of RISE, insertion and deletion are not strongly opposed", ("insertion", "deletion"), "rise", -0.3, True),
    *(
        ("Deletion and the pointing game are strongly opposed", ("deletion", "hit"), name, -0.5, False)
        for name in ("gradcam", "integrated_gradients", "rise")
    ),
    *(("The pointing game and IoU agree", ("hit", "iou"), name, 0.0, True) for name in ("gradcam", "rise")),
)


def correlations(run: RunResults, matrices: Sequence[Matrices], resamples: int, seed: int) -> list[Claim]:
    """Test the paper's statements on pairs of metrics by the mean correlation over the samples of each cell.

    Args:
        run: The run.
        matrices: The scores of its cells.
        resamples: Number of resamples of the groups of samples, at most 500.
        seed: Seed of the resamples.

    Returns:
        A claim per statement whose metrics and explainer the run has.
    """
    annotated = [cell for cell in matrices if cell.cell[0] not in SCENARIOS]
    up = {name: part.higher_is_better for name, part in run.metrics.items()}
    found = []
    for statement, pair, name, bound, above in _CORRELATIONS:
        mine = [c for c in annotated if set(pair) <= set(c.metrics) and name in c.methods]
        values = [_resample_correlation(cell, pair, name, up, min(resamples, _RESAMPLES), seed) for cell in mine]
        values = [each for each in values if np.isfinite(each).all()]
        if values:
            mean = np.mean(values, axis=0)
            low, high = np.quantile(mean[1:], [0.025, 0.975])
            labels = " and ".join(run.metrics[metric].label for metric in pair)
            quantity = f"correlation of {labels} over the samples, of {run.explainers[name].label}; mean over the cells"
            found.append(
                Claim(
                    f"{statement} ({run.explainers[name].label})",
                    f"{_PAPER}, Table 4",
                    pair[0],
                    quantity,
                    len(values),
                    float(mean[0]),
                    float(low),
                    float(high),
                    bound,
                    above,
                )
            )
    return found


def _resample_correlation(
    cell: Matrices, pair: tuple[str, str], method: str, up: dict[str, bool], resamples: int, seed: int
) -> Floats:
    """Return ``[1 + R]``, the correlation in the cell and in resamples of its groups; NaN if undefined."""
    columns = [
        (1.0 if up[name] else -1.0) * cell.values[:, cell.metrics.index(name), cell.methods.index(method)]
        for name in pair
    ]
    known = ~np.isnan(columns).any(axis=0)
    x, y = (column[known] for column in columns)
    groups = np.unique(cell.groups[known], return_inverse=True)[1]
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1]) if len(groups) else []
    rng = np.random.default_rng(seed)
    drawn = [np.arange(len(x))]
    for _ in range(resamples if members else 0):
        drawn.append(np.concatenate([members[each] for each in rng.integers(0, len(members), len(members))]))
    biserial = "hit" in pair
    found = np.array([coefficient(x[each], y[each], biserial=biserial) for each in drawn])
    # A resample in which one metric is constant has no correlation.
    return np.where(np.isnan(found), found[0], found)
