"""Coverage of 95 % confidence intervals and false-positive rates of the tests, in simulated runs.

    python speed/interval_coverage.py [--runs 400] [--quick]

Scores of sixteen methods are simulated for designs of one to six data sets with one to three trainings each (samples
are crossed with trainings). The distributions differ in what makes intervals fail: heavy tails, skewed effects of data
sets, hits and misses, scores with few values, methods that vary ten times more than others, missing trainings, scores
near the end of their range, data sets or trainings that fail, skewed scores of one training (among them the library's
own completeness errors). No two methods differ in their true mean. Each run is analyzed by
:func:`xaibench.scores.nested_means`, and suites of twelve cells by
:func:`xaibench.scores.leaderboards.CellTests`. For comparison: the percentile bootstrap over samples,
which treats the data sets and trainings as the whole population, as most benchmarks do.

Ends with an error if intervals contain the mean in fewer than 93 % of the cases (or fewer than the case says), if tests
reject in more than 7 %, or if any of the 120 pairs of a run is significant after Holm's correction in more than 7 % of
the runs. With ``--quick``, the bounds allow for chance.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from measuring import command_line, print_head, print_row
from scipy.special import expit
from scipy.stats import binom

import xaibench as xb
from xaibench.runfolder.schema import CELL
from xaibench.scores import SamplingDesign, holm, nested_means, paired_differences
from xaibench.scores.leaderboards import CellTests
from xaibench.scores.nested_draws import RELIABLE_GROUPS
from xaibench.scores.summary import pair_tests

METHODS = 16
normal = np.random.Generator.standard_normal
FIRST, SECOND = np.triu_indices(METHODS, 1)
#: Numbers of data sets, trainings of each, and samples.
SHAPES = (
    *((1, 1, 20), (1, 1, 200), (1, 2, 50), (1, 3, 50), (2, 1, 50), (2, 2, 100)),
    *((3, 1, 50), (3, 2, 100), (5, 1, 50), (5, 3, 20), (6, 1, 100)),
)
#: Standard deviations of EMD performance between data sets, trainings, samples, and of the residual: rounded medians
#: over the methods of a cell of ``xai-tris-8x8``.
MLP_LIN = (0.001, 0.006, 0.017, 0.014)
CNN_MULT = (0.001, 0.039, 0.016, 0.029)
CNN_XOR = (0.025, 0.015, 0.005, 0.041)
#: Standard deviation of the logarithm of a method's own standard deviations about these.
SPREAD = 0.6
#: Bounds of the shares: coverage, rejected tests, runs with any significant pair.
LOWEST_COVERAGE, HIGHEST_REJECTION, HIGHEST_ANY = 0.93, 0.07, 0.07
#: Samples per patient in the lines with groups.
SLICES = 5


#: Titles of the tables.
TITLES = {
    "coverage": "interval contains the mean",
    "rejected": "test rejects",
    "any_pair": "any pair is significant after Holm",
    "bootstrap": "bootstrap contains the mean",
}


class Case(NamedTuple):
    """Simulated distribution of scores.

    Attributes:
        name: Name in the table.
        draw: Function of the shape and a random generator that returns scores ``[D, T, S, METHODS]``.
        mean: True mean of every method.
        within: Range of the scores.
        special: Methods whose coverage is stated separately, for they vary more than the others.
        shapes: Designs of the case.
        lowest: Smallest coverage that is accepted.
        lowest_special: The same, of the methods whose coverage is stated separately.
    """

    name: str
    draw: Callable
    mean: float = 0.0
    within: tuple[float, float] = (-np.inf, np.inf)
    special: slice = slice(0, 0)
    shapes: tuple = SHAPES
    lowest: float = LOWEST_COVERAGE
    lowest_special: float = LOWEST_COVERAGE


def heavy(rng, size):
    return rng.standard_t(3, size) / math.sqrt(3)


def log_normal(rng, size, sigma=0.5):
    """Log-normal with mean 0 and standard deviation 1; its skewness is 1.75 for the default, and 6.2 for 1."""
    mean = math.exp(sigma**2 / 2)
    return (rng.lognormal(0, sigma, size) - mean) / (mean * math.sqrt(math.expm1(sigma**2)))


very_skewed = functools.partial(log_normal, sigma=1)


def left(rng, size):
    """Skewed toward small values, as EMD performance is."""
    return (rng.beta(8, 2, size) - 0.8) / 0.1206


def nested(deviations, *, sets=normal, samples=left, rest=normal, factor=None):
    """Return a function that draws scores with effects of data sets, trainings and samples."""

    def draw(shape, rng):
        d, t, s = shape
        sizes, shapes = ((d, 1, 1), (d, t, 1), (d, 1, s), shape), (sets, normal, samples, rest)
        varied = d > 1, d * t > 1, True, True  # a level with a single unit has no effect
        total = np.zeros((*shape, METHODS))
        for level, (size, deviation, of, counts) in enumerate(zip(sizes, deviations, shapes, varied, strict=True)):
            spread = np.exp(rng.normal(0, SPREAD, METHODS))
            own = deviation * (spread if factor is None or level > 1 else factor)
            total += counts * own * of(rng, (*size, METHODS))
        return total

    return draw


def hits(rate, deviation=0.0):
    """Hits and misses with effects of data sets and trainings on the log-odds, and their true mean."""
    logit = math.log(rate / (1 - rate))

    def draw(shape, rng):
        d, t, _ = shape
        odds = logit + deviation * (
            (d > 1) * rng.normal(size=(d, 1, 1, METHODS)) + (d * t > 1) * rng.normal(size=(d, t, 1, METHODS))
        )
        return (rng.random((*shape, METHODS)) < expit(odds)).astype(float)

    return draw


def hit_rate(rate, deviation, shape):
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = deviation * math.sqrt((shape[0] > 1) + (shape[0] * shape[1] > 1))
    return float((weights * expit(math.log(rate / (1 - rate)) + spread * points)).sum() / weights.sum())


def eighths(shape, rng):
    """Precision in eighths: the methods agree except for 3 % of the scores."""
    d, _, s = shape
    base = np.broadcast_to(rng.integers(2, 7, (d, 1, s, 1)) / 8, (*shape, METHODS)).copy()
    return base + (rng.random(base.shape) < 0.03) * rng.choice([-0.125, 0.125], base.shape)


def without_a_training(shape, rng):
    scores = nested(CNN_MULT)(shape, rng)
    scores[:, 0, :, ::4] = np.nan
    return scores


def pareto_gaps(shape, rng):
    """Scores near 1 with gaps that follow a Pareto distribution of index 1.5, cut at 1."""
    return 1 - np.minimum(0.01 * rng.pareto(1.5, (*shape, METHODS)), 1.0)


def mostly_one(shape, rng):
    """Scores of 1, except for one in ten, which is uniform in [0, 1]."""
    size = (*shape, METHODS)
    return np.where(rng.random(size) < 0.9, 1.0, rng.random(size))


def failing(learned, scores=None):
    """Data sets or trainings whose scores are multiplied by 1 with probability ``learned``, otherwise by 1/2."""

    def draw(shape, rng):
        factor = np.where(rng.random((*shape[:2], 1, METHODS)) < learned, 1.0, 0.5)
        return (rng.random((*shape, METHODS)) < factor).astype(float) if scores is None else factor * scores(shape, rng)

    return draw


#: Explainers of the completeness errors. Those of the first are between 0.4 and 0.6, except for 6 % that are up to 8.6.
EXPLAINERS = (
    *("saliency", "input_x_gradient", "integrated_gradients", "deeplift", "lrp_epsilon", "occlusion"),
    *("gradient_shap", "smoothgrad"),
)


@functools.cache
def completeness_errors():
    """Return completeness errors of explainers of the MLP on LIN WHITE, less their means, ``[1000, EXPLAINERS]``."""
    data, network = xb.load("xai-tris/lin-white-8x8"), xb.published_network("xai-tris/lin-white-8x8", "mlp")
    methods = {name: functools.partial(xb.explain, name) for name in EXPLAINERS}
    given = {"controls": False, "scored": "all", "progress": False}
    scores = xb.evaluate(methods, data.test, network, metrics=["completeness_error"], **given)
    errors = scores.matrix("completeness_error").to_numpy()
    return errors - errors.mean(axis=0)


def completeness(shape, rng):
    """Completeness errors, drawn for each method independently; each explainer counts as two methods."""
    errors = np.tile(completeness_errors(), METHODS // len(EXPLAINERS))
    return np.take_along_axis(errors, rng.integers(0, len(errors), (shape[2], METHODS)), axis=0)


def one_large(shape, rng):
    """One data set with a group of 200 samples next to groups of three, with effects of the groups."""
    own = rng.normal(size=(shape[2], METHODS))[large_group(shape[2])]
    return own + rng.normal(size=own.shape)


def large_group(count):
    """Return the group of each sample for one group of 200 next to groups of three."""
    return np.repeat(np.arange(count), [200] + [3] * (count - 1))


def patients(shape, rng):
    """One data set of patients with five slices each, which share their patient's effect."""
    own = left(rng, (1, 1, shape[2] // SLICES, METHODS))
    return np.repeat(own, SLICES, axis=2) + rng.normal(size=(1, 1, shape[2] // SLICES * SLICES, METHODS))


ONE_OUT, HALF = np.ones(METHODS), np.ones(METHODS)
ONE_OUT[:2], HALF[:8] = 10, 10
SINGLE = ((1, 1, 20), (1, 1, 50), (1, 1, 200))
REPEATED = tuple(shape for shape in SHAPES if shape[0] * shape[1] > 1)
PARETO_MEAN = 1 - 0.01 * (1 - 101**-0.5) / 0.5  # the integral of the survival function (1 + x / 0.01)^-1.5 up to 1
CASES = (
    Case("MLP on LIN WHITE, as measured", nested(MLP_LIN)),
    Case("CNN on MULT CORR, as measured", nested(CNN_MULT)),
    Case("CNN on XOR WHITE, as measured", nested(CNN_XOR)),
    Case("no effect of data sets or trainings", nested((0, 0, 0.017, 0.014))),
    Case("t with 3 degrees of freedom", nested(CNN_XOR, sets=heavy, samples=heavy, rest=heavy)),
    Case("log-normal effect of data sets", nested(CNN_XOR, sets=log_normal), shapes=REPEATED),
    Case(
        "the same, nearly without other effects",
        nested((0.05, 0.0, 0.02, 0.02), sets=log_normal),
        shapes=REPEATED,
        lowest=0.91,
    ),
    Case(
        "one method in eight varies 10 times more", nested(CNN_MULT, factor=ONE_OUT), special=slice(2), shapes=REPEATED
    ),
    Case("half of the methods vary 10 times more", nested(CNN_MULT, factor=HALF), special=slice(8), shapes=REPEATED),
    Case("every fourth method lacks a training", without_a_training, shapes=((1, 2, 50), (1, 3, 50), (3, 2, 100))),
    Case("hits, 50 %", hits(0.5), 0.5, (0, 1)),
    Case("hits, 3 %", hits(0.03), 0.03, (0, 1)),
    Case("hits, 70 %, trainings differ", hits(0.7, 0.5), np.nan, (0, 1)),
    Case("precision in eighths, 97 % ties", eighths, np.nan, (0, 1)),
    Case("near 1, Pareto gaps", pareto_gaps, PARETO_MEAN, (0, 1)),
    Case("90 % are exactly 1", mostly_one, 0.95, (0, 1)),
    *(
        Case(
            f"hits only in {100 * learned:g} % of the sets or trainings, 50 % in the others",
            failing(learned),
            0.5 + learned / 2,
            (0, 1),
            shapes=REPEATED,
        )
        for learned in (0.7, 0.8, 0.9, 0.95)
    ),
    Case(
        "90 % are exactly 1, half of it in 10 % of the sets or trainings",
        failing(0.9, mostly_one),
        0.95 * 0.95,
        (0, 1),
        shapes=REPEATED,
    ),
    Case("log-normal samples", nested((0, 0, 1, 0), samples=very_skewed), shapes=SINGLE, lowest=0.92),
    Case(
        "completeness errors, Saliency apart",
        completeness,
        special=slice(0, None, len(EXPLAINERS)),
        shapes=SINGLE,
        lowest=0.92,
        lowest_special=0.75,
    ),
)
PATIENTS = (40, 100, 500)
#: Numbers of groups of which one is large.
GROUPS = (5, 10, 20, 30)


def design(shape):
    names = dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(shape)), strict=True))
    return SamplingDesign.of(int(np.prod(shape)), **names)


def simulate(case, shape, runs, drawn=None, seed=0):
    """Return the rates of one case and shape.

    These are the shares of intervals that contain the true mean (of the methods with an interval, and of those that
    vary more), tests of two methods that reject at 5 %, runs in which any two methods differ significantly after Holm's
    correction, and percentile intervals over samples that contain the true mean.
    """
    rng, drawn = np.random.default_rng([seed, *shape, *case.name.encode()]), drawn or design(shape)
    truth = hit_rate(0.7, 0.5, shape) if "trainings differ" in case.name else case.mean
    found = {name: [] for name in (*TITLES, "special")}
    others = np.setdiff1d(np.arange(METHODS), np.arange(METHODS)[case.special])
    for run in range(runs):
        scores = case.draw(shape, rng).reshape(-1, METHODS)
        if not math.isnan(truth):
            low, high = nested_means(scores, drawn).intervals(within=case.within).T
            held = np.where(np.isnan(low), np.nan, (low <= truth) & (high >= truth))
            found["coverage"] += [held[others]]
            found["special"] += [held[case.special]]
            if run < runs / 4:
                found["bootstrap"] += [bootstrap(scores, drawn, truth, rng)]
        p = nested_means(paired_differences(scores[:, FIRST], scores[:, SECOND]), drawn).p_values()
        found["rejected"] += [np.where(np.isnan(p), np.nan, p < 0.05)]
        found["any_pair"] += [np.array([(holm(p) < 0.05).any()])]
    joined = {name: np.concatenate(parts).astype(float) if parts else np.empty(0) for name, parts in found.items()}
    return {name: pd.Series(values).mean() for name, values in joined.items()}


def simulate_groups(case, count, runs, groups):
    """Return the rates of one data set and training whose samples have groups."""
    return simulate(case, (1, 1, count), runs, SamplingDesign.of(len(groups), groups=groups))


def bootstrap(scores, drawn, truth, rng, resamples=300):
    """Return which percentile intervals over samples contain the true mean, ``[METHODS]``."""
    numbers = np.unique(drawn.data_sets * 10_000 + drawn.groups, return_inverse=True)[1]
    sums = np.zeros((numbers.max() + 1, METHODS))
    np.add.at(sums, numbers, np.nan_to_num(scores))
    counts = np.zeros_like(sums)
    np.add.at(counts, numbers, ~np.isnan(scores))
    weights = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), resamples)
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile((weights @ sums) / (weights @ counts), [0.025, 0.975], axis=0)
    return (low <= truth) & (high >= truth)


