"""Tests over all cells of a suite: the literal formula, and how often they find a difference where there is none."""

import dataclasses
import itertools
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from oracles.report_tables import holm
from report.conftest import FEW_CELLS, make_scores, write_run
from scipy.stats import t

from xaibench.report.page.content import board_values
from xaibench.runfolder.schema import CELL
from xaibench.scores import SamplingDesign
from xaibench.scores.leaderboards import CellTests, boards, leaderboard, overall_comparisons, printable
from xaibench.scores.results import read_run
from xaibench.scores.summary import infer, pair_tests, summarize

EVERYTHING = (None, None, None)


def made(run):
    summary, pairs = infer(run, summarize(run))
    (found,) = boards(run, summary, pairs).values()  # a folder from before the kinds of truth has one board
    return found, summary, pairs


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    run = read_run(write_run(tmp_path_factory.mktemp("boards") / "run", samples=30, cells=FEW_CELLS))
    return run, *made(run)


def test_there_is_a_board_for_each_choice_that_a_cell_fits(few):
    run, found, *_ = few
    names = (*run.subsets, *run.variants, *run.models)
    assert names == ("lin", "rigid", "white", "corr", "llr", "mlp", "cnn")
    fitting = set()
    for subset, variant, model in FEW_CELLS:
        place = run.subsets.index(subset), run.variants.index(variant), list(run.models).index(model)
        fitting |= {tuple(place[i] if mask >> i & 1 else None for i in range(3)) for mask in range(8)}
    assert set(found.cells) == fitting
    assert len(found.cells[EVERYTHING]) == 4
    assert len(found.cells[0, 0, None]) == 2


def select(run, rows, choice):
    """The rows of a table in the cells of a choice."""
    for key, order, place in zip(CELL, (run.subsets, run.variants, list(run.models)), choice, strict=True):
        rows = rows if place is None else rows[rows[key] == order[place]]
    return rows


def literal_places(run, rows, pairs, metric):
    """Return the rank interval of each method and whether it is better than the controls, from the tests of its pairs.

    The p-values are those of the pairs over the cells; everything else is counted.
    """
    mine, tests = rows[rows["metric"] == metric], CellTests.read(pairs, metric)
    cells, higher = (
        {tuple(cell) for cell in mine[list(CELL)].astype(str).to_numpy()},
        run.metrics[metric].higher_is_better,
    )
    control = {name for name, part in run.explainers.items() if part.control}

    def better(names, of_pairs):
        """Ordered pairs: first significantly better than second, of one family of tests."""
        found, sign = tests.over(cells, of_pairs), 1 if higher else -1
        found["p_holm"] = holm(found["p"].tolist())
        there = [row for row in found.itertuples(index=False) if row.p_holm < 0.05]
        return {(row.first, row.second) if sign * row.difference > 0 else (row.second, row.first) for row in there}

    own = [name for name in mine["explainer"].unique() if name not in control]
    ahead = set(mine["explainer"][mine["beats_controls"].eq(True).fillna(False)])
    ahead |= set.intersection(
        *({one for one, _ in better(own, [(name, other) for name in own]) if one not in control} for other in control)
    )
    count = mine.dropna(subset=["rank"]).groupby("explainer", observed=True).size()
    ranked = [name for name in own if name in ahead and count[name] == len(cells)]
    wins = better(ranked, list(itertools.combinations(ranked, 2)))
    whole = {name for name in own if count[name] == len(cells)}
    # A method without a place takes part: its pairs are corrected with all pairs.
    wins |= {pair for pair in better(own, None) if whole >= set(pair) and not set(ranked) >= set(pair)}
    below = {worse for other in control for one, worse in better(own, [(name, other) for name in own]) if one == other}
    places = {
        name: (1 + sum(worse == name for _, worse in wins), len(whole) - sum(one == name for one, _ in wins))
        for name in ranked
    }
    # A method that may be first has no place below a control.
    return {name: ends for name, ends in places.items() if ends[0] > 1 or name not in below}, ahead


