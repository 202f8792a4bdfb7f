import json

import numpy as np
import pandas as pd
import pytest
from report.conftest import FEW_CELLS, make_scores, write_run

from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import boards, leaderboard, printable
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.page.content import board_rows, board_values
from xaibench.report.read.results import read_run
from xaibench.runfolder.tables import CELL

EVERYTHING = (None, None, None)


def made(run):
    summary = infer(run, summarize(run))[0]
    (found,) = boards(run, summary).values()  # a folder from before the kinds of truth has one board
    return found, summary


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    run = read_run(write_run(tmp_path_factory.mktemp("boards") / "run", samples=30, cells=FEW_CELLS))
    return run, *made(run)


def test_there_is_a_board_for_each_choice_that_a_cell_fits(few):
    run, found, _ = few
    names = (*run.subsets, *run.variants, *run.models)
    assert names == ("lin", "rigid", "white", "corr", "llr", "mlp", "cnn")
    fitting = set()
    for subset, variant, model in FEW_CELLS:
        place = run.subsets.index(subset), run.variants.index(variant), list(run.models).index(model)
        fitting |= {tuple(place[i] if mask >> i & 1 else None for i in range(3)) for mask in range(8)}
    assert set(found.cells) == fitting
    assert len(found.cells[EVERYTHING]) == 4
    assert len(found.cells[0, 0, None]) == 2


@pytest.mark.parametrize("choice", [EVERYTHING, (0, None, None), (None, 1, None), (0, 0, 1)])
@pytest.mark.parametrize("metric", [None, 1])
def test_a_board_is_the_leaderboard_of_these_rows_alone(few, choice, metric):
    run, found, summary = few
    orders = (run.subsets, run.variants, list(run.models))
    rows = summary
    for key, order, place in zip(CELL, orders, choice, strict=True):
        rows = rows if place is None else rows[rows[key] == order[place]]
    if metric is not None:
        rows = rows[rows["metric"] == list(run.metrics)[metric]]
    wanted = leaderboard(run, rows).set_index("explainer").sort_index()
    board = pd.DataFrame(found.columns(choice, metric)).set_index("explainer").loc[wanted.index]
    of = [*run.metrics] if metric is None else [list(run.metrics)[metric]]
    names = ["place", "cells", "of", "mean_rank", "sample_rank"]
    names += [f"{name}:{one}" for name in ("median", "mean", "best", "above", "beats", "against") for one in of]
    for name in names:
        assert np.allclose(
            board[name].astype(float), wanted[name].astype("Float64").to_numpy(float, na_value=np.nan), equal_nan=True
        ), name


def test_of_one_cell_the_interval_is_that_of_the_cell(few):
    _run, found, summary = few
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
    _, found, summary = few
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
    _run, found, _ = few
    data = json.loads(json.dumps(board_values(found), allow_nan=False))
    assert data["ranked"] == list(found.standings.explainers)
    assert set(data["boards"]) >= {"..", "0..", ".1.2", "0.0.1"}
    board = data["boards"]["0.0.1"]
    assert (board["cells"], len(board["over"]), len(board["metrics"])) == (1, 3, 2)
    assert board["over"][0][data["ranked"].index("guided_gradcam")] is None
    columns = found.columns((0, 0, 1))
    place = data["ranked"].index("lrp")
    rank, mean, low, high = board["metrics"][0][place][:4]
    names = ("mean_rank", "mean", "low", "high")
    assert [rank, mean, low, high] == pytest.approx([columns[f"{name}:emd_perf"][place] for name in names], rel=1e-5)
    assert board["metrics"][0][data["ranked"].index("sobel")][-3:] == [0, 0, 0]


def test_the_first_rows_are_those_of_all_cells_best_first(few):
    run, found, summary = few
    rows = board_rows(found)
    assert [row["explainer"] for row in rows] == leaderboard(run, summary)["explainer"].tolist()
    placed = [row for row in rows if row["place"] is not None]
    assert len(placed) == 12  # neither controls nor the one that not every cell has
    assert all(row["place"] == 1 + sum(one["mean_rank"] < row["mean_rank"] for one in placed) for row in placed)


def test_without_a_rank_there_is_no_board(few, tmp_path):
    scores = make_scores(10, FEW_CELLS).assign(correct=False)
    found = write(tmp_path, scores)
    assert found.cells == {}
    assert board_rows(found) == []
    assert board_values(found) == {"own": [0, 1], "ranked": [], "boards": {}}


def test_the_printed_leaderboard_has_every_method_in_its_place(shared_findings):
    run, summary, _ = shared_findings
    board = leaderboard(run, summary)
    table = printable(run, board)
    assert len(table) == len(run.explainers)
    assert table["mean rank"].astype(float).is_monotonic_increasing
    assert list(table.columns)[3:] == ["EMD_perf", "Precision", "beats controls in"]
    first = board.iloc[0]
    assert table.iloc[0]["method"] == run.explainers[first["explainer"]].label
    beats = [f"{first[f'beats:{name}']}/{first[f'against:{name}']}" for name in run.metrics]
    assert table.iloc[0]["beats controls in"] == " · ".join(beats)
    control = table[table["method"] == "Sobel (control)"].iloc[0]
    assert (control["place"], control["beats controls in"]) == ("", "")
    assert table["method"].str.contains(r"Guided GradCAM \(8 of 18 cells\)").any()


def test_of_many_metrics_the_printed_leaderboard_has_the_ranks(annotated_findings):
    run, summary, _ = annotated_findings
    board = leaderboard(run, summary)
    table = printable(run, board)
    assert list(table.columns) == ["place", "method", "mean rank", *(part.label for part in run.metrics.values())]
    assert table.iloc[0]["IoU"] == f"{board.iloc[0]['mean_rank:iou']:.1f}"
