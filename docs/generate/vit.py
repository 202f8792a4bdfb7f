"""Write docs/vit.md: the small vision transformer on XAI-TRIS.

xaibench run xai-tris-8x8 --model vit && python docs/generate/vit.py runs/xai-tris-8x8

Takes any number of run folders, of both sizes. Each gives the section of its suite; sections of other suites are kept.
If a run has the other networks too, the table shows the best of them next to the transformer.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pandas as pd
from csv_tables import csv_link
from findings import BEGIN, CARDS, END, sections
from papers import table

from xaibench.report.numbers.score_summary import summarize
from xaibench.report.page.content import CLASSIFIERS, scored_rule
from xaibench.report.read.results import RunResults, place, read_run
from xaibench.runfolder.tables import KEYS, SCORES
from xaibench.runner.suites.schema import Explaining

PAGE = Path(__file__).parents[1] / "vit.md"
MODEL = "vit"
LEARNED = Explaining.min_accuracy
SUITES = ("xai-tris-8x8", "xai-tris-64x64")

HEAD = """# A transformer on XAI-TRIS

See how a small vision transformer ([`vit`](models.md)) and explainers made for transformers score on XAI-TRIS. The
paper explains a linear model, a perceptron and a convolutional network; the transformer (patches, a class token,
learned positions, two blocks of self-attention) is an optional model of the same suites, and no finding of the
paper is tested on it.
"""
#: What was tried on the cells of a suite that are not learned.
MULT_CORR = """MULT CORR is not learned: it stays at chance with 40 epochs in batches of 256 at a learning rate of
0.003, with 100 epochs at 0.002, in which the validation loss rises in the end, and with patches of 8×8 pixels and 10
epochs in batches of 128. The signal there is 4 % of a smooth background. The perceptron takes 40,000 samples and 500
epochs to learn it; these networks had half as many samples."""
XOR_CORR = """XOR CORR is learned in some trainings only: they leave chance abruptly, after some twenty epochs, or not
within forty. With batches of 128 at 0.002 it was at chance after 12 epochs."""
MULT_IMAGENET = """MULT IMAGENET is learned in part: the validation loss is lowest after four to six of 40 epochs, on
999 photographs, each of which is the background of 20 samples; the paper had 50,000."""
TRIED = {
    "xai-tris-64x64": {
        ("mult", "corr"): MULT_CORR,
        ("xor", "corr"): XOR_CORR,
        ("mult", "imagenet"): MULT_IMAGENET,
    }
}


def section(run: RunResults) -> str:
    """Return the section of a run: accuracies, and links to the mean scores."""
    run = learned_alone(run)
    seeds = run.trainings[run.trainings["model"] == MODEL].groupby(["subset", "variant"], observed=True)
    sets, drawn = seeds["data_seed"].nunique().max(), seeds["seed"].nunique().max()
    parts = [f"\n## {run.title}\n\n    xaibench run {run.suite} --model {','.join(run.models)}{_asked(run)}\n\n"]
    parts.append(
        f"Test accuracy in percent over {_count(sets, 'data set')} per cell and {_count(drawn, 'training')} on each. "
        f"Networks below {LEARNED:.0f} %, the limit of the paper, have not learned their task and are not scored.\n"
    )
    parts.append(f"\n{CARDS.format(accuracies(run))}\n")
    parts += [f"\n{note}\n" for note in not_learned(run)]
    if trained := unscored(run):
        parts.append(f"\nTrained but not scored: {trained}.\n")
    if "imagenet" in run.variants:
        parts.append("\nOn photographs only the precision was computed, because the exact EMD takes longest there.\n")
    parts.append(f"\nScored: {scored(run)} samples per data set that {CLASSIFIERS[scored_rule(run)]}.\n")
    links = [
        csv_link(f"vit-{run.suite}-{name}", f"mean {part.label} of each method in each cell", *means(run, name))
        for name, part in run.metrics.items()
        if not part.skill_of
    ]
    return "".join([*parts, f"\nDownload (CSV): {'; '.join(links)}.\n"])


def accuracies(run: RunResults) -> str:
    """Return a table of the accuracies per cell, with the best mean of the other networks of the run."""
    others = run.accuracy[run.accuracy["model"] != MODEL]
    rows = []
    for (scenario, background), group in _by_cell(run.trainings[run.trainings["model"] == MODEL]):
        reached = group["test_accuracy"]
        spread = f" ± {reached.std():.1f}" if len(reached) > 1 else ""
        beside = others[(others["subset"] == scenario) & (others["variant"] == background)]
        best = "–" if beside.empty else f"{beside['mean'].max():.1f}"
        learned = f"{int((reached >= LEARNED).sum())} of {len(reached)}"
        extent = f"{reached.min():.1f} to {reached.max():.1f}"
        rows.append([f"{place(scenario)} {place(background)}", f"{reached.mean():.1f}{spread}", extent, learned, best])
    heads = ["cell", "mean and spread", "lowest to highest", "learned", "best other network"]
    return table(heads, rows) if len(others) else table(heads[:-1], [row[:-1] for row in rows])


def learned_alone(run: RunResults) -> RunResults:
    """Return the run without the scores of networks that have not learned their task."""
    keys = ["subset", "variant", "model", "data_seed", "seed"]
    learned = run.trainings.loc[run.trainings["test_accuracy"] >= LEARNED, keys]
    return dataclasses.replace(
        run, scores=run.scores[pd.MultiIndex.from_frame(run.scores[keys]).isin(pd.MultiIndex.from_frame(learned))]
    )


def not_learned(run: RunResults) -> list[str]:
    """Return notes on the cells that the transformer has not learned."""
    reached = run.accuracy[run.accuracy["model"] == MODEL].set_index(["subset", "variant"])["mean"]
    return [note for cell, note in TRIED.get(run.suite, {}).items() if reached.get(cell, LEARNED) < LEARNED]


def unscored(run: RunResults) -> str:
    """Return the cells that were learned but have no scores."""
    learned = run.trainings[(run.trainings["model"] == MODEL) & (run.trainings["test_accuracy"] >= LEARNED)]
    there = set(run.scores[["subset", "variant"]].astype(str).itertuples(index=False, name=None))
    cells = [(scenario, background) for (scenario, background), _ in _by_cell(learned)]
    return ", ".join(f"{place(one)} {place(two)}" for one, two in cells if (one, two) not in there)


def joined(runs: list[RunResults]) -> dict[str, RunResults]:
    """Return one run per suite, with the scores and trainings of all its runs."""
    found: dict[str, RunResults] = {}
    for run in runs:
        first = found.setdefault(run.suite, run)
        if first is not run:
            both = {name: pd.concat([getattr(first, name), getattr(run, name)]) for name in ("trainings", "accuracy")}
            orders = {f"{key}s": list(dict.fromkeys(getattr(first, f"{key}s"))) for key in KEYS}
            for key in KEYS:
                orders[f"{key}s"] += [one for one in getattr(run, f"{key}s") if one not in orders[f"{key}s"]]
            places = {name: tuple(orders[name]) for name in ("subsets", "variants")}
            text = [name for name in SCORES.text if name not in KEYS]
            plain = [one.scores.astype(dict.fromkeys(text, object)) for one in (first, run)]
            for key in KEYS:
                for rows in plain:
                    rows[key] = rows[key].cat.set_categories(orders[f"{key}s"], ordered=True)
            scores = pd.concat(plain, ignore_index=True)
            found[run.suite] = dataclasses.replace(
                first, **both, **places, scores=scores.astype(dict.fromkeys(text, "category"))
            )
    return found


def scored(run: RunResults) -> str:
    """Return the smallest and largest number of scored samples per data set."""
    rows = run.scores[run.scores["correct"] & (run.scores["model"] == MODEL)]
    counts = rows.groupby(["subset", "variant", "data_seed", "seed"], observed=True)["sample"].nunique()
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def means(run: RunResults, metric: str) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the mean scores per cell; in parentheses the best of the other networks."""
    summary = summarize(run)
    mine = summary[(summary["metric"] == metric) & (summary["model"] == MODEL)]
    up = run.metrics[metric].higher_is_better
    others = summary[(summary["metric"] == metric) & (summary["model"] != MODEL)]
    cells = [cell for cell, _ in _by_cell(mine)]
    value = mine.set_index(["subset", "variant", "explainer"])["mean"].to_dict()
    groups = others.groupby(["subset", "variant", "explainer"], observed=True)["mean"]
    best = (groups.max() if up else groups.min()).to_dict()
    rows = []
    for name, part in run.explainers.items():
        found = [(value.get((*cell, name)), best.get((*cell, name))) for cell in cells]
        if any(own is not None for own, _ in found):
            rows.append([part.label + (" (control)" if part.control else ""), *(_beside(*pair) for pair in found)])
    return ["method", *(f"{place(scenario)} {place(background)}" for scenario, background in cells)], rows


