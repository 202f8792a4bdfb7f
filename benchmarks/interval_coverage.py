"""Coverage of 95 % confidence intervals and false-positive rate of the tests, in simulated runs.

    python benchmarks/interval_coverage.py [--runs 400] [--out FILE.md]

Scores of sixteen methods are simulated as in an XAI-TRIS cell (data sets, trainings nested in them, samples crossed
with trainings), with standard deviations per method as measured in a run of ``xai-tris-8x8`` over three data sets with
three trainings each. Each simulated run is analyzed by :func:`xaibench.statistics.nested_means` and, for comparison, by
the percentile bootstrap over samples, which treats the trainings as the whole population, as most benchmarks do.
Further rows simulate groups of samples (patients) in one data set and training, with skewed and with binary scores. A
second table covers whole
suites: the share of suites in which any two of sixteen equal methods differ significantly over all cells
(:func:`xaibench.report.numbers.suite_tests`).
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from xaibench.report.numbers.pair_testing import pair_tests
from xaibench.report.numbers.suite_tests import pairs_over_cells
from xaibench.runfolder.tables import CELL
from xaibench.statistics import SamplingDesign, nested_means

METHODS = 16
#: Scenarios and backgrounds of a suite.
PLACES = 8
#: Standard deviations of EMD performance between data sets, trainings, samples, and of the rest: the median over the
#: methods of the cells named (rounded), and by how much the logarithm of a method's own varies about it.
MEASURED = {
    "MLP on LIN-WHITE": (0.001, 0.006, 0.017, 0.014),
    "CNN on MULT-CORR": (0.001, 0.039, 0.016, 0.029),
    "CNN on XOR-WHITE": (0.025, 0.015, 0.005, 0.041),
}
UNLIKE = 0.6
SHAPES = ((1, 1, 200), (1, 2, 200), (1, 3, 200), (2, 2, 200), (3, 1, 200), (3, 2, 200), (5, 5, 100))
GROUPS = (8, 10, 20, 30, 100)
#: Shares of hits of the methods.
RATES = np.linspace(0.1, 0.9, METHODS)


def drawn(shape):
    """Data set, training and sample of each row of an experiment; samples vary fastest."""
    names = dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(shape)), strict=True))
    return SamplingDesign.of(int(np.prod(shape)), **names)


def experiment(shape, deviations, rng):
    """Return scores ``[D T S, METHODS]`` with mean 0; a level with a single draw has no variance."""
    d, t, s = shape
    sizes = (d, 1, 1), (d, t, 1), (d, 1, s), shape
    once = (d > 1, d * t > 1, True, True)
    total = np.zeros((*shape, METHODS))
    for level, (size, deviation, counts) in enumerate(zip(sizes, deviations, once, strict=True)):
        own = deviation * np.exp(rng.normal(0, UNLIKE, METHODS))
        # Scores of samples are skewed towards their upper end, as those of EMD performance are.
        part = (rng.beta(8, 2, (*size, METHODS)) - 0.8) / 0.1206 if level == 2 else rng.normal(size=(*size, METHODS))
        total += counts * own * part
    return total.reshape(-1, METHODS)


def bootstrap(scores, groups, rng, resamples=300):
    """``[M, 2]`` percentile intervals over groups."""
    numbers = np.unique(groups, return_inverse=True)[1]
    sums = np.zeros((numbers.max() + 1, scores.shape[1]))
    np.add.at(sums, numbers, scores)
    counts = np.bincount(numbers)
    picked = rng.integers(0, len(sums), (resamples, len(sums)))
    means = sums[picked].sum(axis=1) / counts[picked].sum(axis=1)[:, None]
    return np.quantile(means, [0.025, 0.975], axis=0).T


def holds(intervals, truth=0):
    return ((intervals[:, 0] <= truth) & (intervals[:, 1] >= truth)).tolist()


def rates(shape, deviations, runs, seed=0):
    """Return shares: intervals that cover the mean, tests that reject, bootstrap intervals that cover the mean."""
    rng, of = np.random.default_rng([seed, *shape]), drawn(shape)
    ours, rejected, theirs = [], [], []
    for run in range(runs):
        scores = experiment(shape, deviations, rng)
        ours += holds(nested_means(scores, of, pool_variances=True).intervals())
        pairs = scores[:, ::2] - scores[:, 1::2]
        rejected += (nested_means(pairs, of, pool_variances=True).p_values() < 0.05).tolist()
        if run < max(runs // 4, 1):
            samples = of.data_sets * shape[2] + of.groups
            theirs += holds(bootstrap(scores, samples, rng))
    return np.mean(ours), np.mean(rejected), np.mean(theirs)


def skewed(groups, rng):
    """``[N, METHODS]`` scores of slices of patients about 0."""
    own = (rng.beta(8, 2, (groups.max() + 1, METHODS)) - 0.8) / 0.1206
    return own[groups] + rng.normal(size=(len(groups), METHODS))


def hits(groups, rng):
    """``[N, METHODS]`` hits and misses; each patient has a share of hits of its own about the method's."""
    own = rng.beta(RATES, 1 - RATES, (groups.max() + 1, METHODS))
    return (rng.random((len(groups), METHODS)) < own[groups]).astype(float)


