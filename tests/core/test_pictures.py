import numpy as np
import pytest

from xaibench.core.pictures import color_picture, fit, levels, picture_uri


def test_colors_of_a_map_are_those_of_its_magnitude():
    array = np.array([[0.0, -2.0], [1.0, 0.5]])
    assert (color_picture(array, "map") == color_picture(-array, "map")).all()
    assert (color_picture(array, "map") == color_picture(3 * array, "map")).all()
    assert color_picture(np.array([[0.0, -1.0, 1.0]]), "image").tolist()[0] == [[128] * 3, [0] * 3, [255] * 3]
    assert (color_picture(np.full((2, 2), np.nan), "map") == color_picture(np.zeros((2, 2)), "map")).all()


def test_large_arrays_are_reduced_by_area_means_and_small_ones_enlarged_on_request():
    array = np.random.default_rng(0).random((64, 64))
    small = fit(array, 32)
    assert small.shape == (32, 32)
    assert small[3, 5] == pytest.approx(array[6:8, 10:12].mean())
    assert fit(np.ones((70, 35)), 32).shape == (32, 16)
    assert fit(array, 100) is array
    assert (fit(np.eye(2, dtype=np.uint8), 4, enlarge=True) == np.kron(np.eye(2), np.ones((2, 2)))).all()
    assert picture_uri(color_picture(small, "map")).startswith("data:image/webp;base64,")


@pytest.mark.parametrize(("side", "brightest"), [(8, 1), (64, 21)])
def test_of_large_maps_a_few_pixels_share_the_brightest_level(side, brightest):
    ramp = np.arange(side**2, dtype=np.float32).reshape(side, side) / side**2
    found = levels(ramp)
    assert (found.min(), found.max()) == (0, 255)
    assert (found == 255).sum() >= brightest
    assert (found == 255).mean() < 0.02
    assert levels(ramp * 0 + 3).max() == 0
    peak = np.zeros((64, 64), np.float32)
    peak[3, 4] = 1.0  # the quantile of such a map is its smallest value
    assert (levels(peak) == 255).sum() == 1