def suite(kind, shape, rng, cells=12):
    """Return the pairs of a suite of cells: six subsets and variants with two networks each."""
    names, drawn, tables = [f"method {number:02}" for number in range(METHODS)], design(shape), []
    for number in range(cells):
        place, network = divmod(number, 2)
        factor = {"half": HALF, "one method": ONE_OUT}.get(kind)
        if number == 0:
            factor = {"one cell": np.full(METHODS, 30.0), "one method in one cell": ONE_OUT}.get(kind, factor)
        draw = eighths if kind == "ties" else nested(CNN_XOR if number % 3 else MLP_LIN, factor=factor)
        scores = draw(shape, rng).reshape(-1, METHODS)
        cell = dict(zip(CELL, (f"place {place}", "", f"network {network}"), strict=True))
        tests = pair_tests(names, scores, drawn)
        tables.append(tests.assign(n_groups=shape[0] * shape[2], **cell, metric="score"))
    return pd.concat(tables, ignore_index=True)


SUITES = {
    "equal": "methods with similar variances",
    "half": "half of the methods vary 10 times more",
    "one method": "one method in eight varies 10 times more",
    "one method in one cell": "the same, in one cell",
    "one cell": "data sets of one cell differ 30 times more",
    "ties": "precision in eighths, 97 % ties",
}
SUITE_SHAPES = ((1, 1, 100), (1, 3, 50), (2, 2, 40), (3, 2, 30), (6, 1, 50))