@pytest.mark.parametrize("choice", [EVERYTHING, (0, None, None), (None, 1, None), (0, 0, 1)])
@pytest.mark.parametrize("metric", [0, 1])
def test_places_are_counted_from_the_significant_differences(few, choice, metric):
    run, found, summary, pairs = few
    name = list(run.metrics)[metric]
    rows = select(run, summary, choice)
    places, ahead = literal_places(run, rows, pairs, name)
    assert len(places) > 5
    board = pd.DataFrame(found.columns(choice, metric)).set_index("explainer")
    shown = board[board["place"].notna()]
    assert {one: (row["place"], row["last_place"]) for one, row in shown.iterrows()} == places
    assert set(board.index[board[f"ahead:{name}"] == 1]) == ahead
    assert board.loc[board["control"].astype(bool), f"ahead:{name}"].isna().all()


def test_the_order_is_that_of_the_means_and_not_of_the_medians_or_ranks(few_cells_run, tmp_path):
    """LIME has a larger mean than all others by one cell alone, and smaller scores than them in the other cells."""
    scores = pd.read_parquet(few_cells_run / "scores.parquet")
    lime = scores["explainer"] == "lime"
    value = np.where(scores["model"] == "llr", 9.0, 0.01)
    found = write(tmp_path, scores.assign(value=scores["value"].mask(lime, value)))
    board = found.standings.board(range(4)).set_index("explainer")
    assert board.index[0] == "lime"
    assert board.loc["lime", "mean:emd_perf"] == pytest.approx((9 + 3 * 0.01) / 4)
    assert board.loc["lime", "median:emd_perf"] == board["median:emd_perf"].min()
    assert board.loc["lime", "mean_rank:emd_perf"] > board["mean_rank:emd_perf"].min()


def eigen_cam(folder, values):
    """A run of one cell in which the methods and the control ``sobel`` have these scores."""
    scores = pd.concat(
        [pd.DataFrame({"explainer": name, "sample": range(len(own)), "value": own}) for name, own in values.items()]
    )
    head = {"dataset": "d", "subset": "d", "variant": "-", "model": "m", "seed": 0, "data_seed": 0, "metric": "k"}
    scores.assign(**head, correct=True, higher_is_better=True, reason="").to_parquet(folder / "scores.parquet")
    (folder / "descriptions.json").write_text(json.dumps({"explainers": {"sobel": {"control": True}}}))
    run = read_run(folder)
    return run, *made(run)


def test_a_method_with_the_best_mean_that_is_not_better_than_the_controls_has_no_place(tmp_path):
    varied, steady = np.tile([0.1, 0.94], 10), np.tile([0.49, 0.51], 10)
    values = {"eigen_cam": varied, "gradcam": steady, "rise": steady - 0.05, "sobel": np.full(20, 0.4)}
    run, found, summary, pairs = eigen_cam(tmp_path, values)
    board = leaderboard(run, summary, pairs=pairs).set_index("explainer")
    assert board.index.tolist() == ["eigen_cam", "gradcam", "rise", "sobel"]
    assert board["mean:k"].tolist() == pytest.approx([0.52, 0.5, 0.45, 0.4])
    # It is not significantly worse than the others, each of which may be behind it.
    assert board["place"].tolist() == [pd.NA, 1, 2, pd.NA]
    assert board["last_place"].tolist() == [pd.NA, 2, 3, pd.NA]
    assert board["ahead:k"].tolist() == pytest.approx([0, 1, 1, np.nan], nan_ok=True)
    assert printable(run, board.reset_index())["place"].tolist() == ["", "1–2", "2–3", ""]
    assert [row["place"] for row in found.rows()] == [None, 1, 2, None]


