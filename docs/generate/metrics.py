"""The page that lists every registered metric, made of the registry and of the docstrings.

python docs/generate/metrics.py      # writes docs/metrics.md
"""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from pathlib import Path

from xaibench.metrics import METRICS

PAGE = Path(__file__).parents[1] / "metrics.md"

#: What a metric of each kind is called with, and what the page says of the kind.
KINDS = {
    "ground-truth": ("(maps, masks)", "Against a ground truth"),
    "map": ("(maps)", "Of the map alone"),
    "model": ("(model, images, maps, targets)", "Asking the model"),
    "explainer": ("(explainer, model, images, targets)", "Asking the explainer"),
}

#: What went wrong elsewhere, and the test (of tests/metrics) that keeps it from happening here.
CASES = [
    (
        "Quantus",
        "writes `nan` into a bool array: an empty mask is a pointing-game hit",
        "test_quantus_empty_mask_is_not_a_hit",
    ),
    (
        "Quantus",
        "any of the tied maxima may hit: a constant map always does",
        "test_quantus_constant_map_does_not_always_hit",
    ),
    ("Quantus", "ROAD averages over the first batch only", "test_quantus_road_of_the_first_batch_is_not_that_of_all"),
    (
        "Quantus",
        "scales by the largest value of the batch: a score depends on the neighbours",
        "test_quantus_neighbours_do_not_change_a_score",
    ),
    (
        "Quantus",
        "mass accuracy of signed maps leaves [0, 1]",
        "test_quantus_mass_of_signed_maps_leaves_its_range_and_ours_does_not",
    ),
    (
        "Quantus",
        "adds 1e-9 to the mass of a map, so that its scale counts",
        "test_quantus_epsilon_does_not_lower_the_mass_of_small_maps",
    ),
    ("Quantus", "adds 1e-7 to every value: a zero map is perfectly dense", "test_quantus_zero_map_has_no_score"),
    (
        "Quantus",
        "adds 1e-7 to every value: small maps lose their sparseness",
        "test_quantus_epsilon_does_not_blur_small_maps",
    ),
    ("Quantus", "takes the logarithm of negative shares", "test_quantus_negative_values_do_not_break_the_entropy"),
    (
        "TorchRay",
        "asks for less than the tolerance: at 0 nothing hits",
        "test_torchray_tolerance_is_a_disc_and_counts_its_edge",
    ),
    (
        "xaibenchmark",
        "cuts IoU and precision at 0, recall at 0.5",
        "test_published_thresholds_are_the_defaults_and_one_may_be_given_to_all",
    ),
    (
        "xaibenchmark",
        "a missing annotation is a zero mask, which scores 0",
        "test_published_empty_mask_is_no_score_of_zero",
    ),
    ("Saliency-Bench", "misprints the denominator of F1", "test_published_misprint_of_f1_is_not_followed"),
    (
        "Saliency-Bench",
        "prints one formula for comprehensiveness and sufficiency",
        "test_saliency_bench_prints_one_formula_for_both_and_they_differ",
    ),
    ("ERASER", "averages over five shares and divides by six", "test_eraser_divides_five_shares_by_six_and_we_by_five"),
    (
        "XAI-TRIS code",
        "divides the EMD by sqrt(2HW) instead of the largest distance",
        "test_emd_perf_divides_by_the_diameter",
    ),
    (
        "XAI-TRIS code",
        "leaves zero maps out, so that methods are scored on different samples",
        "test_released_scoring_drops_zero_maps_and_ours_keeps_them_as_nan",
    ),
    (
        "XAI-TRIS code",
        "ranks tied pixels as a sort leaves them",
        "test_released_topk_precision_sees_where_ties_are_and_ours_does_not",
    ),
    ("Captum", "sensitivity of a zero map is divided by one", "test_captum_zero_map_has_no_sensitivity"),
    ("Captum", "draws noise by the place in the batch", "test_captum_draws_by_the_place_in_the_batch_and_we_do_not"),
    ("Captum", "infidelity expands the square, which cancels", "test_captum_expansion_cancels_and_ours_does_not"),
    (
        "pytorch-grad-cam",
        "drop in confidence is neither scaled nor relative",
        "test_grad_cam_drop_is_neither_scaled_nor_relative_and_ours_is",
    ),
    (
        "pytorch-grad-cam",
        "ROAD removes tied pixels together, however many",
        "test_grad_cam_removes_tied_pixels_together_and_we_do_not",
    ),
    ("torch-cam", "counts or divides a drop from nothing", "test_torch_cam_drop_of_a_negative_output_is_undefined"),
    (
        "torchmetrics",
        "takes metrics of equal first batches for one, and goes on with one of them",
        "test_torchmetrics_does_not_take_equal_first_batches_for_equal_metrics",
    ),
]

