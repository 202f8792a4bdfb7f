import numpy as np
import pytest
from oracles import tetromino as oracle
from scipy.ndimage import gaussian_filter1d

from xaibench.benchmarks.xai_tris.patterns import SIGNS, WEIGHT_STEP, Patterns, smoothing_matrix, support


def rendered(scenario, size, kinds):
    table, where = Patterns(scenario, size).render(np.asarray(kinds))
    return table[where]


@pytest.mark.parametrize(("size", "sigma"), [(8, 3.0), (64, 10.0), (64, 1.5)])
def test_two_products_are_the_gaussian_filter_with_rounded_weights(size, sigma):
    response = gaussian_filter1d(np.eye(size), sigma, axis=0)
    np.testing.assert_allclose(smoothing_matrix(size, sigma), response, atol=40 * WEIGHT_STEP)
    image = np.random.default_rng(0).standard_normal((size, size))
    matrix = smoothing_matrix(size, sigma)
    np.testing.assert_allclose(matrix @ image @ matrix.T, oracle.smooth(image, sigma), atol=1e-12)


def test_the_shapes_at_8x8_lie_where_the_paper_has_them():
    t, l = rendered("lin", 8, [0, 1])  # noqa: E741
    assert {tuple(map(int, p)) for p in np.argwhere(t)} == {(1, 1), (2, 1), (2, 2), (3, 1)}
    assert {tuple(map(int, p)) for p in np.argwhere(l)} == {(4, 5), (5, 5), (6, 5), (6, 6)}
    assert set(np.unique([t, l])) == {0.0, 1.0}


def test_supports_at_64x64():
    t, l = rendered("lin", 64, [0, 1]) != 0  # noqa: E741
    assert (t.sum(), l.sum()) == (432, 430)  # 431 a shape on average
    assert (t | l).sum() == 862
    table, _ = Patterns("lin", 64).render(np.array([0]))
    assert Patterns("lin", 64).truth(table).sum() == 862


@pytest.mark.parametrize("size", [8, 64])
def test_xor_keeps_the_support_of_negative_patterns(size):
    patterns = Patterns("xor", size)
    images = rendered("xor", size, [0, 1, 2, 3])
    positive = rendered("lin", size, [0, 1])
    for image, (sign_t, sign_l) in zip(images, SIGNS, strict=True):
        np.testing.assert_allclose(image, sign_t * positive[0] + sign_l * positive[1], atol=1e-12)
        np.testing.assert_array_equal(image != 0, (positive != 0).any(axis=0))
    truth = patterns.truth(images)
    assert (truth == (images != 0)).all()
    assert patterns.targets(np.arange(4)).tolist() == [0, 0, 1, 1]
    assert [sign_t * sign_l for sign_t, sign_l in SIGNS] == [1, 1, -1, -1]  # the class is whether the signs differ


@pytest.mark.parametrize(("size", "count"), [(8, 4 * 6 * 7), (64, 4 * 53 * 57)])
def test_rigid_knows_every_place_inside_once(size, count):
    placements = Patterns("rigid", size).placements
    assert len(placements) == len(set(placements)) == count


def test_rigid_shapes_are_whole_and_their_own_ground_truth():
    patterns = Patterns("rigid", 8)
    kinds = np.arange(2 * len(patterns.placements))
    images = rendered("rigid", 8, kinds)
    assert (images.sum(axis=(1, 2)) == 4).all()
    assert len({image.tobytes() for image in images}) == len(kinds)  # four appearances a shape, no two alike
    np.testing.assert_array_equal(patterns.truth(images), images == 1)


def test_rigid_draws_uniformly_and_keeps_the_class():
    patterns = Patterns("rigid", 8)
    places = len(patterns.placements)
    cases = np.arange(200_000) % 2
    kinds = patterns.draw(cases, np.random.default_rng(0))
    np.testing.assert_array_equal(kinds // places, patterns.targets(cases))
    counts = np.bincount(kinds % places, minlength=places)
    expected = len(cases) / places
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - places) < 5 * np.sqrt(2 * places)


@pytest.mark.parametrize("size", [8, 64])
def test_rigid_patterns_are_the_oracles(size):
    patterns = Patterns("rigid", size)
    places = len(patterns.placements)
    corners = [i for i, (_, row, column) in enumerate(patterns.placements) if row == 0 and column == 0]
    kinds = [*corners, *(places + i for i in corners), places - 1, 2 * places - 1]
    for kind, image in zip(kinds, rendered("rigid", size, kinds), strict=True):
        shape, placement = divmod(kind, places)
        shown = [oracle.Placed("TL"[shape], 1, *patterns.placements[placement])]
        np.testing.assert_allclose(image, oracle.pattern("rigid", size, shown), atol=1e-12)


def test_support_is_cut_by_each_patterns_own_maximum():
    images = np.zeros((2, 2, 2))
    images[0] = [[1.0, 0.051], [0.05, -0.06]]
    images[1] = 100 * images[0]
    expected = [[[True, True], [False, True]]] * 2
    np.testing.assert_array_equal(support(images), expected)
