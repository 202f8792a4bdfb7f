import numpy as np
import pytest
import torch

import xaibench as xb

IMAGES = np.random.default_rng(0).random((3, 1, 6, 8))
MAPS = np.random.default_rng(1).normal(size=(3, 6, 8))
MASKS = np.zeros((3, 6, 8), bool)
MASKS[:, 2:4, 2:4] = True


def tiles(figure):
    return [image.get_array() for image in figure.axes[0].images]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_row_a_sample_and_a_column_a_method():
    figure = xb.show(IMAGES, {"mine": MAPS, "theirs": MAPS**2}, MASKS, labels=["a", "b", "c"], samples=2)
    assert words(figure) == ["image", "mine", "theirs", "a", "b"]
    assert [tile.shape for tile in tiles(figure)] == [(6, 8, 3)] * 6
    assert len(tiles(xb.show(IMAGES))) == 3


def test_tensors_are_shown_alike():
    ours = xb.show(torch.tensor(IMAGES), torch.tensor(MAPS).requires_grad_(), torch.tensor(MASKS))
    for one, other in zip(tiles(ours), tiles(xb.show(IMAGES, MAPS, MASKS)), strict=True):
        assert np.array_equal(one, other)


def test_the_truth_is_outlined_in_every_tile():
    figure = xb.show(IMAGES, MAPS, MASKS)
    outlines = [lines.get_segments() for lines in figure.axes[0].collections]
    assert [len(segments) for segments in outlines] == [8] * 6  # the sides of a square of two pixels
    tile = figure.axes[0].images[0].get_extent()
    corners = np.unique(np.concatenate(outlines[0]), axis=0)
    width, height = (tile[1] - tile[0]) / 8, (tile[2] - tile[3]) / 6
    assert corners.min(0) == pytest.approx([tile[0] + 2 * width, tile[3] + 2 * height])
    assert corners.max(0) == pytest.approx([tile[0] + 4 * width, tile[3] + 4 * height])


def test_a_map_is_black_where_it_is_zero_and_brightest_where_it_is_largest():
    found = np.zeros((1, 2, 2))
    found[0, 0, 1], found[0, 1, 0] = -4, 2
    (_, tile) = tiles(xb.show(np.zeros((1, 3, 2, 2)), found))
    assert tile[0, 0].sum() < tile[1, 0].sum() < tile[0, 1].sum()
    (_, tile) = tiles(xb.show(np.zeros((1, 3, 2, 2)), found, signed=True))
    assert tile[0, 1, 2] > tile[0, 1, 0]  # negative: blue
    assert tile[1, 0, 0] > tile[1, 0, 2]  # positive: red


def test_a_map_of_zeros_says_so():
    assert words(xb.show(IMAGES[:1], {"mine": MAPS[:1], "none": 0 * MAPS[:1]}))[3:] == ["zero everywhere"]


def test_a_notebook_shows_it_and_a_file_keeps_it(tmp_path):
    figure = xb.show(IMAGES, MAPS)
    assert figure._repr_png_().startswith(b"\x89PNG")
    figure.savefig(tmp_path / "maps.png")
    assert (tmp_path / "maps.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((IMAGES[0],), {}, r"images: got \[1, 6, 8\], expected \[N, 1 or 3, H, W\]"),
        ((IMAGES[:0],), {}, r"images: got \[0, 1, 6, 8\], expected"),
        ((IMAGES, MAPS[:2]), {}, r"map: got \[2, 6, 8\], expected \[3, 6, 8\], one \[H, W\] for each image"),
        ((IMAGES, {"mine": MAPS[:, :2]}), {}, r"mine: got \[3, 2, 8\]"),
        ((IMAGES, MAPS, MASKS[0]), {}, r"masks: got \[6, 8\]"),
        ((IMAGES, MAPS * np.nan), {}, "map: received NaN or infinite values"),
        ((IMAGES,), {"labels": ["a"]}, "labels: got 1, expected one for each of 3 images"),
        ((IMAGES,), {"samples": 0}, "samples=0: expected an integer of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        xb.show(*arguments, **options)
