import numpy as np
import pytest

from xaibench.report.figures.sample_sheets import _image_and_outline, _outer_border, sheet


def test_a_sheet_has_a_tile_and_a_label_for_each_sample():
    masks = np.zeros((5, 6, 8), bool)
    figure = sheet(np.random.default_rng(0).random((5, 3, 6, 8)), masks, list("abcde"), columns=3)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == list("abcde")
    assert [tile.get_array().shape for tile in axes.images] == [(6, 16, 3)] * 5


def test_the_mask_is_outlined_outside_and_dimmed_around():
    mask = np.zeros((5, 5), bool)
    mask[2, 2] = True
    plain, marked = _image_and_outline(np.full((3, 5, 5), 0.8), mask)
    assert (plain == 0.8).all()
    assert (marked[2, 2] == 0.8).all()
    assert _outer_border(mask).sum() == 4
    assert (marked[1, 2] == [1, 1, 0]).all()
    assert marked[0, 0] == pytest.approx(0.36)


@pytest.mark.parametrize(
    ("images", "masks", "labels"),
    [((0, 1, 4, 4), (0, 4, 4), []), ((1, 2, 4, 4), (1, 4, 4), ["a"]), ((2, 1, 4, 4), (1, 4, 4), ["a", "b"])],
)
def test_shapes_that_do_not_belong_together_are_refused(images, masks, labels):
    with pytest.raises(ValueError, match=r"Expected (at least one image|masks)"):
        sheet(np.zeros(images), np.zeros(masks, bool), labels)


def test_volumes_are_cut_where_the_mask_is():
    volumes, masks = np.random.default_rng(0).random((2, 1, 3, 6, 8)), np.zeros((2, 3, 6, 8), bool)
    masks[0, 1, 2, 3:5] = True
    figure = sheet(volumes, masks, list("ab"))
    marked, middle = (tile.get_array()[..., 0] for tile in figure.axes[0].images)
    assert marked.shape == (6 + 3, 2 * (8 + 3))
    assert np.allclose(marked[:6, :8], volumes[0, 0, 1])
    assert np.allclose(marked[:6, 8:11], volumes[0, 0, :, :, 3].T)
    assert np.allclose(marked[6:, :8], volumes[0, 0, :, 2])
    assert np.allclose(middle[:6, :8], volumes[1, 0, 1])
