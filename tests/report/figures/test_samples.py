import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from report.annotated import make_sheet
from report.pictures import change_samples

from xaibench.report.figures.samples import (
    color_tile,
    map_array,
    map_figure,
    map_rows,
    overlay,
    overlay_figure,
    sheet_explainers,
    sheets,
    shrink,
    tile_uri,
)
from xaibench.report.results import read_run

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


def test_small_tiles_are_exact_and_large_ones_near():
    colors = color_tile(np.random.default_rng(0).random((16, 16)), "map")
    kind, _, data = tile_uri(colors).partition(";base64,")
    assert kind == "data:image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), colors)
    ramp = np.add.outer(np.arange(32.0), np.arange(32.0))
    data = tile_uri(color_tile(ramp, "map")).partition(";base64,")[2]
    near = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)
    assert np.abs(near - color_tile(ramp, "map")).mean() < 8


def test_the_example_is_one_sample_and_the_mean_is_that_of_the_file(shared_run):
    run = read_run(shared_run)
    cell = run.pictures["lin", "corr", "cnn"]
    number = cell.explainers.index("lime")
    assert np.array_equal(map_array(cell, "example", "lime"), cell.maps[0, number].astype(float))
    assert np.array_equal(map_array(cell, "global", "lime"), cell.means[number].astype(float))
    assert np.array_equal(map_array(cell, "example", "mask"), cell.masks[0])
    assert map_array(cell, "example", "image").min() >= -1
    assert map_array(run.pictures["lin", "corr", "mlp"], "example", "guided_gradcam") is None


def test_the_sheets_are_the_samples_in_order(annotated_run):
    found = sheets(read_run(annotated_run))
    assert list(found) == [("pet", "-", "resnet18"), ("scene", "-", "resnet18")]
    samples = found["pet", "-", "resnet18"]
    assert [samples.labels[number] for number in samples.sheet] == [
        "pet_0.jpg: dog",
        "pet_1.jpg: cat",
        "pet_2.jpg: dog",
    ]
    assert list(sheet_explainers(read_run(annotated_run), samples))[:2] == ["cam", "gradcam"]


def test_a_map_of_zeros_halves_the_image_and_its_maximum_is_the_brightest():
    black = overlay(row(), 0, 0, 8)
    assert np.abs(black.astype(int) - [100, 100, 101]).max() <= 1  # inferno's zero is nearly black
    peak = np.zeros((8, 8))
    peak[2, 5] = 1.0
    bright = overlay(row(peak), 0, 0, 8)
    assert bright[2, 5].sum() == bright.sum(axis=2).max() > black[2, 5].sum()
    assert np.array_equal(np.delete(bright.reshape(-1, 3), 21, axis=0), np.delete(black.reshape(-1, 3), 21, axis=0))


def test_what_all_pixels_share_is_not_shown():
    ramp = np.arange(64).reshape(8, 8) / 128
    assert np.array_equal(overlay(row(ramp), 0, 0, 8), overlay(row(ramp + 0.5), 0, 0, 8))
    assert np.array_equal(overlay(row(np.full((8, 8), 0.5)), 0, 0, 8), overlay(row(), 0, 0, 8))


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


def test_tiles_keep_the_shape_of_the_image():
    wide = replace(
        PLAIN,
        images=np.zeros((1, 10, 40, 3), np.uint8),
        masks=np.zeros((1, 10, 40), np.uint8),
        maps=np.ones((1, 1, 10, 40), np.float16),
    )
    assert overlay(wide, 0, None, 96).shape == (24, 96, 3)
    assert overlay(wide, 0, 0, 20).shape == (5, 20, 3)


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
