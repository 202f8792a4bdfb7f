"""Write the message, the table and the picture of the home page from a run of the suite xai-tris-8x8.

xaibench run xai-tris-8x8 && python docs/generate/start.py runs/xai-tris-8x8

writes the message and the table into docs/index.md, docs/images/start-{light,dark}.png, and the maps of the run, the
picture of the README, into docs/images/maps.png.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from xaibench.benchmarks.claims import EVERY_CELL, PaperClaims, Statement
from xaibench.report.claims import Claim, check_statements
from xaibench.report.figures.samples import color_tile, map_array, tile_kind
from xaibench.report.numbers.inference import cell_matrices, infer
from xaibench.report.numbers.leaderboards import boards, leaderboard, place_text
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, place, read_run

DOCS = Path(__file__).parents[1]
BEGIN, END = "<!-- begin of the {} -->", "<!-- end of the {} -->"
SKILLS = ("emd_skill", "precision_skill")
#: The picture: every scenario on correlated noise, the MLP; two columns, then these methods, controls last.
BACKGROUND, MODEL = "corr", "mlp"
METHODS = ("saliency", "shapley_sampling", "integrated_gradients", "pattern_attribution", "lime", "laplace", "uniform")
INK = {"light": "#333333", "dark": "#d5d7e0"}
#: The control of the message, and the metric by which it is compared.
FILTER, METRIC, RESAMPLES = "laplace", "emd_perf", 2000


def comparison(run: RunResults) -> Claim:
    """Return the share of explainers below the edge filter on correlated backgrounds, with its 95 % interval."""
    statement = Statement(
        bound=0.5, check="above", options={"better": [FILTER], "where": {"variant": BACKGROUND}}, metrics=(METRIC,)
    )
    paper = PaperClaims(applies=EVERY_CELL, statements=(statement,))
    (found,) = check_statements(run, list(cell_matrices(run)), paper, RESAMPLES, seed=0)
    return found


def message(run: RunResults) -> str:
    """Return the message of the home page in one sentence, and how its number is defined."""
    found, part = comparison(run), run.metrics[METRIC]
    low, high = (f"{100 * end:.0f}" for end in (found.low, found.high))
    methods = sum(not part.control for part in run.explainers.values())
    networks = run.scores[run.scores["variant"] == BACKGROUND].groupby(["subset", "model"], observed=True).ngroups
    return (
        f"**On images with correlated backgrounds, an edge filter that does not use the network scores higher than "
        f"{100 * found.value:.0f} % of the explanations.**\n\n"
        f"*{found.cells} comparisons of {methods} explainers with the Laplace filter, on {networks} combinations of "
        f"scenario and network with correlated background in `{run.suite}`, by {part.label}; "
        f"95 % interval: {low} to {high} %.*"
    )


def table(run: RunResults) -> str:
    """Return the leaderboard in Markdown, with the intervals of the means."""
    summary, pairs = infer(run, summarize(run))
    columns = boards(run, summary, pairs)["data"].columns((None, None, None))
    ends = pd.DataFrame({name: columns[name] for name in columns if name.startswith(("low:", "high:"))})
    ends.index = pd.Index(list(columns["explainer"]))
    board = leaderboard(run, summary, pairs=pairs)
    # A control that is the answer by construction in some cells is ranked in the others.
    board = board[(board["cells"] == board["of"]) | board["control"].astype(bool)]
    cells = int(board["of"].iloc[0])
    labels = [run.metrics[metric].label for metric in SKILLS]
    lines = [
        f"| places | method | {' | '.join(labels)} | better than all controls, of {cells} cells |",
        "|--:|---|" + "--:|" * (len(labels) + 1),
    ]
    for row in board.to_dict("records"):
        label = run.explainers[row["explainer"]].label
        in_cells = f", {row['cells']} of {row['of']} cells" if row["cells"] < row["of"] else ""
        name = f"*{label}* (control{in_cells})" if row["control"] else label
        low, high = (
            {metric: ends.loc[row["explainer"], f"{end}:{metric}"] for metric in SKILLS} for end in ("low", "high")
        )
        means = [f"{row[f'mean:{metric}']:.3f} ({low[metric]:.2f} to {high[metric]:.2f})" for metric in SKILLS]
        beaten = "" if row["control"] else " · ".join(str(row[f"beats:{metric}"]) for metric in SKILLS)
        lines.append("| " + " | ".join((place_text(row["place"], row["last_place"]), name, *means, beaten)) + " |")
    return "\n".join([*lines, "", run.answers_text])


def made_of(suite: str) -> str:
    """Return the parts of the table with their revisions; a test compares them with the current ones."""
    from xaibench.runner import load_suite
    from xaibench.runner.parts import find_part

    loaded, _ = load_suite(suite)
    shown = [part for part in loaded.metrics if part.name in SKILLS]
    ranked = [part for part in loaded.explainers if not find_part("explainer", part.use).is_reference]
    parts = [f"{part.name} {find_part('explainer', part.use).revision}" for part in ranked]
    parts += [f"{part.name} {find_part('metric', part.use).revision}" for part in shown]
    sets = dict.fromkeys(name for cell in loaded.cells for name in cell.datasets)
    return ", ".join([*parts, *(f"{name} {find_part('dataset', name).revision}" for name in sets)])


def description(run: RunResults) -> str:
    """Return a sentence with date, version, commit and machine of the run."""
    known = run.environment
    when = datetime.fromisoformat(known["finished"]).strftime("%d %B %Y").lstrip("0")
    commit = f" at commit {known['commit'][:10]}" if known.get("commit") else ""
    where = f"{known['machine']['processor']}, {known['workers']} process{'es' if known['workers'] > 1 else ''}"
    return f"Run on {when} with xaibench {known['xaibench']}{commit} ({where})."


def picture(run: RunResults, theme: str) -> Figure:
    """Draw one test sample per scenario, its ground truth and maps, on a transparent background."""
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


def with_block(page: str, name: str, content: str) -> str:
    """Return the page with new content between the markers of a block."""
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}"


def main(folder: Path) -> None:
    run = read_run(folder)
    file = DOCS / "index.md"
    page = with_block(file.read_text(encoding="utf-8"), "message", message(run))
    content = f"<!-- made of: {made_of(run.suite)} -->\n\n{table(run)}\n\n{description(run)}"
    file.write_text(with_block(page, "table", content), encoding="utf-8")
    for theme in INK:
        picture(run, theme).savefig(DOCS / "images" / f"start-{theme}.png", dpi=150, transparent=True)
    maps = Image.open(folder / "figures" / "maps-example.png").convert("RGB")
    few = maps.quantize(255, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)  # half of the size
    few.save(DOCS / "images" / "maps.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