def test_without_controls_every_method_has_a_place(tmp_path):
    values = {"eigen_cam": np.tile([0.1, 0.94], 10), "gradcam": np.tile([0.49, 0.51], 10)}
    run, _, summary, pairs = eigen_cam(tmp_path, values)
    board = leaderboard(run, summary, pairs=pairs)
    assert list(zip(board["explainer"], board["place"], board["last_place"], strict=True)) == [
        ("eigen_cam", 1, 2),
        ("gradcam", 1, 2),
    ]


def test_a_metric_without_a_defined_score_does_not_order_the_methods(few_cells_run, tmp_path):
    scores = pd.read_parquet(few_cells_run / "scores.parquet")
    found = write(tmp_path, scores.assign(value=scores["value"].mask(scores["metric"] == "emd_perf")))
    board = found.standings.board(range(4))
    assert len(board) == 17
    assert board["mean:topk_precision"].is_monotonic_decreasing
    assert board["place"].notna().any()


def test_of_one_cell_the_interval_is_that_of_the_cell(few):
    _, found, summary, _ = few
    cell = summary[(summary["model"] == "mlp") & (summary["metric"] == "emd_perf")].set_index("explainer")
    columns = found.columns((0, 0, 1))
    for name, low, high in zip(columns["explainer"], columns["low:emd_perf"], columns["high:emd_perf"], strict=True):
        if name in cell.index:
            assert (low, high) == (cell.loc[name, "low"], cell.loc[name, "high"])


def same_scores(model, scores):
    """The scores as those of another model."""
    return scores.assign(model=model)


def write(tmp_path, scores):
    scores.to_parquet(tmp_path / "scores.parquet")
    return made(read_run(tmp_path))[0]


def width(found, choice, method="saliency"):
    columns = found.columns(choice)
    place = list(columns["explainer"]).index(method)
    return columns["high:emd_perf"][place] - columns["low:emd_perf"][place]


def test_models_on_the_same_samples_do_not_narrow_the_interval_but_other_samples_do(tmp_path):
    one = make_scores(200, [("lin", "white", "mlp")])
    twice = write(tmp_path, pd.concat([one, same_scores("cnn", one)]))
    alone = width(twice, (None, None, 1))
    assert width(twice, EVERYTHING) == pytest.approx(alone, rel=0.08)
    other = make_scores(200, [("mult", "white", "mlp")], seed=1)
    apart = write(tmp_path, pd.concat([one, other]))
    first, second = width(apart, (0, None, None)), width(apart, (1, None, None))
    assert width(apart, EVERYTHING) == pytest.approx(np.hypot(first, second) / 2, rel=0.1)


def test_a_method_that_some_cell_lacks_has_the_mean_of_the_others(few):
    _, found, summary, _ = few
    columns = found.columns(EVERYTHING)
    place = list(columns["explainer"]).index("guided_gradcam")
    mine = summary[(summary["explainer"] == "guided_gradcam") & (summary["metric"] == "emd_perf")]
    assert (columns["cells"][place], columns["of"][place]) == (2, 4)
    assert columns["mean:emd_perf"][place] == pytest.approx(mine["mean"].mean())
    assert columns["low:emd_perf"][place] < columns["mean:emd_perf"][place] < columns["high:emd_perf"][place]
    assert np.isnan(columns["place"][place])


def test_a_cell_of_one_sample_has_no_interval_and_leaves_none_to_its_mean(tmp_path):
    scores = make_scores(40, [("lin", "white", "mlp"), ("mult", "white", "mlp")])
    scores = scores[(scores["subset"] == "lin") | (scores["sample"] == scores["sample"][scores["correct"]].min())]
    columns = write(tmp_path, scores).columns(EVERYTHING)
    assert not np.isnan(columns["mean:emd_perf"]).any()
    assert np.isnan(columns["low:emd_perf"]).all()