def _by_cell(rows: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    return [(cell, group) for cell, group in rows.groupby(["subset", "variant"], observed=True, sort=False)]


def _beside(own: float | None, best: float | None) -> str:
    shown = "–" if own is None or pd.isna(own) else f"{own:.2f}"
    return shown if best is None or pd.isna(best) else f"{shown} ({best:.2f})"


def _asked(run: RunResults) -> str:
    """Return the options of the command that change the samples; the tables show networks and explainers."""
    choices = run.environment.get("choices", {})
    return f" --samples {choices['samples']}" if "samples" in choices else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def page(before: str, runs: list[RunResults]) -> str:
    """Return the page with the sections of these runs; sections of other suites are kept."""
    if strange := [run.suite for run in runs if run.suite not in SUITES or MODEL not in run.models]:
        raise SystemExit(
            f"No transformer in a run of {', '.join(strange)}; run {' or '.join(SUITES)} with --model vit."
        )
    found = sections(before) | {suite: section(run) for suite, run in joined(runs).items()}
    return "\n".join(
        [HEAD, *(f"{BEGIN.format(name)}{found[name]}{END.format(name)}\n" for name in SUITES if name in found)]
    )


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(before, [read_run(Path(run)) for run in sys.argv[1:]]), encoding="utf-8")
