"""Statements of the XAI-TRIS paper (Clark, Wilming, Haufe 2024): sections 4 and 5, captions of Figures 7, 8, 13 to 15.

Each is tested by the metric and on the image size for which the paper makes it: section 4 and Figure 7 are about EMD at
64×64, Figure 8 about precision at 64×64, Figures 13 and 14 about EMD and Figure 15 about precision at 8×8. Statements
about the appearance of maps are left out. In a cell, the subset is the paper's scenario and the variant its background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

import numpy as np

from xaibench.benchmarks.claims import Cell, Cells, Floats, PaperClaims, Statement, below, relative_range
from xaibench.benchmarks.xai_tris.size_claims import SIZE_STATEMENTS

SCENARIOS = ("lin", "mult", "rigid", "xor")
BACKGROUNDS = ("white", "corr", "imagenet")
#: The paper's networks.
NETWORKS = ("llr", "mlp", "cnn")
#: Test accuracy in percent from which a network counts as having learned the task (section 3).
LEAST_ACCURACY = 80.0
#: The paper's sixteen methods and four controls.
EXPLAINERS = frozenset(
    {
        *("pfi", "integrated_gradients", "saliency", "guided_backprop", "guided_gradcam", "deconvolution", "deeplift"),
        *("shapley_sampling", "gradient_shap", "kernel_shap", "deep_shap", "lime", "lrp", "deep_taylor"),
        *("pattern_net", "pattern_attribution"),
        *("sobel", "laplace", "uniform", "input"),
    }
)
SHAP = ("shapley_sampling", "gradient_shap", "deep_shap")
PATTERNS = ("pattern_net", "pattern_attribution")
_Compare = Callable[[Cells], Iterator[Floats]]


def _applies(cell: Cell) -> bool:
    """Return whether a cell is one of the paper's: its statements are not tested on other networks."""
    scenario, background, model = cell
    return scenario in SCENARIOS and background in BACKGROUNDS and model in NETWORKS


def _leave_out(cell: Cell, accuracy: float, note: str) -> str:
    """Return why a cell supports no statement, or an empty string.

    The note of an IMAGENET set says that its photographs are repeated; the paper has one for each sample.
    """
    if cell[1] == "imagenet" and note:
        return "photographs are repeated as backgrounds, each one for several samples"
    if accuracy < LEAST_ACCURACY:
        return f"its networks reach less than the {LEAST_ACCURACY:g} % test accuracy that the paper asks for"
    return ""


def _corr_below_white(cells: Cells) -> Iterator[Floats]:
    for (scenario, background, model), white in cells.of_methods():
        corr = cells.means.get((scenario, "corr", model), {})
        if background == "white":
            yield from (below(corr[name], white[name]) for name in white if name in corr)


def _laplace_above(scenario: str, *models: str) -> _Compare:
    def compare(cells: Cells) -> Iterator[Floats]:
        for (place, background, model), methods in cells.of_methods():
            laplace = cells.means[place, background, model].get("laplace")
            if (place, background) == (scenario, "corr") and (not models or model in models) and laplace is not None:
                yield from (below(mean, laplace) for mean in methods.values())

    return compare


def _shap_alike(cells: Cells) -> Iterator[Floats]:
    for _, methods in cells.of_methods():
        shap = [methods[name] for name in SHAP if name in methods]
        if 1 < len(shap) < len(methods):
            yield relative_range(shap, list(methods.values()))


def _simpler_above(cells: Cells) -> Iterator[Floats]:
    """Compare each network with the next more complex one, except on RIGID."""
    for first, second in (("llr", "mlp"), ("mlp", "cnn")):
        yield from _first_above_second(first, second, _ALL - {"rigid"})(cells)


def _first_above_second(first: str, second: str, scenarios: Set[str], backgrounds: Set[str] = frozenset()) -> _Compare:
    def compare(cells: Cells) -> Iterator[Floats]:
        for (scenario, background, model), methods in cells.of_methods():
            other = cells.means.get((scenario, background, second), {})
            if model == first and scenario in scenarios and (not backgrounds or background in backgrounds):
                yield from (below(other[name], methods[name]) for name in methods if name in other)

    return compare


def _middle_half(cells: Cells) -> Iterator[Floats]:
    for _, methods in cells.of_methods():
        if len(methods) > 3:
            low, high = np.quantile(list(methods.values()), [0.25, 0.75], axis=0)
            yield high - low


def _controls_alike(cells: Cells) -> Iterator[Floats]:
    for cell, methods in cells.of_methods():
        controls = cells.of_controls(cell)
        if len(controls) > 1 and methods:
            yield relative_range(controls, [*controls, *methods.values()])


def _above_controls(*models: str) -> _Compare:
    def compare(cells: Cells) -> Iterator[Floats]:
        for cell, methods in cells.of_methods():
            controls = cells.of_controls(cell)
            if controls and (not models or cell[2] in models):
                yield from (below(np.max(controls, axis=0), mean) for mean in methods.values())

    return compare


