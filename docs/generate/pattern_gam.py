"""Write docs/pattern-gam.md: the printed table of PatternGAM next to ours.

xaibench run pattern-gam && python docs/generate/pattern_gam.py runs/pattern-gam
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from findings import CARDS, WIDE, verdicts
from papers import table
from scipy.stats import t as student

from xaibench.benchmarks.facets import PATTERN_GAM_VARIANTS, facet_label
from xaibench.benchmarks.pattern_gam.published_table import METHODS, METRICS, TABLE
from xaibench.report.claims import claims
from xaibench.report.read.results import RunResults, read_run

PAGE = Path(__file__).parents[1] / "pattern-gam.md"
#: Data sets of the paper.
SETS = 5
SUBSETS = ("lin", "mult", "xor")
#: Means of magnitudes, and of signed maps.
KINDS = ("global", "signed")

HEAD = """# Global explanations and distractors

See how global explanations score on XAI-TRIS with and without distractors, next to the table that Clark et al. print in
*Correcting misinterpretations of additive models* (PatternGAM, NeurIPS 2025).

    xaibench run pattern-gam

## What is new in these data sets

`xb.load("pattern-gam/lin-dist-white")`: LIN, MULT and XOR of XAI-TRIS at 8×8 pixels, with other signal-to-noise
ratios. In the *DIST* sets, two columns of 6×2 pixels, which contain the positions of T and of L, are added or
subtracted with a random sign each. The signs do not depend on the class. The pixels beside the ground truth show
them, so a network can use these pixels to remove the disturbance (suppressor variables).

`xb.explain("global_mean", ...)`: the mean magnitude of the maps of 1,000 training images, one map for all images.
[`fni_emd`](metrics.md) scores mass anywhere on the ground truth as right; `mass_accuracy` is the paper's importance
mass accuracy (IMA).

## Scores

Mean ± standard deviation over {sets} data sets with one network each: a perceptron, test accuracy {least:.0f} to
{most:.0f} % per cell. The paper has {published} data sets and another perceptron (64–32–16–8–1). *Local*: the maps of
each test image. *Signed*: the mean of signed maps of the second class, which is how the published notebook reads;
noise cancels in it. Integrated Gradients and SHAP explain the margin of the two outputs there, because the paper's
network has one output; the pattern methods explain the logit.
**Bold**: the printed mean differs by more than chance allows (Welch's t-test, p < 0.05, {cells} comparisons per
column, not corrected).
"""

AGREE = """
Agreement with the printed means: {agree}. Mean absolute difference from them by mass accuracy:

{distances}

Integrated Gradients is close to the table if maps are averaged with their sign, as the notebook does for all methods;
its SHAP is close to our mean of magnitudes instead.
"""

AFTER = """
The paper's other twelve methods explain additive models and kernel machines, which are not networks; they are
not in this library.

## What the printed table shows, tested

A statement *holds* if its whole 95 % interval is on the stated side of the bound. The tests are on *signed* means.
"""


def scores(run: RunResults) -> pd.DataFrame:
    """Return the mean of each data set: a row per cell, explainer and metric, a column per seed."""
    scored = run.scores[run.scores["correct"]]
    keys = ["subset", "variant", "explainer", "metric"]
    means = scored.groupby([*keys, "data_seed"], observed=True)["value"].mean()
    return means.unstack("data_seed")


def differs(found: np.ndarray, printed: tuple[float, float]) -> bool:
    """Return whether the means of two samples differ by Welch's t-test at 5 %."""
    mean, deviation = printed
    # The published deviations divide by the number of data sets, not by one less.
    ours, theirs = found.var(ddof=1) / len(found), deviation**2 / (SETS - 1)
    if ours + theirs == 0:
        return bool(abs(found.mean() - mean) > 0.0005)
    freedom = (ours + theirs) ** 2 / (ours**2 / (len(found) - 1) + theirs**2 / (SETS - 1))
    return bool(abs(found.mean() - mean) > student.ppf(0.975, freedom) * np.sqrt(ours + theirs))


def cell_text(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"


def beside(run: RunResults, metric: str) -> tuple[str, Counter[tuple[str, str]]]:
    """Return the table of a metric, and in how many cells each method and kind of map agrees with the paper."""
    every, rows = scores(run), []
    agree = Counter[tuple[str, str]]()
    for subset in SUBSETS:
        for variant, label in PATTERN_GAM_VARIANTS.items():
            for method in METHODS:
                printed = TABLE[subset, variant, method][metric]
                row = [f"{facet_label(subset)} {label}", run.explainers[method].label]
                row.append(f"{printed[0]:.2f} ± {printed[1]:.2f}")
                for kind in KINDS:
                    found = every.loc[subset, variant, f"{method}-{kind}", metric].dropna().to_numpy()
                    apart = differs(found, printed)
                    agree[method, kind] += not apart
                    row.append(f"**{cell_text(found)}**" if apart else cell_text(found))
                row.append(cell_text(every.loc[subset, variant, method, metric].dropna().to_numpy()))
                rows.append(row)
    return table(["cell", "method", "paper", "global", "signed", "local"], rows), agree


def distances(run: RunResults, metric: str) -> str:
    """Return the table of mean absolute differences from the printed means."""
    every, rows = scores(run), []
    for method in METHODS:
        row = [run.explainers[method].label]
        for kind in KINDS:
            apart = [
                abs(every.loc[subset, variant, f"{method}-{kind}", metric].mean() - printed[metric][0])
                for (subset, variant, name), printed in TABLE.items()
                if name == method
            ]
            row.append(f"{np.mean(apart):.2f}")
        rows.append(row)
    return table(["method", *KINDS], rows)


def page(run: RunResults) -> str:
    """Return the page."""
    accuracy = run.accuracy["mean"]
    parts, said = [], []
    for metric in METRICS:
        label = run.metrics[metric].label
        shown, agree = beside(run, metric)
        parts.append(f"\n### {label}\n\n{WIDE.format(shown)}\n")
        counts = {kind: sum(agree[method, kind] for method in METHODS) for kind in KINDS}
        both = " and ".join(f"{count} {kind}" for kind, count in counts.items())
        said.append(f"{both} means of {len(TABLE)} by {label}")
    summary = AGREE.format(agree="; ".join(said), distances=distances(run, METRICS[0]))
    head = HEAD.format(
        sets=run.trainings["data_seed"].nunique(),
        least=accuracy.min(),
        most=accuracy.max(),
        published=SETS,
        cells=len(TABLE),
    )
    found = claims(run)
    tested = [
        f"\n### {run.metrics[name].label}: statements\n\n{CARDS.format(verdicts(found, name))}\n"
        for name in METRICS
        if any(claim.metric == name for claim in found)
    ]
    return "".join([head, summary, *parts, AFTER, *tested])


if __name__ == "__main__":
    PAGE.write_text(page(read_run(sys.argv[1])), encoding="utf-8")
