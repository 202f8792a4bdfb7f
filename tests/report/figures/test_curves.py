import numpy as np
import pytest

from xaibench.report.figures.curves import POINTS, band_figure, curve_sets
from xaibench.report.results import read_run


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
    area = np.trapezoid(mine["mean"], mine["fraction"])
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
