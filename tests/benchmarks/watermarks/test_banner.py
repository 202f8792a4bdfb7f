"""The watermark: its pixels and how it is blended."""

import numpy as np
from refusals import refused

from xaibench.benchmarks.watermarks.regimes import banner_mask, blend


def test_the_letters_are_legible_and_grow_with_the_image():
    small = banner_mask(32)
    rows = ["".join("#" if dot else "." for dot in row) for row in small[2:9]]
    assert rows[:2] == ["." + "#...#" + "..." + ".###." + "..." + "####." + "..." + "#...#" + "..",
                        "." + "##.##" + "..." + "#...#" + "..." + "#...#" + "..." + "#..#." + ".."]  # fmt: skip
    assert not small[[0, 1, *range(9, 32)]].any()
    assert np.array_equal(banner_mask(64), small.repeat(2, 0).repeat(2, 1))
    assert banner_mask(128).sum() == 16 * small.sum()


def test_an_image_smaller_than_the_banner_and_an_opacity_out_of_range_are_refused():
    refused(ValueError, "side", banner_mask, 31)
    for opacity in (0, -0.1, 1.5):
        refused(ValueError, "opacity=", blend, np.zeros((2, 2)), np.ones((2, 2), bool), opacity)


def test_blending_moves_the_pixels_towards_white():
    mask = np.array([[True, False], [False, True]])
    images = np.array([[0.0, 0.5], [0.25, 1.0]])
    assert blend(images, mask, 0.75).tolist() == [[0.75, 0.5], [0.25, 1.0]]
    assert blend(images, mask, 1.0).tolist() == [[1.0, 0.5], [0.25, 1.0]]
