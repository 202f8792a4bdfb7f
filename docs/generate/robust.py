"""Write docs/robust-rankings.md: how far rankings depend on the parameters of a metric.

python docs/generate/robust.py RUN [RUN ...]

RUN is a run folder with results of `benchmarks/robust_rankings.py`. Sections of other suites are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from page_sections import renewed
from papers import table

from xaibench.report.read.results import RunResults, read_run
from xaibench.runfolder.robust_rankings import AGREED, RobustRanking
from xaibench.runfolder.tables import CELL

PAGE = Path(__file__).parents[1] / "robust-rankings.md"
WIDE = '<div class="wide" markdown>\n\n{}\n\n</div>'

HEAD = """# Effect of metric parameters

See whether the ranking by a metric depends on the metric's own parameters: the value of a removed pixel, the number
of steps, single pixels or segments, most or least important first. If the order of the methods changes with them,
one rank by that metric describes the setting more than the methods.

    xaibench run xai-tris-8x8 --metrics deletion,road --out RUN
    python benchmarks/robust_rankings.py RUN deletion \\
        '{{"baseline": [0.0, 1.0], "segmentation": ["pixels", "grid"], "n_segments": [16]}}'

The maps of the run are scored again with every setting. With each setting, the methods are ranked by the mean over
the cells of their mean scores, without controls. Intervals account for the choice of data sets, trainings and
samples; all settings have the same resamples. If two settings agree with a tau below {agreed}, the page of the run
gives no place by that metric and says so. Kendall's tau is 0 for unrelated orders and −1 for opposite ones.

*Insertion* with the baseline of *deletion* is deletion with the least important pixels first. The photographs are
ten of [methods at equal cost](budget.md), with methods at 1,000 passes or at their fixed cost.
"""


def section(run: RunResults) -> str:
    """Return the section of one run."""
    some = next(iter(run.robustness.values()))
    counted = run.scores[run.scores["correct"]].drop_duplicates([*CELL, "data_seed", "sample"])
    cells = f"{some.cells} cell{'s' * (some.cells != 1)}, {len(counted)} images, {len(some.methods)} methods"
    parts = [f"\n## {run.title}\n\n{cells}.\n"]
    rows = [row for name, found in run.robustness.items() for row in rows_of(run.metrics[name].label, found)]
    heads = ["metric", "what differs", "the two settings that agree least", "tau", "95 % interval", "one order"]
    parts.append(f"\n{WIDE.format(table(heads, rows))}\n")
    for name, found in run.robustness.items():
        left = f" Not scored in every cell, and left out: {', '.join(found.left_out)}." if found.left_out else ""
        parts.append(f"\n### {run.metrics[name].label}: best methods\n\n{first(run, found)}{left}\n")
    return "".join(parts)


def rows_of(label: str, found: RobustRanking) -> list[list[str]]:
    """Return one row per parameter, and one for any two settings."""
    pairs = {**found.by_parameter, f"any of {len(found.settings)} settings": found.least_similar}
    return [
        [
            label,
            what,
            f"{found.describe_setting(j, i)} · {found.describe_setting(i, j)}",
            f"{found.tau[i, j]:.2f}" if found.agree((i, j)) else f"**{found.tau[i, j]:.2f}**",
            f"{found.low[i, j]:.2f} to {found.high[i, j]:.2f}",
            "yes" if found.agree((i, j)) else "no",
        ]
        for what, (i, j) in pairs.items()
    ]


def first(run: RunResults, found: RobustRanking) -> str:
    """Return a table of the first three methods of each setting, with their mean scores."""
    rows = []
    for number, (ranks, means) in enumerate(zip(found.ranks, found.means, strict=True)):
        best = ranks.argsort(kind="stable")[:3]
        named = ", ".join(f"{run.explainers[found.methods[m]].label} ({means[m]:.3f})" for m in best)
        rows.append([found.describe_setting(number), named])
    return table(["setting", "first three, mean score"], rows)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sections = [section(read_run(Path(folder))) for folder in sys.argv[1:]]
    PAGE.write_text(renewed(PAGE, HEAD.format(agreed=AGREED), sections), encoding="utf-8")
    print(f"wrote {PAGE}")
