import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from skimage.segmentation import felzenszwalb

from xaibench.kernels.graph_segments import _stable_order, graph_segments


def literally(image, scale, sigma, min_size):
    """Felzenszwalb and Huttenlocher, Algorithm 1, with a set of pixels for each segment."""
    blurred = gaussian_filter(image, (sigma, sigma, 0), mode="reflect")
    pixels = list(np.ndindex(image.shape[:2]))
    edges = []
    for row_step, column_step in [(0, 1), (1, 0), (1, 1), (-1, 1)]:
        for row, column in pixels:
            other = row + row_step, column + column_step
            if other in pixels:
                edges.append((np.sqrt(((blurred[row, column] - blurred[other]) ** 2).sum()), (row, column), other))
    edges.sort(key=lambda edge: edge[0])  # which keeps the order of equal costs
    segment, largest = {pixel: frozenset([pixel]) for pixel in pixels}, dict.fromkeys(pixels, 0.0)

    def join(one, other, cost):
        union = segment[one] | segment[other]
        for pixel in union:
            segment[pixel], largest[pixel] = union, cost

    for cost, one, other in edges:
        ends = [largest[end] + scale / 255 / len(segment[end]) for end in (one, other)]
        if segment[one] is not segment[other] and cost < min(ends):
            join(one, other, cost)
    for cost, one, other in edges:
        if segment[one] is not segment[other] and min(len(segment[one]), len(segment[other])) < min_size:
            join(one, other, cost)
    firsts = sorted({min(found) for found in segment.values()})
    return np.array([firsts.index(min(segment[pixel])) for pixel in pixels]).reshape(image.shape[:2])


@pytest.mark.parametrize("values", ["continuous", "ties", "constant"])
@pytest.mark.parametrize("shape", [(12, 9, 1), (7, 13, 3), (1, 8, 1)])
def test_against_the_algorithm_of_the_paper(shape, values):
    image = np.random.default_rng(sum(shape)).random(shape)
    if values == "ties":
        image = np.kron(image[::3, ::3] > 0.5, np.ones((3, 3, 1)))[: shape[0], : shape[1]].astype(float)
    elif values == "constant":
        image[:] = 0.3
    scales = (20, 150, 600)
    found = graph_segments(image, scales, 0.5, 6)
    for labels, scale in zip(found, scales, strict=True):
        np.testing.assert_array_equal(labels, literally(image, scale, 0.5, 6))
    if values == "continuous" and min(shape[:2]) > 1:
        assert found[0].max() > found[-1].max()


@pytest.mark.parametrize("channels", [1, 3])
def test_parity_with_scikit_image(channels):
    image = np.random.default_rng(channels).random((90, 120, channels)).cumsum(0).cumsum(1) % 9
    found = graph_segments(image, (50, 500), 0.8, 40)
    assert (found.max((1, 2)) > 2).all()
    for labels, scale in zip(found, (50, 500), strict=True):
        np.testing.assert_array_equal(labels, felzenszwalb(image, scale, 0.8, 40))


@pytest.mark.parametrize("different", [1, 2, 7, 10_000])
def test_equal_costs_keep_their_order(different):
    values = np.random.default_rng(0).integers(different, size=2000).astype(float)
    np.testing.assert_array_equal(_stable_order(values), values.argsort(kind="stable"))
