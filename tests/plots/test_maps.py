import numpy as np
import pytest

import xaibench as xb
from xaibench.plots.maps import sheet

IMAGES = np.random.default_rng(0).random((3, 1, 6, 8))
MAPS = np.random.default_rng(1).normal(size=(3, 6, 8))
MASKS = np.zeros((3, 6, 8), bool)
MASKS[:, 2:4, 2:4] = True
VOLUMES = np.random.default_rng(2).random((2, 1, 5, 6, 8))
PEAKS = np.zeros((2, 5, 6, 8))
PEAKS[0, 1, 4, 2], PEAKS[1, 3, 0, 7] = -2, 1
BLOCKS = np.zeros((2, 5, 6, 8), bool)
BLOCKS[:, 1:3, 2:5, 2:4] = True


def tiles(figure):
    return [image.get_array() for image in figure.axes[0].images]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_row_a_sample_and_a_column_a_method():
    figure = xb.show(IMAGES, {"mine": MAPS, "theirs": MAPS**2}, MASKS, labels=["a", "b", "c"], samples=2)
    assert words(figure) == ["image", "mine", "theirs", "a", "b"]
    assert [tile.shape for tile in tiles(figure)] == [(6, 8, 3)] * 6
    assert len(tiles(xb.show(IMAGES))) == 3


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


def places(figure):
    return np.array([image.get_extent() for image in figure.axes[0].images]).reshape(-1, 4)


def test_a_volume_is_cut_at_the_largest_mass():
    figure = xb.show(VOLUMES, {"mine": PEAKS}, BLOCKS, labels=["a", "b"])
    rows = [text.split("\n") for text in words(figure)[2:]]
    assert rows == [
        ["a", "slice d = 1", "row h = 4", "column w = 2"],
        ["b", "slice d = 3", "row h = 0", "column w = 7"],
    ]
    assert [tile.shape for tile in tiles(figure)[:3]] == [(6, 8, 3), (6, 5, 3), (5, 8, 3)]
    volume = VOLUMES[0, 0]
    for tile, cut in zip(tiles(figure)[:3], (volume[1], volume[:, :, 2].T, volume[:, 4]), strict=True):
        assert np.allclose(tile, cut[..., None])
    # The map is opaque at its peak, and the image shows where it is zero.
    axial = tiles(figure)[3]
    assert axial[4, 2, 0] > 0.9 > 0.7 > axial[4, 2, 2]
    axial[4, 2] = volume[1, 4, 2]
    assert np.allclose(axial, volume[1][..., None])


def test_volumes_without_maps_are_cut_at_the_mask_or_in_the_middle():
    assert words(xb.show(VOLUMES[:1], masks=BLOCKS[:1]))[1] == "slice d = 1\nrow h = 2\ncolumn w = 2"
    assert words(xb.show(VOLUMES[:1], 0 * PEAKS[:1]))[2:] == ["slice d = 2\nrow h = 3\ncolumn w = 4", "zero everywhere"]


def test_slices_have_the_aspect_ratio_of_the_voxels():
    spacing = np.array([[4.0, 1.0, 0.5], [1.0, 1.0, 1.0]])
    left, right, bottom, top = places(xb.show(VOLUMES, spacing=spacing)).T
    widths, heights = right - left, bottom - top
    # 5 slices of 4 mm, 6 rows of 1 mm, 8 columns of 0.5 mm; then a cube of voxels
    assert widths[:3] / widths[0] == pytest.approx([1, 5, 1])
    assert heights[:3] / widths[0] == pytest.approx([6 / 4, 6 / 4, 5])
    assert widths[3:] / widths[3] == pytest.approx([1, 5 / 8, 1])
    (extent,) = places(xb.show(IMAGES[:1], spacing=(2.0, 1.0)))  # 6 rows of 2 mm, 8 columns of 1 mm
    assert (extent[1] - extent[0]) / (extent[2] - extent[3]) == pytest.approx(8 / 12)


def test_notebooks_move_through_volumes_without_a_server():
    figure = xb.show(VOLUMES, PEAKS)
    html = figure._repr_html_()
    assert html.count("<img") == 1 + 8
    assert html.count("display:block") == 1
    assert 'type="range" min="0" max="8" value="0" oninput="' in html
    assert "http" not in html
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert xb.show(IMAGES)._repr_html_() is None


def test_a_sheet_has_each_image_alone_and_with_its_outline():
    figure = sheet(IMAGES, MASKS, list("abc"), columns=2)
    assert words(figure) == list("abc")
    assert len(tiles(figure)) == 6
    assert [len(lines.get_segments()) for lines in figure.axes[0].collections] == [8] * 3
    figure = sheet(VOLUMES, BLOCKS, list("ab"))  # cut where the mask is
    assert np.allclose(tiles(figure)[0], VOLUMES[0, 0, 1][..., None])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((IMAGES[0],), {}, r"images: got \[1, 6, 8\], expected \[N, 1 or 3, H, W\]"),
        ((IMAGES[:0],), {}, r"images: got \[0, 1, 6, 8\], expected"),
        ((IMAGES, MAPS[:2]), {}, r"map must be \[N, H, W\], here \[3, 6, 8\], got \[2, 6, 8\]"),
        ((IMAGES, {"mine": MAPS[:, :2]}), {}, r"mine must be .* got \[3, 2, 8\]"),
        ((IMAGES, MAPS, MASKS[0]), {}, r"masks must be .* got \[6, 8\]"),
        ((IMAGES, MAPS * np.nan), {}, "map must be finite, got NaN or infinity in samples 0, 1, 2"),
        ((VOLUMES, PEAKS[:, 0]), {}, r"map must be \[N, D, H, W\], here \[2, 5, 6, 8\], got \[2, 6, 8\]"),
        ((VOLUMES[:, 0],), {}, r"images: got \[2, 5, 6, 8\], expected .*\(volumes: \[N, 1 or 3, D, H, W\]\)"),
        ((VOLUMES,), {"spacing": (1, 2)}, "spacing: got .*expected 3 positive numbers"),
        ((VOLUMES,), {"spacing": (1, 2, 0)}, "spacing: got .*expected 3 positive numbers"),
        ((IMAGES,), {"labels": ["a"]}, "labels: got 1, expected one for each of 3 images"),
        ((IMAGES,), {"samples": 0}, "samples=0: expected an integer of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        xb.show(*arguments, **options)
