"""Example samples: their selection, and that their images and maps are those of the store."""

import numpy as np
import pandas as pd
import pytest

from xaibench.runfolder.sample_file import read_samples
from xaibench.runner import load_suite
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages.preview_samples import choose, magnitudes, mean_share, picture
from xaibench.runner.stages.samples import read_test_split
from xaibench.runner.store import Store


def table(values, higher=True):
    """Rows of scores from ``values`` by ``(explainer, metric)``."""
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


def test_the_pictures_are_those_of_the_store(tiny_suite, tiny_run):
    plan, store = make_plan(load_suite(tiny_suite)[0]), Store(tiny_run / "store")
    scores = pd.read_parquet(tiny_run / "scores.parquet")
    cells = read_samples(tiny_run)
    assert [cell.model for cell in cells] == [cell.model for cell in plan.cells]
    for cell, planned in zip(cells, plan.cells, strict=True):
        mine = scores[(scores["subset"] == cell.subset) & (scores["model"] == cell.model) & scores["scored"]]
        browsed = cell.samples[: cell.browsed]
        assert browsed == tuple(choose(mine, ["uniform", "input"]))
        assert set(mine["seed"]) == {cell.seed}
        assert cell.explainers == tuple(dict.fromkeys(mine["explainer"]))
        assert cell.samples[cell.example] == mine["sample"].min()
        assert cell.maps.shape == (len(cell.samples), len(cell.explainers), 8, 8)
        counting = sorted(mine["sample"].unique())
        split = read_test_split(store, planned.data)
        for place, explain in enumerate(dict.fromkeys(score.explain for _, score in planned.scores)):
            every = store.load_tensors("explain", explain.key)[0]["maps"].abs().double().numpy()
            raw, sums = every[list(cell.samples)], every.sum((1, 2), keepdims=True)
            largest = raw.max((1, 2), keepdims=True)
            assert np.abs(cell.maps[:, place] - raw / np.where(largest > 0, largest, 1)).max() < 6e-4
            shares = every / np.where(sums > 0, sums, 1)
            assert np.abs(cell.means[place] - shares[counting].mean(0)).max() < 1e-6
        for i, sample in enumerate(cell.samples):
            image, mask, target = split[sample]
            assert np.array_equal(cell.masks[i], mask.numpy())
            gray = image.numpy()[0] / np.abs(image.numpy()).max()
            assert np.abs(cell.images[i, ..., 2] - 255 * (0.5 + 0.5 * gray)).max() <= 0.51
            assert cell.labels[i] == f"Sample {sample}: {'TL'[int(target)]}"
    assert not any(cell.photographs or cell.sheet for cell in cells)


def test_photographs_keep_their_colors_and_are_reduced_by_areas():
    image = np.zeros((3, 300, 150), np.float32)
    image[0], image[1, ::2] = 1.0, 1.0
    shown = picture(image, photograph=True)
    assert shown.shape == (150, 75, 3)
    assert np.unique(shown.reshape(-1, 3), axis=0).tolist() == [[255, 128, 0]]
    assert picture(image, photograph=False).std(axis=2).max() == 0


def test_a_map_is_kept_as_shares_of_its_largest_magnitude():
    kept = magnitudes(np.array([[[-4.0, 1.0], [2.0, 0.0]], [[0, 0], [0, 0]]], np.float32))
    assert kept.tolist() == [[[1.0, 0.25], [0.5, 0.0]], [[0, 0], [0, 0]]]
    assert magnitudes(np.array([[[np.nan, np.inf], [1.0, 2.0]]], np.float32)).tolist() == [[[0, 0], [0.5, 1.0]]]
    huge = magnitudes(np.array([[[1e30, 1e29], [0, 1e24]]], np.float32))
    assert huge[0, 0].tolist() == [1.0, pytest.approx(0.1, rel=1e-3)]


def test_the_mean_is_over_shares_and_a_map_of_zeros_counts():
    maps = np.array([[[1.0, 3.0]], [[0.0, 0.0]]])
    assert mean_share(maps).tolist() == [[0.125, 0.375]]