def _most_below_a_control(cells: Cells) -> Iterator[Floats]:
    shares = []
    for cell, methods in cells.of_methods():
        controls = cells.of_controls(cell)
        if controls and methods:
            best = np.max(controls, axis=0)
            shares.append(np.mean([below(mean, best) for mean in methods.values()], axis=0))
    if shares:
        yield np.max(shares, axis=0)


def _best_most_often(cells: Cells) -> Iterator[Floats]:
    first: dict[str, Floats] = {}
    count = 0
    for _, methods in cells.of_methods():
        if len(methods) > 1:
            best = np.max(list(methods.values()), axis=0)
            count += 1
            for name, mean in methods.items():
                first[name] = first.get(name, 0.0) + (mean == best)
    if count > 1:
        yield np.max(list(first.values()), axis=0) / count


def _patterns(well: bool) -> _Compare:
    """Compare other methods with PatternNet and PatternAttribution.

    The cells are LIN and XOR with white noise if ``well``, otherwise the other non-linear problems. At 64×64 the paper
    has no results of both for the CNN on XOR.
    """

    def compare(cells: Cells) -> Iterator[Floats]:
        for (scenario, background, model), methods in cells.of_methods():
            here = scenario in ("lin", "xor") and background == "white"
            if (here if well else not here and scenario != "lin") and (scenario, model) != ("xor", "cnn"):
                rest = [mean for name, mean in methods.items() if name not in PATTERNS]
                yield from (below(mean, methods[name]) for name in PATTERNS if name in methods for mean in rest)

    return compare


def _patterns_first(cells: Cells) -> Iterator[Floats]:
    for _, methods in cells.of_methods():
        patterns = [methods[name] for name in PATTERNS if name in methods]
        rest = [mean for name, mean in methods.items() if name not in PATTERNS]
        if patterns and rest:
            yield below(np.max(rest, axis=0), np.max(patterns, axis=0))


def _lime_below(cells: Cells) -> Iterator[Floats]:
    for _, methods in cells.of_methods():
        if "lime" in methods:
            yield from (below(methods["lime"], mean) for name, mean in methods.items() if name != "lime")


def _input_gains(is_strong: Callable[[str, str], bool]) -> _Compare:
    """Compare the mean of the input over the scenarios and backgrounds with a strong signal with that of the others."""

    def compare(cells: Cells) -> Iterator[Floats]:
        strong: list[Floats] = []
        weak: list[Floats] = []
        for (scenario, background, _), means in cells.means.items():
            if "input" in means:
                (strong if is_strong(scenario, background) else weak).append(means["input"])
        if strong and weak:
            yield np.mean(strong, axis=0) - np.mean(weak, axis=0)

    return compare