def simulate_suites(kind, shape, runs, seed=0):
    """Return the share of suites with any significant pair, and of pairs with p < 5 % before the correction."""
    rng, any_pair, single = np.random.default_rng([seed, *shape, *kind.encode()]), [], []
    for _ in range(runs):
        found = CellTests.read(suite(kind, shape, rng), "score").over()
        any_pair.append(bool((found["p_holm"] < 0.05).any()))
        single.append(float((found["p"] < 0.05).mean()))
    return float(np.mean(any_pair)), float(np.mean(single))


def label(shape):
    return " × ".join(map(str, shape))


def print_table(title, rows, columns):
    """Print a Markdown table of ``{row: {column: text}}``."""
    print_head(title, *columns)
    for name, cells in rows.items():
        print_row(name, *(cells.get(column, "") for column in columns))
    print()


def texts(found, field):
    """Return the texts of one kind of rates."""
    return {name: text_of(rates, field) for name, rates in found.items()}


def text_of(rates, field):
    special = f" ({rates['special']:.3f})" if field == "coverage" and not math.isnan(rates["special"]) else ""
    return "" if math.isnan(rates[field]) else f"{rates[field]:.3f}{special}"


class Checks:
    """Collection of the shares that are out of bounds."""

    def __init__(self, *, chance):
        self.chance, self.failed = chance, []

    def add(self, name, value, bound, runs, *, lowest=False):
        """Note a share beyond its bound; with ``chance``, only if few runs do not explain it."""
        if self.chance:
            # The tests of one run are correlated, so a run counts once.
            bound = binom.ppf(0.001 if lowest else 0.999, runs, bound) / runs
        if value < bound if lowest else value > bound:
            self.failed.append(f"{name}: {value:.3f}, expected {'at least' if lowest else 'at most'} {bound:.3f}")

    def add_rates(self, name, rates, runs, lowest, lowest_special=LOWEST_COVERAGE):
        """Note the rates of a line that are out of bounds."""
        self.add(f"coverage, {name}", rates["coverage"], lowest, runs, lowest=True)
        self.add(f"coverage of the special methods, {name}", rates["special"], lowest_special, runs, lowest=True)
        self.add(f"rejected tests, {name}", rates["rejected"], HIGHEST_REJECTION, runs)
        self.add(f"any pair, {name}", rates["any_pair"], HIGHEST_ANY, runs)


