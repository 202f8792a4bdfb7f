from dataclasses import replace

import numpy as np
import pytest
from report.annotated import make_sheet
from report.pictures import change_samples

from xaibench.report.figures.samples import (
    color_tile,
    map_array,
    map_figure,
    map_rows,
    overlay,
    overlay_figure,
    sheets,
    shrink,
    tile_uri,
)
from xaibench.scores.results import read_run

CYAN = [0, 229, 255]
(PLAIN, _) = make_sheet("resnet18", images=1, side=8)


def row(array=None, mask=None, side=8):
    """One gray photograph with one map."""
    zeros = np.zeros((side, side))
    return replace(
        PLAIN,
        images=np.full((1, side, side, 3), 200, np.uint8),
        masks=np.asarray(zeros if mask is None else mask, np.uint8)[None],
        maps=np.asarray(zeros if array is None else array, np.float16)[None, None],
        explainers=("rise",),
    )


def test_maps_have_a_row_for_each_cell_and_global_ones_leave_rigid_out(shared_run):
    run = read_run(shared_run)
    assert len(map_rows(run, "example")) == 18
    assert len(map_rows(run, "global")) == 14
    assert all(row[0] != "rigid" for row in map_rows(run, "global"))
    figure = map_figure(run, "example", map_rows(run, "example"))
    (picture,) = figure.axes[0].get_images()
    tiles = np.asarray(picture.get_array()).reshape(18, 75, 2 + 17, 75, 4).transpose(0, 2, 1, 3, 4)
    # Guided GradCAM has maps of the eight CNN cells alone.
    assert (tiles[..., 3] > 0).any(axis=(2, 3)).sum() == 18 * (2 + 17) - 10
    row, column = map_rows(run, "example").index(("lin", "corr", "cnn")), 2 + list(run.explainers).index("lime")
    expected = color_tile(map_array(run.pictures["lin", "corr", "cnn"], "example", "lime"), "map")
    centers = 3 + (np.arange(8) * 69 + 34) // 8
    assert np.array_equal(tiles[row, column][np.ix_(centers, centers)][..., :3], expected)
    assert map_figure(run, "example", []) is None


def test_colors_of_a_map_are_those_of_its_magnitude():
    array = np.array([[0.0, -2.0], [1.0, 0.5]])
    assert (color_tile(array, "map") == color_tile(-array, "map")).all()
    assert (color_tile(array, "map") == color_tile(3 * array, "map")).all()
    assert color_tile(np.array([[0.0, -1.0, 1.0]]), "image").tolist()[0] == [[128] * 3, [0] * 3, [255] * 3]
    assert (color_tile(np.full((2, 2), np.nan), "map") == color_tile(np.zeros((2, 2)), "map")).all()


def test_large_maps_are_reduced_by_block_means():
    array = np.random.default_rng(0).random((64, 64))
    small = shrink(array)
    assert small.shape == (32, 32)
    assert small[3, 5] == pytest.approx(array[6:8, 10:12].mean())
    assert shrink(np.ones((70, 33))).shape == (24, 11)
    assert tile_uri(color_tile(small, "map")).startswith("data:image/webp;base64,")


def test_a_map_of_zeros_halves_the_image_and_its_maximum_is_the_brightest():
    black = overlay(row(), 0, 0, 8)
    assert np.abs(black.astype(int) - [100, 100, 101]).max() <= 1  # inferno's zero is nearly black
    peak = np.zeros((8, 8))
    peak[2, 5] = 1.0
    bright = overlay(row(peak), 0, 0, 8)
    assert bright[2, 5].sum() == bright.sum(axis=2).max() > black[2, 5].sum()
    assert np.array_equal(np.delete(bright.reshape(-1, 3), 21, axis=0), np.delete(black.reshape(-1, 3), 21, axis=0))


def test_the_rim_of_the_mask_is_drawn_and_nothing_else():
    mask = np.zeros((8, 8), bool)
    mask[2:6, 2:6] = True
    drawn = overlay(row(mask=mask), 0, None, 8)
    outlined = (drawn == CYAN).all(axis=2)
    expected = mask.copy()
    expected[3:5, 3:5] = False
    assert np.array_equal(outlined, expected)
    assert (drawn[~outlined] == 200).all()
    assert (overlay(row(mask=np.ones((8, 8))), 0, None, 8) == 200).all()  # the edge of the image is no rim


def test_the_sheet_has_a_tile_for_every_map(annotated_run, fresh_annotated_run):
    axes = overlay_figure(read_run(annotated_run), sheets(read_run(annotated_run))["pet", "-", "resnet18"]).axes[0]
    assert len(axes.images) == 3 * 14
    texts = [text.get_text() for text in axes.texts]
    assert texts[:3] == ["Image", "CAM", "GradCAM"]
    assert texts[-1] == "pet_2.jpg: dog"
    change_samples(fresh_annotated_run, lambda cell: {"explainers": cell.explainers[1:], "maps": cell.maps[:, 1:]})
    run = read_run(fresh_annotated_run)
    axes = overlay_figure(run, sheets(run)["pet", "-", "resnet18"]).axes[0]
    assert len(axes.images) == 3 * 13
    assert axes.texts[1].get_text() == "GradCAM"
