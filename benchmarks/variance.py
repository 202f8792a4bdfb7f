"""Components of the variance of a run's scores, and stability of the methods' order under retraining.

    python benchmarks/variance.py RUN [--metric emd_perf]

RUN is the folder of a run over several data sets with several trainings each, all of them explained, such as
``xai-tris-8x8``.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from xaibench.report.numbers.inference import cell_matrices
from xaibench.report.read.results import read_run
from xaibench.statistics.variance_sources import variance_components


def order(values, drawn):
    """Kendall's tau of the methods' mean scores between two trainings: of one data set, and of two."""
    places = sorted(set(zip(drawn.data_sets.tolist(), drawn.trainings.tolist(), strict=True)))
    means = {
        place: np.nanmean(values[(drawn.data_sets == place[0]) & (drawn.trainings == place[1])], axis=0)
        for place in places
    }
    found = {True: [], False: []}
    for one, other in itertools.combinations(places, 2):
        found[one[0] == other[0]].append(kendalltau(means[one], means[other]).statistic)
    return found[True], found[False]


def lines(folder, metric):
    run = read_run(folder)
    yield "| cell | data sets | trainings | samples | rest | tau, same data set | tau, other data set |"
    yield "|---|---|---|---|---|---|---|"
    for cell in cell_matrices(run):
        methods = [i for i, name in enumerate(cell.methods) if not run.explainers[name].control]
        values = cell.values[:, cell.metrics.index(metric)][:, methods]
        shares = np.nanmean(variance_components(values, cell.drawn).shares(), axis=1)
        same, other = order(values, cell.drawn)
        row = [" ".join(cell.cell), *(f"{100 * share:.0f} %" for share in shares)]
        row += [f"{np.median(same):.2f} ({min(same):.2f} to {max(same):.2f})", f"{np.median(other):.2f}"]
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--metric", default="emd_perf")
    given = parser.parse_args()
    print("\n".join(lines(given.run, given.metric)))