def test_what_the_page_gets_says_the_same(few):
    _, found, *_ = few
    data = json.loads(json.dumps(board_values(found), allow_nan=False))
    assert data["ranked"] == list(found.standings.explainers)
    assert (data["own"], data["ranking"]) == ([0, 1], 0)
    assert set(data["boards"]) >= {"..", "0..", ".1.2", "0.0.1"}
    board = data["boards"]["0.0.1"]
    assert (board["cells"], len(board["metrics"])) == (1, 2)
    assert board["metrics"][0][data["ranked"].index("guided_gradcam")] is None
    columns = found.columns((0, 0, 1))
    names = ["order", "first", "last", "cells", "of", "mean", "low", "high", "n"]
    names += ["median", "beats", "against", "ahead"]
    place = data["ranked"].index("lrp")
    for metric, lines in zip(found.standings.metrics, board["metrics"], strict=True):
        wanted = [float(columns[f"{name}:{metric}"][place]) for name in names]
        assert lines[place] == pytest.approx(wanted, rel=1e-5)
    control = board["metrics"][0][data["ranked"].index("sobel")]
    assert control[1:3] == [None, None]
    assert control[-3:] == [0, 0, None]


def test_without_a_rank_there_is_no_board(few, tmp_path):
    scores = make_scores(10, FEW_CELLS).assign(correct=False)
    found = write(tmp_path, scores)
    assert found.cells == {}
    assert found.rows() == []
    assert board_values(found) == {"own": [0, 1], "ranking": 0, "ranked": [], "boards": {}}


def test_the_printed_leaderboard_has_every_method_in_its_place(shared_findings):
    run, summary, pairs = shared_findings
    board = leaderboard(run, summary, pairs=pairs)
    table = printable(run, board)
    assert len(table) == len(run.explainers)
    assert list(table.columns) == ["place", "method", "EMD_perf", "Precision", "beats controls in"]
    assert table["EMD_perf"].astype(float).is_monotonic_decreasing
    for text, row in zip(table.to_dict("records"), board.to_dict("records"), strict=True):
        first, last = row["place"], row["last_place"]
        assert text["place"] == ("" if pd.isna(first) else str(first) if first == last else f"{first}–{last}")
        assert text["EMD_perf"] == f"{row['mean:emd_perf']:.3f}"
        assert text["Precision"] == f"{row['mean:topk_precision']:.3f}"
    assert table["place"].str.contains("–").any()
    first = board.iloc[0]
    assert table.iloc[0]["method"] == run.explainers[first["explainer"]].label
    beats = [f"{first[f'beats:{name}']}/{first[f'against:{name}']}" for name in run.metrics]
    assert table.iloc[0]["beats controls in"] == " · ".join(beats)
    control = table[table["method"] == "Sobel (control)"].iloc[0]
    assert (control["place"], control["beats controls in"]) == ("", "")
    assert table["method"].str.contains(r"Guided GradCAM \(8 of 18 cells\)").any()


def with_p_controls(found, values):
    """Return the standings with these p-values against the controls, ``[C]``, for every method and metric."""
    p = np.broadcast_to(np.array(values)[:, None, None], found.numbers["p_controls"].shape)
    return dataclasses.replace(found, numbers=found.numbers | {"p_controls": p})


def test_better_in_one_cell_is_corrected_for_the_number_of_cells(few):
    found, cells = few[1].standings, range(4)
    nowhere, barely, clearly = (
        with_p_controls(found, [p, 1.0, 1.0, 1.0]).compare_with_controls(0, cells) for p in (1.0, 0.03, 0.01)
    )
    assert not nowhere.in_a_cell.any()
    assert not barely.in_a_cell.any()
    assert clearly.in_a_cell[clearly.tested].all()


def test_a_method_must_be_better_than_every_control(few):
    found, cells = few[1].standings, range(4)
    m = int(np.flatnonzero(found.compare_with_controls(0, cells).overall)[0])
    tests = found.tests[found.metrics[0]]
    untested = np.array([set(pair) == {found.explainers[m], "uniform"} for pair in tests.pairs])
    fewer = dataclasses.replace(tests, deviation=np.where(untested, np.nan, tests.deviation))
    changed = dataclasses.replace(found, tests=found.tests | {found.metrics[0]: fewer})
    assert not changed.compare_with_controls(0, cells).overall[m]


