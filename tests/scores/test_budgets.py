"""The figure of scores at several budgets: grouping of entries into series, and contents of the panels."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import trapezoid

from xaibench.plots.run_figures import POINTS, band_figure, budget_figure, curve_sets
from xaibench.registry.parameters import Frozen
from xaibench.runfolder.schema import CELL
from xaibench.scores.budgets import BudgetScore, budget_lines, budget_scores
from xaibench.scores.results import RunResults, read_run


@pytest.fixture
def run(annotated_run):
    return read_run(annotated_run)


def panels(figure):
    return {axes.get_title(loc="left").rpartition("  ")[0]: axes for axes in figure.axes if axes.get_title(loc="left")}


def test_curves_come_by_set_and_in_the_order_of_the_metrics(run):
    assert list(curve_sets(run)) == [
        (dataset, "resnet18", metric) for dataset in ("pet", "scene") for metric in ("insertion", "deletion")
    ]


def test_a_panel_shows_mean_band_area_and_the_best_control(run):
    part = curve_sets(run)["pet", "resnet18", "insertion"]
    found = panels(band_figure(run, part, "insertion"))
    assert list(found) == [entry.label for entry in run.explainers.values()]
    mine = part[part["explainer"] == "rise"]
    axes = found["RISE"]
    area = trapezoid(mine["mean"], mine["fraction"])
    assert axes.get_title(loc="left") == f"RISE  {area:.3f}"
    mean, dashed = axes.lines
    assert len(mean.get_xdata()) == POINTS < len(mine)
    assert (mean.get_xdata()[[0, -1]] == [0, 1]).all()
    sobel = part[part["explainer"] == "sobel"].set_index("fraction")["mean"]  # the best of the controls
    assert np.allclose(dashed.get_ydata(), sobel.loc[dashed.get_xdata()])
    low, high = axes.get_ylim()
    assert low <= part["low"].min()
    assert high >= part["high"].max()
    assert len(found["Sobel"].lines) == 1


def test_an_explainer_that_only_the_curves_know_and_an_undefined_curve(run):
    part = curve_sets(run)["pet", "resnet18", "deletion"].replace({"rise": "$mine$"})
    part.loc[part["explainer"] == "cam", ["mean", "low", "high"]] = np.nan
    found = panels(band_figure(run, part, "deletion"))
    assert list(found)[-1] == "$mine$"
    assert found["CAM"].get_title(loc="left") == "CAM  –"


#: Entries of the shared run in the roles of methods at budgets: name, method, budget, another parameter.
ROLES = (
    ("pfi", "RISE", 100, 7),
    ("integrated_gradients", "RISE", 1000, 7),
    ("saliency", "LIME", 50, 1),
    ("guided_backprop", "LIME", 100, 1),
    ("deconvolution", "LIME", 1000, 1),
    ("deeplift", "Once", 100, 1),
)


def as_budgets(run, roles=ROLES):
    parts = dict(run.explainers)
    for name, method, budget, other in roles:
        own = Frozen({"s": other, "budget": budget})
        parts[name] = dataclasses.replace(parts[name], method=method, label=f"{method}-{budget}", parameters=own)
    parts["lrp"] = dataclasses.replace(parts["lrp"], passes=2)
    return dataclasses.replace(run, explainers=parts)


@pytest.fixture
def found(shared_findings):
    run, summary, _ = shared_findings
    return as_budgets(run), summary


def test_entries_of_one_method_are_a_line(found):
    lines = {"RISE": {100: "pfi", 1000: "integrated_gradients"}}
    lines["LIME"] = {50: "saliency", 100: "guided_backprop", 1000: "deconvolution"}
    lines["Once"] = {100: "deeplift"}  # a point
    assert budget_lines(found[0]) == lines


def test_entries_that_differ_in_another_parameter_are_two_lines(found):
    run = as_budgets(found[0], [("lrp", "RISE", 100, 4), ("deep_shap", "RISE", 1000, 4)])
    assert set(budget_lines(run)) == {"LIME", "pfi", "lrp", "Once"}


def test_scores_are_means_over_the_cells_with_their_intervals(found):
    run, summary = found
    scores = budget_scores(run, summary)["emd_perf"]
    assert (scores.budgets, scores.cells) == ((50, 100, 1000), summary.groupby(list(CELL), observed=True).ngroups - 10)
    rows = summary[(summary["metric"] == "emd_perf") & (summary["model"] == "cnn")]
    mine = rows[rows["explainer"] == "pfi"]
    score = scores.methods["RISE"][100]
    assert score.mean == pytest.approx(mine["mean"].mean())
    assert score.low == pytest.approx(mine["mean"].mean() - np.sqrt(((mine["mean"] - mine["low"]) ** 2).sum()) / 8)
    assert score.low < score.mean < score.high
    assert scores.fixed["LRP"][0] == 2


def test_a_control_has_no_score_where_it_is_the_answer(found, monkeypatch):
    run, summary = found
    monkeypatch.setattr(RunResults, "is_answer", lambda self, cell, name: (cell[0], name) == ("rigid", "laplace"))
    scores = budget_scores(run, summary)["emd_perf"]
    rows = summary[(summary["metric"] == "emd_perf") & (summary["model"] == "cnn")]
    controls = [name for name, part in run.explainers.items() if part.control]
    rows = rows[rows["explainer"].isin(controls) & ~((rows["explainer"] == "laplace") & (rows["subset"] == "rigid"))]
    means = rows.groupby("explainer", observed=True)["mean"].agg(["mean", "size"])
    assert set(means["size"]) == {6, 8}
    for name, (mean, count) in means.iterrows():
        score = scores.controls[run.explainers[name].label]
        assert (score.mean, score.cells) == (pytest.approx(mean), count)
    assert len(scores.controls) == len(controls)
    assert scores.best_control == pytest.approx(rows.groupby(list(CELL), observed=True)["mean"].max().mean())


def test_places_are_among_those_of_the_budget(found):
    run, summary = found
    scores = budget_scores(run, summary)["emd_perf"]
    beside = [score.mean for _, score in scores.fixed.values()]
    for budget in scores.budgets:
        there = [line[budget] for line in scores.methods.values() if budget in line]
        for score in there:
            others = [one.mean for one in there] + beside
            assert (score.rank, score.of) == (1 + sum(mean > score.mean for mean in others), len(others))
    assert all(score.rank >= 1 for _, score in scores.fixed.values())


def test_a_score_without_an_interval_is_drawn(found):
    run, summary = found
    scores = budget_scores(run, summary)["emd_perf"]
    bare = {
        label: {b: BudgetScore(s.mean, np.nan, np.nan, s.cells) for b, s in line.items()}
        for label, line in scores.methods.items()
    }
    assert budget_figure(run, dataclasses.replace(scores, methods=bare)).axes