_PAPER = "Clark, Wilming, Haufe 2024"
_TEXT = f"{_PAPER}, section 4"
_ALL = frozenset(SCENARIOS)
_EMD = ("emd_perf",)
_PRECISION = ("topk_precision",)
_SMALL = "-8x8"
_LARGE = "-64x64"
_GENERAL = (
    Statement(
        "Correlated backgrounds lead to worse explanations than white ones, in most cases",
        f"{_PAPER}, sections 4 and 5",
        "share of scenario, model and method with a lower mean on CORR than on WHITE",
        0.5,
        True,
        _corr_below_white,
        (*_EMD, *_PRECISION),
    ),
    Statement(
        "Most methods outperform the controls in most cells",
        f"{_PAPER}, Figures 8 and 15",
        "share of cell and method above the best control of the cell",
        0.5,
        True,
        _above_controls(),
        _PRECISION,
    ),
    Statement(
        "On RIGID the CNN is explained better than the MLP",
        f"{_TEXT}; Figures 13 and 14",
        "share of background and method with a higher mean for the CNN",
        0.5,
        True,
        _first_above_second("cnn", "mlp", {"rigid"}),
        _EMD,
    ),
)
_AT_64 = (
    *(
        Statement(
            f"On {scenario.upper()} with correlated backgrounds the Laplace filter outperforms nearly all methods",
            _TEXT,
            "share of model and method below the Laplace filter; nearly all = over 0.8",
            0.8,
            True,
            _laplace_above(scenario),
            _EMD,
            _LARGE,
            (0.7, 0.9),
        )
        for scenario in ("rigid", "xor")
    ),
    Statement(
        "On RIGID with correlated backgrounds the Laplace filter is the best of all for the MLP",
        f"{_PAPER}, Figure 7",
        "share of methods below the Laplace filter; best = over 0.95",
        0.95,
        True,
        _laplace_above("rigid", "mlp"),
        _EMD,
        _LARGE,
        (0.9, 0.99),
    ),
    Statement(
        "Deep SHAP, Gradient SHAP and Shapley value sampling score alike",
        f"{_PAPER}, Figure 7",
        "range of the means of the three, as a share of that of all methods; mean over the cells",
        0.5,
        False,
        _shap_alike,
        _EMD,
        _LARGE,
        (0.25, 0.75),
    ),
    Statement(
        "In most cells the methods are relatively homogeneous",
        _TEXT,
        "range of the middle half of the methods’ means, mean over the cells; homogeneous = less than 0.1",
        0.1,
        False,
        _middle_half,
        _EMD,
        _LARGE,
        (0.05, 0.15),
    ),
    Statement(
        "Controls are alike",
        _TEXT,
        "range of the means of the controls, as a share of that of all; mean over the cells",
        0.5,
        False,
        _controls_alike,
        _EMD,
        _LARGE,
        (0.25, 0.75),
    ),
    Statement(
        "In certain cells controls are on par with or superior to various methods",
        _TEXT,
        "the largest share, in a cell, of methods below its best control; various = over a quarter",
        0.25,
        True,
        _most_below_a_control,
        _EMD,
        _LARGE,
        (0.1, 0.5),
    ),
    Statement(
        "No method is the best everywhere",
        f"{_PAPER}, Figures 7 and 8",
        "share of the cells in which the method that is first most often is first",
        1.0,
        False,
        _best_most_often,
        (*_EMD, *_PRECISION),
        _LARGE,
    ),
    Statement(
        "In a few cases performance decreases as model complexity increases, except on RIGID",
        f"{_TEXT} and Figure 7",
        "share of scenario, background, method and pair of networks with a higher mean for the simpler network; a few "
        "= over a tenth",
        0.1,
        True,
        _simpler_above,
        _EMD,
        _LARGE,
        (0.05, 0.25),
    ),
    Statement(
        "On IMAGENET backgrounds the CNN is explained well",
        _TEXT,
        "share of scenario and method with a higher mean for the CNN than for the MLP; well = over half",
        0.5,
        True,
        _first_above_second("cnn", "mlp", _ALL, {"imagenet"}),
        _EMD,
        _LARGE,
        (0.4, 0.6),
    ),
    Statement(
        "PatternNet and PatternAttribution generally do well on LIN and XOR with white noise",
        f"{_PAPER}, Figure 8",
        "share of model and other method below them; well = over half",
        0.5,
        True,
        _patterns(well=True),
        _PRECISION,
        _LARGE,
        (0.4, 0.6),
    ),
    Statement(
        "PatternNet and PatternAttribution struggle in various other non-linear problems",
        f"{_PAPER}, Figure 8",
        "share of cell and other method below them, without LIN; struggle = less than half",
        0.5,
        False,
        _patterns(well=False),
        _PRECISION,
        _LARGE,
        (0.4, 0.6),
    ),
    Statement(
        "LIME struggles across all scenarios",
        f"{_PAPER}, Figure 8",
        "share of cell and other method above it; struggles = over three quarters",
        0.75,
        True,
        _lime_below,
        _PRECISION,
        _LARGE,
        (0.6, 0.9),
    ),
    Statement(
        "The input itself scores higher where the signal is stronger",
        f"{_PAPER}, Figure 8",
        "its mean on RIGID with white noise and on IMAGENET, whose signal is stronger, less that of the other cells",
        0.0,
        True,
        _input_gains(
            lambda scenario, background: background == "imagenet" or (scenario, background) == ("rigid", "white")
        ),
        _PRECISION,
        _LARGE,
    ),
)
_AT_8 = (
    Statement(
        "Explanation performance decreases as model complexity increases, except on RIGID",
        f"{_PAPER}, Figures 13 and 14",
        "share of scenario, background, method and pair of networks with a higher mean for the simpler network",
        0.5,
        True,
        _simpler_above,
        _EMD,
        _SMALL,
    ),
    Statement(
        "On RIGID the Laplace filter is the best of all for both networks",
        f"{_PAPER}, Figure 14",
        "share of model and method below the Laplace filter on correlated backgrounds; best = over 0.95",
        0.95,
        True,
        _laplace_above("rigid"),
        _EMD,
        _SMALL,
        (0.9, 0.99),
    ),
    Statement(
        "PatternNet and PatternAttribution do not outright outperform other methods in most cells",
        f"{_PAPER}, Figure 13",
        "share of the cells in which one of both is above all other methods",
        0.5,
        False,
        _patterns_first,
        _EMD,
        _SMALL,
    ),
    Statement(
        "Methods are comparable to controls for the CNN",
        f"{_PAPER}, Figure 15",
        "share of cell and method above the best control of the cell; comparable = no more than half",
        0.5,
        False,
        _above_controls("cnn"),
        _PRECISION,
        _SMALL,
        (0.4, 0.6),
    ),
    Statement(
        "The input itself scores higher where the signal is stronger",
        f"{_PAPER}, Figure 15",
        "its mean on RIGID and with white noise, whose signal is stronger, less that of the other cells",
        0.0,
        True,
        _input_gains(lambda scenario, background: scenario == "rigid" or background == "white"),
        _PRECISION,
        _SMALL,
    ),
)
STATEMENTS = (*_GENERAL, *_AT_64, *_AT_8)

CLAIMS = PaperClaims(_applies, STATEMENTS, size_statements=SIZE_STATEMENTS, explainers=EXPLAINERS, leave_out=_leave_out)