@pytest.mark.parametrize("metric", [0, 1])
def test_outcomes_against_the_controls_follow_from_the_comparisons_over_all_cells(few, metric):
    run, standings = few[0], few[1].standings
    name = standings.metrics[metric]
    table = overall_comparisons({"": few[1]}).query("metric == @name")
    control = {one for one, part in run.explainers.items() if part.control}
    sign = 1 if run.metrics[name].higher_is_better else -1
    better, worse = Counter(), set()
    for other in control:
        rows = table[((table["first"] == other) ^ (table["second"] == other))]
        rows = rows[~(rows["first"].isin(control) & rows["second"].isin(control))]
        for row, p in zip(rows.itertuples(), holm(rows["p"].tolist()), strict=True):
            method, lead = (row.second, -row.difference) if row.first == other else (row.first, row.difference)
            better[method] += p < 0.05 and sign * lead > 0
            worse |= {method} if p < 0.05 and sign * lead < 0 else set()
    outcomes = standings.compare_with_controls(metric, range(len(standings.cells)))
    whole = ~np.isnan(standings.numbers["rank"][:, metric]).any(axis=0)
    named = np.array(standings.explainers)
    assert set(named[outcomes.overall & whole]) == {one for one in named[whole] if better[one] == len(control)}
    assert set(named[outcomes.worse & whole]) == worse & set(named[whole])
    assert better
    assert worse


NAMES = list("abcdefgh")
SHAPE = (3, 2, 12)  # data sets, trainings in each, samples
DRAWN = SamplingDesign.of(
    72, **dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(SHAPE)), strict=True))
)


def comparisons(cells):
    """What a run has of these cells: ``{(subset, variant, model): [72, M] scores}``."""
    tables = [
        pair_tests(NAMES[: values.shape[1]], values, DRAWN).assign(
            n_groups=36, subset=cell[0], variant=cell[1], model=cell[2], metric="iou"
        )
        for cell, values in cells.items()
    ]
    return pd.concat(tables, ignore_index=True)


def suite(rng, shared=1.0, methods=8, places=4, models=2, favors=0.0):
    """Scores about 0, or about ``favors`` for the first method; the networks of a place share so much of its draws."""
    found = {}
    for place in range(places):
        common = rng.normal(size=(3, 1, 1, methods))
        for model in range(models):
            own = rng.normal(size=(3, 1, 1, methods))
            draws = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
            values = draws + 0.5 * rng.normal(size=(3, 2, 1, methods)) + rng.normal(size=(*SHAPE, methods))
            values[..., 0] += favors
            found[f"s{place}", "white", f"m{model}"] = values.reshape(72, methods)
    return found


def literal(pairs, first, second):
    """Return the mean difference of a pair, and the variance and degrees of freedom of each subset and variant."""
    mine = pairs[(pairs["first"] == first) & (pairs["second"] == second)]
    variances, freedoms = [], []
    for _, place in mine.groupby(["subset", "variant"]):
        own = [(row.high - row.low) / 2 / t.ppf(0.975, row.df) / len(mine) for row in place.itertuples()]
        variances.append(sum(own) ** 2)
        freedoms.append(place["df"].min())
    return mine["difference"].mean(), np.array(variances), np.array(freedoms)


def satterthwaite(variances, freedoms):
    return variances.sum() ** 2 / (variances**2 / freedoms).sum()


def test_every_pair_is_the_literal_one():
    pairs = comparisons(suite(np.random.default_rng(0), favors=3.0))
    found = CellTests.read(pairs.sample(frac=1, random_state=0), "iou").over().set_index(["first", "second"])
    assert sorted(found.index) == list(itertools.combinations(NAMES, 2))
    parts = {pair: literal(pairs, *pair) for pair in found.index}
    pooled = satterthwaite(np.mean([variances for _, variances, _ in parts.values()], axis=0), np.full(4, 2.0))
    p = []
    for pair, (mean, variances, freedoms) in parts.items():
        row, freedom = found.loc[pair], min(satterthwaite(variances, freedoms), pooled)
        assert (row["difference"], row["df"]) == pytest.approx((mean, freedom))
        p.append(2 * t.sf(abs(mean) / np.sqrt(variances.sum()), freedom))
        assert row["p"] == pytest.approx(p[-1])
    assert found["p_holm"].tolist() == pytest.approx(holm(p))
    assert found["p"].min() < 0.05 < found["p"].max()