def main():
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=400, help="simulated runs per line; a fourth of it for suites")
    parser.add_argument("--quick", action="store_true", help="20 runs, in half a minute; bounds allow for chance")
    given = parser.parse_args()
    runs, checks = 20 if given.quick else given.runs, Checks(chance=given.quick)
    found = {case.name: {label(shape): simulate(case, shape, runs) for shape in case.shapes} for case in CASES}
    for case in CASES:
        for where, rates in found[case.name].items():
            checks.add_rates(f"{case.name}, {where}", rates, runs, case.lowest, case.lowest_special)
    columns = list(map(label, sorted({*SHAPES, *SINGLE})))
    for field, title in TITLES.items():
        print_table(title, {name: texts(rates, field) for name, rates in found.items()}, columns)
    found = {}
    for count in PATIENTS:
        drawn, name = np.repeat(np.arange(count // SLICES), SLICES), f"{count // SLICES} patients"
        found[name] = simulate_groups(Case("patients", patients), count, runs, drawn)
        checks.add_rates(f"{name} of {SLICES} samples each", found[name], runs, LOWEST_COVERAGE)
    print_table(f"groups of {SLICES} samples", {title: texts(found, field) for field, title in TITLES.items()}, found)
    found = {}
    for count in GROUPS:
        name = f"{count} groups"
        found[name] = simulate_groups(Case("large", one_large), count, runs, large_group(count))
        if count >= RELIABLE_GROUPS:
            checks.add_rates(f"one group of 200 and {count - 1} of 3 samples", found[name], runs, LOWEST_COVERAGE)
    title = "one group of 200 samples, others of 3"
    print_table(title, {title: texts(found, field) for field, title in TITLES.items()}, found)
    suites, runs = {}, max(runs // 4, 5)
    for kind, name in SUITES.items():
        for shape in SUITE_SHAPES:
            any_pair, single = simulate_suites(kind, shape, runs)
            checks.add(f"any pair of a suite, {name}, {label(shape)}", any_pair, HIGHEST_ANY, runs)
            suites.setdefault(name, {})[label(shape)] = f"{any_pair:.3f} ({single:.3f})"
    title = "any pair of a suite is significant after Holm (one pair before)"
    print_table(title, suites, [label(shape) for shape in SUITE_SHAPES])
    if checks.failed:
        raise SystemExit("Out of bounds:\n" + "\n".join(checks.failed))


if __name__ == "__main__":
    main()
