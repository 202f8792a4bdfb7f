"""Write docs/whitening.md: whether explanations improve if images are whitened before training.

xaibench run whitening && python docs/generate/whitening.py runs/whitening
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from findings import WIDE
from papers import table
from scipy.stats import t as student

from xaibench.benchmarks.facets import facet_label, variant_order
from xaibench.report.read.results import RunResults, read_run

PAGE = Path(__file__).parents[1] / "whitening.md"
METRIC = "emd_skill"
PLAIN = "corr"
#: Test accuracy in percent from which a network has learned its task.
LEARNED = 80

HEAD = """# Whitening before training

See whether explanations improve if pixels are decorrelated before a network is trained. Correlated backgrounds produce
suppressor variables; Clark et al. ask whether whitening removes them (*The effect of whitening on explanation
performance*, arXiv 2602.09278).

    xaibench run whitening

`xb.load("whitened:sphering:NAME")` whitens any data set of small images; `xb.data.whiten(data, kind)` one that you
have. The five whitenings are defined in `xaibench/data/whitening.py`.

**What was run.** The CORR sets of LIN, MULT and XOR at 8×8 pixels, {sets} data sets each, with one perceptron per data
set and whitening; images are divided by their largest absolute value. Masks are those of the original images, as in
the paper: a whitened pixel is a mixture of pixels, so a map of the whitened image cannot always agree with them.

## EMD skill

Mean over the three scenarios without whitening, and the change by each whitening (0 = chance, 1 = the ground truth
itself). **Bold**: the 95 % interval of the change over the {sets} data sets excludes 0.
"""

ACCURACY = """
## Test accuracy

In percent, mean over data sets. A network that has not learned the task (below 80 %) shows little about explanations.
"""

UNLEARNED = """
Nothing is learned after {unlearned}: on these smooth backgrounds, the other pixels determine each pixel up to the
rounding of float32, its share of the pattern included, so the residual is without the class. In the paper's
two-dimensional example, only one of both pixels has a share.
"""

AFTER = """
Of the {methods} methods, the number that a whitening improves (and worsens), by these intervals: {counts}.

The paper reports that sphering, symmetric orthogonalization and optimal signal preservation improve explanations, to a
degree that depends on method and network, and prints figures without numbers. {said}
"""


def changes(run: RunResults) -> tuple[pd.Series, dict[str, pd.DataFrame]]:
    """Return the mean skill of each explainer without whitening, and the changes per data set by each whitening."""
    scored = run.scores[run.scores["correct"] & (run.scores["metric"] == METRIC)]
    keys = ["variant", "explainer", "data_seed", "subset"]
    means = scored.groupby(keys, observed=True)["value"].mean().unstack("subset")
    over = means.mean(axis=1, skipna=False).unstack("data_seed")
    plain = over.loc[PLAIN]
    return plain.mean(axis=1), {kind: over.loc[kind] - plain for kind in variant_order() if kind.startswith("corr-")}


def page(run: RunResults) -> str:
    """Return the page."""
    plain, found = changes(run)
    rows, better, worse = [], dict.fromkeys(found, 0), dict.fromkeys(found, 0)
    for name in plain.sort_values(ascending=False).index:
        part = run.explainers[name]
        row = [part.label + (" (control)" if part.control else ""), f"{plain[name]:.2f}".replace("-", "−")]
        for kind, each in found.items():
            values = each.loc[name].dropna()
            if len(values) < 2:
                row.append("–")
                continue
            half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
            sure = abs(values.mean()) > half
            if sure and not part.control:
                (better if values.mean() > 0 else worse)[kind] += 1
            text = f"{values.mean():+.2f}".replace("-", "−")
            row.append(f"**{text}**" if sure else text)
        rows.append(row)
    methods = sum(not part.control for part in run.explainers.values())
    labels = {kind: facet_label(kind).removeprefix("CORR, ") for kind in found}
    counts = ", ".join(f"{labels[kind]} {better[kind]} ({worse[kind]})" for kind in found)
    good = [labels[kind] for kind in found if better[kind] > methods / 2 and not worse[kind]]
    some = [labels[kind] for kind in found if better[kind] and labels[kind] not in good]
    said = f"More than half of the methods are improved, and none worsened, by: {', '.join(good) or 'no whitening'}. "
    said += f"Some are improved by: {', '.join(some) or 'no other'}."
    unlearned = [labels[kind] for kind in found if run.accuracy.query("variant == @kind")["mean"].max() < LEARNED]
    parts = [HEAD.format(sets=run.trainings["data_seed"].nunique())]
    parts.append("\n" + WIDE.format(table(["method", "none", *labels.values()], rows)) + "\n")
    parts.append(AFTER.format(methods=methods, counts=counts, said=said))
    parts.append(ACCURACY + "\n" + WIDE.format(accuracies(run, labels)) + "\n")
    if unlearned:
        parts.append(UNLEARNED.format(unlearned=" and ".join(unlearned)))
    return "".join(parts)


def accuracies(run: RunResults, labels: dict[str, str]) -> str:
    """Return the table of test accuracies."""
    mean = run.accuracy.set_index(["subset", "variant"])["mean"]
    rows = [
        [facet_label(subset), *(f"{mean[subset, kind]:.1f}" for kind in (PLAIN, *labels))]
        for subset in ("lin", "mult", "xor")
    ]
    return table(["scenario", "none", *labels.values()], rows)


if __name__ == "__main__":
    PAGE.write_text(page(read_run(sys.argv[1])), encoding="utf-8")