def test_a_cell_that_dominates_has_the_degrees_of_freedom_of_its_data_sets():
    """Its variance is small by chance in some pairs, whose degrees of freedom would be those of all cells."""
    rng = np.random.default_rng(5)
    cells = suite(rng, models=1)
    cells["s0", "white", "m0"] = 30 * cells["s0", "white", "m0"]
    found = CellTests.read(comparisons(cells), "iou").over()
    assert found["df"].max() == pytest.approx(2, abs=0.1)


def test_a_pair_that_a_cell_does_not_have_is_left_out_and_so_is_one_without_a_spread():
    pairs = comparisons(suite(np.random.default_rng(1)))
    last = (pairs["subset"] == "s3") & (pairs["model"] == "m1")
    fewer = pairs[~(last & (pairs["second"] == "h"))].copy()
    fewer.loc[(fewer["first"] == "a") & (fewer["second"] == "b") & last, ["low", "high", "df"]] = np.nan
    found = CellTests.read(fewer, "iou").over()
    kept = set(itertools.combinations(NAMES[:-1], 2)) - {("a", "b")}
    assert set(zip(found["first"], found["second"], strict=True)) == kept
    assert found.notna().all(axis=None)
    assert CellTests.read(pairs, "another").over().empty


def test_differences_that_do_not_vary_have_the_p_value_of_the_sign_test():
    pairs = comparisons(suite(np.random.default_rng(2), methods=3))
    pairs["low"] = pairs["high"] = pairs["difference"] = np.where(pairs["first"] == "a", 0.1, 0.0)
    found = CellTests.read(pairs, "iou").over().set_index(["first", "second"])["p_holm"]
    sign = 2.0 ** (1 - 36 * 8)  # 36 groups of samples in each of eight cells
    assert found.to_dict() == pytest.approx({("a", "b"): 3 * sign, ("a", "c"): 3 * sign, ("b", "c"): 1}, abs=0)
    few = CellTests.read(pairs[pairs["subset"] == "s0"].assign(n_groups=2), "iou").over().set_index(["first", "second"])
    assert few.loc[("a", "b"), "p"] == 2.0**-3  # four samples in two cells are not significant


def alarms(shared, runs=50, change=lambda pairs: pairs):
    """In how many suites of methods that do not differ any two are told apart."""
    rng = np.random.default_rng(3)
    drawn = (change(comparisons(suite(rng, shared, methods=6, places=3))) for _ in range(runs))
    return np.mean([(CellTests.read(pairs, "iou").over()["p_holm"] < 0.05).any() for pairs in drawn])


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_of_methods_that_do_not_differ_hardly_any_are_told_apart(shared):
    assert alarms(shared) <= 0.1


def test_that_test_can_fail():
    # As if each network had images of its own.
    assert alarms(1.0, change=lambda pairs: pairs.assign(subset=pairs["subset"] + pairs["model"])) > 0.15


def test_a_difference_of_all_cells_is_found_that_no_cell_shows():
    rng, found, alone = np.random.default_rng(4), [], []
    for _ in range(5):
        pairs = comparisons(suite(rng, shared=0.3, favors=3.0))
        tests = CellTests.read(pairs, "iou").over()
        found += (tests["p_holm"] < 0.05)[tests["first"] == "a"].tolist()
        alone += (pairs["p_holm"] < 0.05)[pairs["first"] == "a"].tolist()
    assert np.mean(found) > 2 * np.mean(alone)
