"""The samples to look at: which they are, and that their pictures are those of the store."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from xaibench.runner import load_suite
from xaibench.runner.plan.planning import make_plan
from xaibench.runner.stages.sample_data import read_test_split
from xaibench.runner.stages.sample_gallery import _levels, _picture, choose
from xaibench.runner.store.result_store import Store


def table(values, higher=True):
    """``values`` by ``(explainer, metric)`` as rows."""
    parts = [
        pd.DataFrame({"sample": range(len(row)), "value": row, "explainer": explainer, "metric": metric})
        for (explainer, metric), row in values.items()
    ]
    return pd.concat(parts, ignore_index=True).assign(higher_is_better=higher)


def test_methods_take_turns_and_each_fourth_is_the_next_sample():
    rows = table(
        {
            ("lime", "iou"): [5, 4, 3, 2, 1, 0, 6, 7],
            ("lime", "hit"): [9, 9, 9, 9, 9, 9, 9, 1],
            ("rise", "iou"): [9, 9, 9, 0, 9, 9, 9, 1],
            ("sobel", "iou"): [0, 9, 9, 9, 9, 9, 9, 9],
        }
    )
    # The worst by IoU of LIME and RISE, by hit of LIME; sample 0; their second worst: 4, 7 (there), 0 (there), ...
    assert choose(rows, ["sobel"]) == [5, 3, 7, 0, 4, 1, 2, 6]
    assert choose(rows, ["sobel"], count=3) == [5, 3, 7]
    assert choose(rows)[:4] == [5, 3, 0, 1]


def test_where_lower_is_better_the_highest_is_a_failure_and_undefined_is_none():
    rows = table({("lime", "drop"): [1.0, np.nan, 3.0, 2.0]}, higher=False)
    assert choose(rows, count=2) == [2, 3]
    assert sorted(choose(rows)) == [0, 1, 2, 3]
    assert choose(rows.iloc[:0]) == []
    assert choose(table({("lime", "drop"): [np.nan, np.nan]})) == [0, 1]


def read(folder):
    with safe_open(folder / "gallery.safetensors", "np") as file:
        cells = json.loads(file.metadata()["cells"])
        return cells, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def test_the_pictures_are_those_of_the_store(tiny_suite, tiny_run):
    cells, arrays = read(tiny_run)
    plan, store = make_plan(load_suite(tiny_suite)[0]), Store(tiny_run / "store")
    scores = pd.read_parquet(tiny_run / "scores.parquet")
    assert [cell["model"] for cell in cells] == [cell.model for cell in plan.cells]
    for number, (cell, planned) in enumerate(zip(cells, plan.cells, strict=True)):
        mine = scores[(scores["scenario"] == cell["scenario"]) & (scores["model"] == cell["model"]) & scores["correct"]]
        assert set(cell["samples"]) <= set(mine["sample"])
        assert set(mine["seed"]) == {cell["seed"]}
        assert cell["explainers"] == list(dict.fromkeys(mine["explainer"]))
        maps, count = arrays[f"{number}/maps"], len(cell["samples"])
        assert maps.shape == (count, len(cell["explainers"]), 8, 8)
        split = read_test_split(store, planned.data)
        for place, explain in enumerate(dict.fromkeys(score.explain for _, score in planned.scores)):
            raw = store.load_tensors("explain", explain.key)[0]["maps"][cell["samples"]].abs().numpy()
            low, high = raw.min((1, 2), keepdims=True), raw.max((1, 2), keepdims=True)
            span = np.where(high > low, high - low, 1)
            assert np.abs(maps[:, place] - 255 * (raw - low) / span).max() <= 0.51
        for i, sample in enumerate(cell["samples"]):
            image, mask, target = split[sample]
            assert np.array_equal(arrays[f"{number}/masks"][i], mask.numpy())
            grey = image.numpy()[0] / np.abs(image.numpy()).max()
            assert np.abs(arrays[f"{number}/images"][i, ..., 2] - 255 * (0.5 + 0.5 * grey)).max() <= 0.51
            assert cell["labels"][i] == f"Sample {sample}: {'TL'[int(target)]}"
    assert not any(cell["photographs"] for cell in cells)


def test_photographs_keep_their_colours_and_are_reduced_by_areas():
    image = np.zeros((3, 224, 112), np.float32)
    image[0], image[1, ::2] = 1.0, 1.0
    shown = _picture(image, photograph=True)
    assert shown.shape == (112, 56, 3)
    assert np.unique(shown.reshape(-1, 3), axis=0).tolist() == [[255, 128, 0]]
    assert _picture(image, photograph=False).std(axis=2).max() == 0


@pytest.mark.parametrize(("side", "brightest"), [(8, 1), (64, 21)])
def test_of_large_maps_a_few_pixels_share_the_brightest_level(side, brightest):
    ramp = np.arange(side**2, dtype=np.float32).reshape(side, side)
    levels = _levels(ramp)
    assert (levels.min(), levels.max()) == (0, 255)
    assert (levels == 255).sum() >= brightest
    assert (levels == 255).mean() < 0.02
    assert _levels(ramp * 0 + 3).max() == 0
    peak = np.zeros((64, 64), np.float32)
    peak[3, 4] = 2.0  # the quantile of such a map is its smallest value
    assert (_levels(peak) == 255).sum() == 1


def test_what_is_not_finite_counts_as_zero():
    levels = _levels(np.array([[np.nan, np.inf], [1.0, 2.0]], np.float32))
    assert levels.tolist() == [[0, 0], [128, 255]]