HEAD = """# Metrics

    scores = xb.iou(maps, masks, threshold=0.5, reduction="none")         # [N], nan where undefined
    score = xb.deletion(model, images, maps, targets)                     # the mean over the defined ones
    score, curves = xb.deletion(model, images, maps, targets, return_curves=True)

Maps are `[N, H, W]` (or `[H, W]`, a batch of one), numpy or torch; the scores are of the same kind. A sample is scored
by itself: neither its neighbours nor the size of the batch change it. Nothing hides an absolute value, a scaling, a
threshold or a resize; where a metric takes the magnitude of a map or norms it, this page says so. Undefined is `nan`,
in its row; `xb.metrics.undefined_reasons(maps, masks, name)` says why. What is no map at all (`nan` in it, a shape that
does not fit) is an error.

{table}

Aliases: {aliases}. A metric of your own is given by `"package.module:name"` wherever a name is.

For training loops there is a class for each in `xaibench.metrics.torchmetrics`
(`pip install "xaibench[torchmetrics]"`); by name, each takes what it asks for:

    from torchmetrics import MetricCollection
    from xaibench.metrics.torchmetrics import Deletion, IoU, Sparseness

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
    scores.compute()

How fast they are is in [metrics-speed.md](metrics-speed.md).

## Do metrics agree?

    matrix = xb.metrics.agreement({{
        "iou": xb.iou(maps, masks, threshold=0.5, reduction="none"),
        "hit": xb.hit(maps, masks, reduction="none"),
        "insertion": xb.insertion(model, images, maps, targets, reduction="none"),
        "deletion": xb.deletion(model, images, maps, targets, reduction="none"),
    }})
    matrix.coefficients.loc["iou", "deletion"]      # also matrix.n and matrix.kind
    xb.report.agreement_figure(matrix).savefig("agreement.svg")

Spearman's rank correlation over the samples that both metrics score, the point-biserial one where a metric is a hit or
a miss (Zhang et al. 2023, Table 4). Metrics whose lower values are better are turned first, so that a positive number
always means that both prefer the same maps. Curves of several explainers become one figure with
`xb.report.curve_figure({{"Saliency": curves, ...}}, ylabel="probability")`.
"""

TAIL = """
## What went wrong elsewhere

Each is a test, so that it does not happen here.

| where | what | test |
|---|---|---|
{cases}

This page is made by `python docs/generate/metrics.py`.
"""


def plain(text: str) -> str:
    """Sphinx roles and literals of a docstring as Markdown, on one line."""
    text = re.sub(r":(?:func|mod|class|meth):`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    return " ".join(text.replace("``", "`").split())


def section(doc: str, name: str) -> str:
    """What stands below ``name:`` in a docstring."""
    found = re.search(rf"^{name}:\n((?: +.*\n|\n)*)", doc + "\n", re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def undefined(doc: str) -> str:
    """When the score is ``nan``, as the docstring says it."""
    returns = plain(section(doc, "Returns"))
    found = re.search(r"(with `\w+`, )?`nan` ((?:for|where) [^.]*)", returns)
    return f"{found[1] or ''}{found[2]}" if found else ""


def interval(low: float, high: float) -> str:
    return f"[{low:g}, " + ("∞)" if math.isinf(high) else f"{high:g}]")


def table() -> str:
    rows = ["| name | kind | range | better | undefined | source |", "|---|---|---|---|---|---|"]
    for name in METRICS:
        metric = METRICS.resolve(name)
        info, better = metric.info, "higher" if metric.info.higher_is_better else "lower"
        cells = [
            f"[`{name}`](#{name})",
            info.kind,
            interval(*info.range),
            better,
            undefined(inspect.getdoc(metric) or ""),
        ]
        rows.append("| " + " | ".join([*cells, info.citation]).replace("|s|", "\\|s\\|") + " |")
    return "\n".join(rows)


def entry(name: str) -> str:
    """One metric: what it is, its equation, the paragraphs below it, and its parameters."""
    metric = METRICS.resolve(name)
    doc = inspect.getdoc(metric) or ""
    summary, _, body = doc.partition("\n\n")
    body = body.partition("\nArgs:")[0]
    parts = [f"### {name}\n", plain(summary)]
    for block in re.split(r"\n\n(?=\S)", body):
        if block.startswith(".. math::"):
            first, _, rest = block.removeprefix(".. math::").partition("\n\n")
            parts.append(f"\n```math\n{textwrap.dedent(first).strip()}\n```")
            block = rest
        if block.strip():
            bullets = re.split(r"\n(?=- )", block.strip())
            parts.append("\n" + "\n".join(plain(bullet) for bullet in bullets))
    own = [p for p in inspect.signature(metric).parameters.values() if p.kind is p.KEYWORD_ONLY]
    parts.append("\nParameters: " + ", ".join(f"`{p.name}={p.default!r}`" for p in own) + ".")
    return "\n".join(parts)


def page() -> str:
    aliases = ", ".join(f"`{alias}` for `{METRICS.canonical(alias)}`" for alias in METRICS._aliases)
    text = [HEAD.format(table=table(), aliases=aliases)]
    for kind, (call, title) in KINDS.items():
        names = [name for name in METRICS if METRICS.resolve(name).info.kind == kind]
        text.append(f"\n## {title}: `{call}`\n\n" + "\n\n".join(entry(name) for name in names) + "\n")
    cases = "\n".join(f"| {where} | {what} | `{test}` |" for where, what, test in CASES)
    return "".join(text) + TAIL.format(cases=cases)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
