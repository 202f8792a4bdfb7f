from dataclasses import replace

import numpy as np
from report.annotated import make_sheet
from report.pictures import change_samples

from xaibench.core.pictures import color_picture
from xaibench.plots.map_sheets import map_array, map_sheets, overlay, sheet_figure
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
    example, mean = map_sheets(run)
    assert (len(example.rows), len(mean.rows)) == (18, 14)
    assert all(samples.subset != "rigid" for samples, *_ in mean.rows)
    (picture,) = sheet_figure(run, example).axes[0].get_images()
    tiles = np.asarray(picture.get_array()).reshape(18, 75, 2 + 17, 75, 4).transpose(0, 2, 1, 3, 4)
    # Guided GradCAM has maps of the eight CNN cells alone.
    assert (tiles[..., 3] > 0).any(axis=(2, 3)).sum() == 18 * (2 + 17) - 10
    row = next(i for i, (samples, *_) in enumerate(example.rows) if samples.cell == ("lin", "corr", "cnn"))
    expected = color_picture(map_array(*example.rows[row][:2], "lime"), "map")
    centers = 3 + (np.arange(8) * 69 + 34) // 8
    tile = tiles[row, example.columns.index("lime")]
    assert np.array_equal(tile[np.ix_(centers, centers)][..., :3], expected)


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


def test_a_sheet_of_photographs_has_the_explainers_with_maps(annotated_run, fresh_annotated_run):
    run = read_run(annotated_run)
    axes = sheet_figure(run, map_sheets(run)[0]).axes[0]
    assert axes.images[0].get_array().shape == (3 * 156, 14 * 156, 4)
    assert [label.get_text() for label in axes.get_xticklabels()][:3] == ["Image", "CAM", "GradCAM"]
    assert axes.get_yticklabels()[-1].get_text() == "pet_2.jpg: dog"
    change_samples(fresh_annotated_run, lambda cell: {"explainers": cell.explainers[1:], "maps": cell.maps[:, 1:]})
    columns = map_sheets(read_run(fresh_annotated_run))[0].columns
    assert (len(columns), columns[1]) == (13, "gradcam")
