"""Write docs/truths.md: tables from the registries, and an example with the scores of one map by four kinds of truth.

python docs/generate/truths.py      # a minute; also writes docs/images/truths-*.png
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

from certified import PROBE

import xaibench as xb
from xaibench.benchmarks import blind
from xaibench.benchmarks.certified.functions import FUNCTIONS
from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS
from xaibench.data import DATASETS
from xaibench.explainers import EXPLAINERS
from xaibench.explainers import build as build_explainer
from xaibench.metrics import METRICS
from xaibench.models import build, fit
from xaibench.report.figures.samples import color_tile

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "truths.md"
#: Color of texts in the two themes of the site, and of outlines.
INK, MARK = {"light": "#333333", "dark": "#d5d7e0"}, "#009e55"

#: Methods of several families, and controls.
METHODS = (
    "integrated_gradients",
    "shapley_sampling",
    "lrp_epsilon",
    "gradcam",
    "rise",
    "input",
    "uniform",
    "center_prior",
)
SHOWN = "integrated_gradients"
SAMPLES = 100
#: Number of pixels that are removed in the picture.
OUT = 8


class Probe(NamedTuple):
    """A CNN that was trained on LIN-WHITE and reads the left half, and images that it classifies correctly."""

    model: nn.Module
    train: Tensor
    images: Tensor
    masks: Tensor
    seen: Tensor
    shapes: Tensor
    targets: Tensor


def probe() -> Probe:
    data = xb.load("xai-tris/lin-white-8x8", seed=0, n_samples=4000)
    left = torch.zeros(8, 8, dtype=torch.bool)
    left[:, :4] = True  # the T lies there, the L does not
    model = blind(build("cnn", (1, 8, 8), 2, seed=0), left)
    fit(model, data.train, data.val, **PROBE)
    images, masks, targets = data.test[:]
    with torch.inference_mode():
        right = (model(images).argmax(1) == targets).nonzero().flatten()[:SAMPLES]
    images, masks, targets = images[right], masks[right], targets[right]
    # A person would mark the shape in this image; the ground truth of the data has both shapes.
    shapes = masks & torch.where((targets == 0)[:, None, None], left, ~left)
    return Probe(model, data.train.images, images, masks, left.expand_as(masks), shapes, targets)


def maps_of(name: str, of: Probe) -> Tensor:
    part = build_explainer(name)
    fitted = part.fit(of.model, [of.train]) if hasattr(part, "fit") else part
    output = None if getattr(part, "explains_only", False) else "logit"
    return xb.explain(fitted, of.model, of.images, of.targets, device="cpu", output=output)


def four(maps: Tensor, of: Probe) -> tuple[float, float, float, float]:
    """Return a score per kind, in the order of :data:`TRUTHS`."""
    return (
        xb.emd_perf(maps, of.masks),
        xb.mass_outside(maps, of.seen),
        xb.mass_accuracy(maps, of.shapes),
        xb.comprehensiveness(of.model, of.images, maps, of.targets),
    )


def kinds() -> str:
    """Return the table of the questions and limits of each kind."""
    rows = [f"| *{kind}* | {w.question} | {w.source} | {w.low} | {w.silent} |" for kind, w in TRUTHS.items()]
    head = "| truth | question | source of the answer | a low score means | not answered |\n"
    return head + "|---|---|---|---|---|\n" + "\n".join(rows)


def belonging() -> str:
    """Return the data sets and metrics of each kind."""
    named = [*DATASETS, *(f"certified:{function}" for function in FUNCTIONS)]
    sets = {name: DATASETS.resolve(name).info.truth for name in named}
    metrics = {name: METRICS.resolve(name).info.own_truth for name in METRICS}
    links = {name: f"[`{name}`](metrics/{name}.md)" for name in metrics}
    free = ", ".join(link for name, link in links.items() if metrics[name] is None)
    rows = ["| truth | data sets | metrics |", "|---|---|---|"]
    for kind in TRUTHS:
        mine = _families(name for name, truth in sets.items() if truth == kind)
        own = ", ".join(link for name, link in links.items() if metrics[name] == kind)
        rows.append(
            f"| *{kind}* | {mine or 'any'} | {own}{', ' * bool(own and mine)}{'metrics with masks' * bool(mine)} |"
        )
    none = ", ".join(link for name, link in links.items() if metrics[name] == NO_TRUTH)
    return (
        "\n".join(rows)
        + f"\n\nMetrics with masks: {free}. Without a kind of truth, because they describe the map alone: {none}."
    )


def _families(names: Iterable[str]) -> str:
    """Return the names, with one entry per family of names such as ``xai-tris/...``."""
    found: dict[str, int] = {}
    for name in names:
        start = next((name.partition(sign)[0] + sign for sign in "/:" if sign in name), "")
        found[f"{start}..." if start else name] = found.get(f"{start}..." if start else name, 0) + 1
    return ", ".join(f"`{name}`" + (f" ({count} sets)" if count > 1 else "") for name, count in found.items())


def made_of() -> str:
    """Return the parts of the example with their revisions; a test compares them with the current ones."""
    parts = [f"{name} {EXPLAINERS.resolve(name).info.revision}" for name in METHODS]
    metrics = ("emd_perf", "mass_outside", "mass_accuracy", "comprehensiveness")
    return ", ".join([*parts, *(f"{name} {METRICS.resolve(name).info.revision}" for name in metrics)])


def measured(of: Probe) -> str:
    """Return the table of the example."""
    head = (
        "| | *data*: EMD performance ↑ | *use*: mass outside ↓ | *human*: mass on the shape ↑ "
        "| *intervention*: comprehensiveness ↑ |\n"
    )
    rows = []
    for name in METHODS:
        label = EXPLAINERS.resolve(name).info.label
        label = f"*{label}* (control)" if EXPLAINERS.resolve(name).info.control else label
        rows.append(f"| {label} | " + " | ".join(f"{score:.2f}" for score in four(maps_of(name, of), of)) + " |")
    return f"<!-- made of: {made_of()} -->\n\n{head}|---|--:|--:|--:|--:|\n" + "\n".join(rows)


def clearest(of: Probe) -> int:
    """Return the index of the image with the clearest L."""
    brightness = of.images[:, 0]
    inside = (brightness * of.shapes).sum((1, 2)) / of.shapes.sum((1, 2))
    outside = (brightness * ~of.shapes).sum((1, 2)) / (~of.shapes).sum((1, 2))
    clear = (inside - outside) / brightness.std((1, 2))
    return int(clear.masked_fill(of.targets != 1, -1.0).argmax())


def picture(of: Probe, theme: str) -> Figure:
    """Draw an image with an L, its map, and what each kind of truth compares the map with."""
    at = clearest(of)
    one = Probe(of.model, of.train, *(part[at : at + 1] for part in of[2:]))
    maps = maps_of(SHOWN, one)
    data, leak, human, _ = four(maps, one)
    top = torch.zeros(64, dtype=torch.bool)
    top[maps.flatten().argsort(descending=True)[:OUT]] = True
    gone = one.images.masked_fill(top.view(1, 1, 8, 8), 0.0)
    with torch.inference_mode():
        before, after = (float(of.model(image).softmax(1)[0, one.targets[0]]) for image in (one.images, gone))
    image, values = color_tile(one.images[0, 0].numpy(), "image"), _signed(maps[0].numpy())
    changed = color_tile(gone[0, 0].numpy(), "image")
    panels = [
        ("The image: an L", image, None, f"the network says L: {before:.2f}"),
        ("The map", values, None, "red: for the L; blue: against"),
        ("data: where T and L lie", values, one.masks[0], f"EMD performance {data:.2f}"),
        ("use: what the network reads", values, one.seen[0], f"mass outside {leak:.2f}, which is perfect"),
        ("human: the L that is there", values, one.shapes[0], f"{human:.2f} of the map on it"),
        (
            f"intervention: {OUT} pixels taken out",
            changed,
            top.view(8, 8),
            f"L: {before:.2f} before, {after:.2f} after",
        ),
    ]
    figure = Figure(figsize=(4.4, 7.0))
    FigureCanvasAgg(figure)
    for axes, (title, tile, marked, below) in zip(figure.subplots(3, 2).flat, panels, strict=True):
        axes.imshow(tile, extent=(0, 8, 8, 0), interpolation="none")
        if marked is not None:
            _outline(axes, marked.numpy())
        axes.set_title(title, fontsize=9, color=INK[theme], pad=4)
        axes.set_xlabel(below, fontsize=9, color=INK[theme], labelpad=4)
        axes.set(xticks=[], yticks=[], xlim=(-0.1, 8.1), ylim=(8.1, -0.1))
        axes.spines[:].set_visible(False)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.97, bottom=0.035, hspace=0.22, wspace=0.06)
    return figure


def _signed(values: np.ndarray) -> np.ndarray:
    """Return a map as colors: red = positive, blue = negative, white = zero."""
    colored: np.ndarray = colormaps["RdBu_r"](0.5 + 0.5 * values / np.abs(values).max())
    return colored


def _outline(axes: Axes, marked: np.ndarray) -> None:
    """Draw a line around the marked pixels."""
    framed = np.pad(marked, 1)
    for y, x in zip(*np.nonzero(framed), strict=True):
        for dy, dx in ((0, -1), (0, 1), (-1, 0), (1, 0)):
            if not framed[y + dy, x + dx]:
                line = ([x - 1, x], [y - 1 + (dy > 0)] * 2) if dy else ([x - 1 + (dx > 0)] * 2, [y - 1, y])
                axes.plot(*line, color=MARK, linewidth=2.0, solid_capstyle="round", clip_on=False)


def with_tables(text: str) -> str:
    """Replace the tables of the page that derive from the registered parts."""
    return _with_block(_with_block(text, "kinds", kinds()), "belonging", belonging())


def _with_block(text: str, title: str, block: str) -> str:
    before, start, rest = text.partition(f"<!-- {title} -->\n")
    return f"{before}{start}\n{block}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    found = probe()
    text = with_tables(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(_with_block(text, "example", measured(found)), encoding="utf-8")
    for theme in INK:
        picture(found, theme).savefig(DOCS / "images" / f"truths-{theme}.png", dpi=170, transparent=True)


END = "<!-- until here -->\n"

if __name__ == "__main__":
    main()
