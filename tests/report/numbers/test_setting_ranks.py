import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load_benchmark
from report.annotated import CONTROLS
from scipy.stats import kendalltau, rankdata

from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import best_by_cell, boards, leaderboard, printable
from xaibench.report.numbers.rankings import rankings
from xaibench.report.numbers.summary import summarize
from xaibench.report.page.headlines import verdict
from xaibench.report.page.write import write_report
from xaibench.report.results import read_run
from xaibench.runfolder.robust_rankings import write_robust
from xaibench.runfolder.tables import CELL

rank_robustness = load_benchmark("robust_rankings").rank_robustness

SETTINGS = {"emd_perf": {"power": 1}, "topk_precision": {"power": 2}}


def literal_means(run, metric, methods):
    """Return the mean over the cells of the mean scores of the correct samples."""
    cells = []
    for _, cell in run.scores[run.scores["correct"]].groupby(list(CELL), observed=True):
        mine = cell[cell["metric"] == metric]
        cells.append([float(np.nanmean(mine["value"][mine["explainer"] == name])) for name in methods])
    return np.mean(cells, axis=0)


def test_methods_are_ranked_by_their_means_and_rankings_compared_by_tau(shared_run):
    run = read_run(shared_run)
    found = rank_robustness(run, "emd_perf", SETTINGS)
    assert not {"uniform", "sobel"} & set(found.methods)
    assert found.cells == len(run.accuracy)
    expected = [literal_means(run, name, found.methods) for name in SETTINGS]
    np.testing.assert_allclose(found.means, expected, atol=1e-12)
    np.testing.assert_array_equal(found.ranks, [rankdata(-means) for means in expected])
    assert found.tau[0, 1] == pytest.approx(kendalltau(*expected).statistic)
    assert found.low[0, 1] <= found.tau[0, 1] <= found.high[0, 1]
    assert found.low[0, 1] < found.high[0, 1]
    assert found.tau[0, 0] == found.low[0, 0] == 1
    assert set(found.left_out) == {"guided_gradcam"}  # which has no map of a network without convolutions


def test_a_setting_of_the_same_scores_agrees_wholly(shared_run):
    run = read_run(shared_run)
    twice = run.scores[run.scores["metric"] == "emd_perf"]
    scores = run.scores.assign(metric=run.scores["metric"])
    other = scores["metric"] == "topk_precision"
    scores.loc[other, "value"] = twice["value"].to_numpy()
    found = rank_robustness(type(run)(**{**vars(run), "scores": scores}), "emd_perf", SETTINGS)
    assert found.tau.tolist() == [[1, 1], [1, 1]]
    assert found.low[0, 1] == 1
    assert found.has_single_order


def test_a_metric_without_one_order_ranks_nobody_and_the_page_says_so(small_run):
    scores = pd.read_parquet(small_run / "scores.parquet")
    # Reverse the methods' order by one of the metrics, above the controls.
    reverse = (scores["metric"] == "topk_precision") & ~scores["explainer"].isin(list(CONTROLS))
    scores.assign(value=scores["value"].mask(reverse, 1.5 - scores["value"])).to_parquet(small_run / "scores.parquet")
    run = read_run(small_run)
    before = leaderboard(run, summarize(run))
    found = rank_robustness(run, "emd_perf", SETTINGS)
    found.tau[0, 1] = found.tau[1, 0] = 0.4
    write_robust(small_run, found)
    run = read_run(small_run)
    summary, pairs = infer(run, summarize(run))
    board, found = leaderboard(run, summary, pairs=pairs), boards(run, summary, pairs)
    assert set(board["explainer"]) == set(before["explainer"])
    for column in ("mean_rank", "first", "last", "best"):
        assert board[f"{column}:emd_perf"].isna().all()
        assert board[f"{column}:topk_precision"].notna().any()
    assert board["mean:topk_precision"].is_monotonic_decreasing  # ordered by the other metric
    assert not board["mean:emd_perf"].is_monotonic_decreasing
    assert board["place"].notna().any()
    assert board["place"].astype(float).equals(board["first:topk_precision"].rename("place"))
    assert list(rankings(found)) == ["topk_precision"]
    assert best_by_cell(run, summary, {"": board})["EMD_perf"].iloc[-1] == "no single order"
    sentences = verdict(run, found)
    assert [one.partition(",")[0] for one in sentences] == ["By EMD_perf", "By Precision"]
    assert sentences[0].startswith("By EMD_perf, no method ranks first: its ranking depends on its parameters")
    page = write_report(small_run).read_text()
    assert "no method ranks first" in page
    assert "has no single ranking, and does not rank methods here" in page
    assert "nan" not in printable(run, board).to_string()


def test_where_no_metric_has_one_order_nobody_has_a_place(small_run):
    for name in SETTINGS:
        found = rank_robustness(read_run(small_run), name, SETTINGS)
        found.tau[0, 1] = found.tau[1, 0] = 0.4
        write_robust(small_run, found)
    run = read_run(small_run)
    summary, pairs = infer(run, summarize(run))
    board = leaderboard(run, summary, pairs=pairs)
    assert len(board)
    assert board["place"].isna().all()
    found = boards(run, summary, pairs)
    assert rankings(found) == {}
    assert all("no method ranks first" in sentence for sentence in verdict(run, found))
    assert write_report(small_run).is_file()


def test_a_run_without_a_score_under_every_setting_is_refused(shared_run):
    with pytest.raises(ValueError, match="got 0 methods with a score in each of 0 cells"):
        rank_robustness(read_run(shared_run), "emd_perf", {**SETTINGS, "not_scored": {"power": 3}})
