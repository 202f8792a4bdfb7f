"""The table and the picture of the start page, from a run of the suite xai-tris-8x8.

xaibench run xai-tris-8x8 && python docs/generate/start.py runs/xai-tris-8x8

writes the table into docs/index.md, docs/images/start-{light,dark}.png, and the maps of the run, README's picture, into
docs/images/maps.png.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from xaibench.report.figures.samples import color_tile, map_array, tile_kind
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import leaderboard, place_text
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, place, read_run

DOCS = Path(__file__).parents[1]
BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"
METRICS = ("emd_perf", "topk_precision")
#: The picture: every scenario on correlated noise, the MLP; two columns, then these methods, controls last.
BACKGROUND, MODEL = "corr", "mlp"
METHODS = ("saliency", "shapley_sampling", "integrated_gradients", "pattern_attribution", "lime", "laplace", "uniform")
INK = {"light": "#333333", "dark": "#d5d7e0"}


def table(run: RunResults) -> str:
    """The leaderboard in Markdown, as the report page has it."""
    summary, pairs = infer(run, summarize(run))
    board = leaderboard(run, summary, pairs=pairs)
    # A control that is the answer by construction in some cells is ranked in the others.
    board = board[(board["cells"] == board["of"]) | board["control"].astype(bool)]
    cells = int(board["of"].iloc[0])
    lines = [
        f"| place | method | EMD performance | precision | better than all controls, of {cells} cells |",
        "|--:|---|--:|--:|--:|",
    ]
    for row in board.to_dict("records"):
        label = run.explainers[row["explainer"]].label
        in_cells = f", {row['cells']} of {row['of']} cells" if row["cells"] < row["of"] else ""
        name = f"*{label}* (control{in_cells})" if row["control"] else label
        means = [f"{row[f'mean:{metric}']:.3f}" for metric in METRICS]
        beaten = "" if row["control"] else " · ".join(str(row[f"beats:{metric}"]) for metric in METRICS)
        lines.append("| " + " | ".join((place_text(row["place"], row["last_place"]), name, *means, beaten)) + " |")
    return "\n".join([*lines, "", run.answers_text])


def made_of(suite: str) -> str:
    """The parts of the table with their revisions, for the test that says when it is of other ones."""
    from xaibench.runner import load_suite
    from xaibench.runner.parts import find_part

    loaded, _ = load_suite(suite)
    shown = [part for part in loaded.metrics if part.name in METRICS]
    ranked = [part for part in loaded.explainers if not find_part("explainer", part.use).is_reference]
    parts = [f"{part.name} {find_part('explainer', part.use).revision}" for part in ranked]
    parts += [f"{part.name} {find_part('metric', part.use).revision}" for part in shown]
    sets = dict.fromkeys(name for cell in loaded.cells for name in cell.datasets)
    return ", ".join([*parts, *(f"{name} {find_part('dataset', name).revision}" for name in sets)])


def named(run: RunResults) -> str:
    """Which run it was, in a sentence."""
    known = run.environment
    when = datetime.fromisoformat(known["finished"]).strftime("%d %B %Y").lstrip("0")
    commit = f" at commit {known['commit'][:10]}" if known.get("commit") else ""
    where = f"{known['machine']['processor']}, {known['workers']} process{'es' if known['workers'] > 1 else ''}"
    return f"Run on {when} with xaibench {known['xaibench']}{commit} ({where})."


def picture(run: RunResults, theme: str) -> Figure:
    """One test sample of each scenario, its ground truth, and maps of it, on a transparent ground."""
    columns = [("image", "Image"), ("mask", "Truth"), *((name, run.explainers[name].label) for name in METHODS)]
    shorter = {"Shapley Value Sampling": "Shapley", "Integrated Gradients": "Int. Gradients"}
    columns = [(name, shorter.get(label, label)) for name, label in columns]
    rows = [(scenario, BACKGROUND, MODEL) for scenario in run.subsets]
    side, left, top = 0.62, 0.62, 0.95
    width, height = left + side * len(columns) + 0.75, top + side * len(rows)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((left / width, 0, side * len(columns) / width, side * len(rows) / height))
    for y, row in enumerate(rows):
        for x, (name, _) in enumerate(columns):
            array = map_array(run.pictures[row], "example", name)
            if array is None:
                raise SystemExit(f"{run.path} has no {name} of {run.words_of(row)}: run the whole suite.")
            colors = color_tile(array, tile_kind(name))
            axes.imshow(colors, extent=(x + 0.04, x + 0.96, y + 0.96, y + 0.04), interpolation="none", aspect="auto")
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    style = {"rotation": 35, "ha": "left", "rotation_mode": "anchor"}
    axes.set_xticks(np.arange(len(columns)) + 0.4, [label for _, label in columns], **style)
    axes.set_yticks(np.arange(len(rows)) + 0.5, [place(scenario) for scenario, _, _ in rows])
    axes.tick_params(length=0, labeltop=True, labelbottom=False, labelcolor=INK[theme], labelsize=9, pad=3)
    axes.spines[:].set_visible(False)
    return figure


def main(folder: Path) -> None:
    run = read_run(folder)
    page = DOCS / "index.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    content = f"<!-- made of: {made_of(run.suite)} -->\n\n{table(run)}\n\n{named(run)}"
    page.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{after}", encoding="utf-8")
    for theme in INK:
        file = DOCS / "images" / f"start-{theme}.png"
        picture(run, theme).savefig(file, dpi=150, transparent=True)
    maps = Image.open(folder / "figures" / "maps-example.png").convert("RGB")
    few = maps.quantize(255, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)  # half of the size
    few.save(DOCS / "images" / "maps.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