def grouped(count, slices, draw, truth, runs, seed=0, **bounds):
    """Return the same shares for ``count`` patients, each with a random number of slices."""
    rng = np.random.default_rng([seed, count])
    ours, rejected, theirs = [], [], []
    for run in range(runs):
        groups = np.repeat(np.arange(count), rng.integers(1, slices + 1, count))
        scores, others = draw(groups, rng), draw(groups, rng)
        of = SamplingDesign.of(len(groups), groups=groups)
        ours += holds(nested_means(scores, of).intervals(**bounds), truth)
        rejected += (nested_means(scores - others, of).p_values() < 0.05).tolist()
        if run < max(runs // 4, 1):
            theirs += holds(bootstrap(scores, groups, rng), truth)
    return np.mean(ours), np.mean(rejected), np.mean(theirs)


def table(runs):
    lines = [
        "| what varies | sets x trainings x samples | interval holds | test rejects | bootstrap of samples holds |",
        "|---|---|---|---|---|",
    ]

    def add(name, size, found):
        lines.append(f"| {name} | {size} | {' | '.join(f'{share:.3f}' for share in found)} |")

    for name, deviations in MEASURED.items():
        for shape in SHAPES:
            add(name, " x ".join(map(str, shape)), rates(shape, deviations, runs))
    for count in GROUPS:
        add("patients of 1 to 5 slices", f"{count} patients", grouped(count, 5, skewed, 0, runs))
    for count in GROUPS:
        add("their hits and misses", f"{count} patients", grouped(count, 5, hits, RATES, runs, within=(0, 1)))
    for count in GROUPS:
        add("hits and misses", f"{count} samples", grouped(count, 1, hits, RATES, runs, within=(0, 1)))
    return "\n".join(lines) + "\n"


def places(shape, shared, rng):
    """Scores of eight scenarios and backgrounds, two networks each, which share so much of what their images do."""
    d, t, s = shape
    levels = ((d, 1, 1), d > 1, 0), ((d, t, 1), d * t > 1, 1), ((d, 1, s), True, 2), ((d, t, s), True, 3)
    found = {}
    for place in range(PLACES):
        common = [rng.normal(size=(*size, METHODS)) for size, _, _ in levels]
        for network in range(2):
            deviations = list(MEASURED.values())[rng.integers(len(MEASURED))]
            total = np.zeros((*shape, METHODS))
            for (size, counts, level), same in zip(levels, common, strict=True):
                # Trainings, and what is left, are each network's own.
                alike = shared if level in (0, 2) else 0.0
                draws = np.sqrt(alike) * same + np.sqrt(1 - alike) * rng.normal(size=(*size, METHODS))
                total += counts * deviations[level] * np.exp(rng.normal(0, UNLIKE, METHODS)) * draws
            found[f"place {place}", "", f"network {network}"] = total.reshape(-1, METHODS)
    return found


def alarms(shape, shared, runs, seed=0):
    """Return the false-positive rates per suite, and per pair without Holm's correction; no methods differ."""
    rng, of = np.random.default_rng([seed, *shape]), drawn(shape)
    names, any_pair, single = [f"method {number:02}" for number in range(METHODS)], [], []
    for _ in range(runs):
        cells = [
            pair_tests(names, [False] * METHODS, scores, of, shape[0] * shape[2]).assign(
                **dict(zip(CELL, cell, strict=True)), metric="score"
            )
            for cell, scores in places(shape, shared, rng).items()
        ]
        found = pairs_over_cells(pd.concat(cells, ignore_index=True), "score")
        any_pair.append((found["p_holm"] < 0.05).any())
        single.append((found["p"] < 0.05).mean())
    return np.mean(any_pair), np.mean(single)


def suites(runs):
    lines = [
        "| sets x trainings x samples | networks share | any two told apart | a pair, without Holm's correction |",
        "|---|---|---|---|",
    ]
    for shape in ((3, 2, 100), (2, 2, 100), (1, 3, 100), (1, 1, 100)):
        for shared in (0.0, 0.5, 1.0):
            found = " | ".join(f"{share:.3f}" for share in alarms(shape, shared, runs))
            lines.append(f"| {' x '.join(map(str, shape))} | {shared:.0%} | {found} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=400, help="simulated runs per line, with sixteen methods each")
    parser.add_argument("--out", type=Path, help="a file for the table")
    given = parser.parse_args()
    found = table(given.runs) + "\n" + suites(max(given.runs // 4, 1))
    print(found)
    if given.out:
        given.out.write_text(found, encoding="utf-8")
