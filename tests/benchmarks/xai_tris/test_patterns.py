import numpy as np
import pytest
from oracles import tetromino as oracle
from scipy.ndimage import gaussian_filter1d

from xaibench.benchmarks.xai_tris.patterns import SIGNS, WEIGHT_STEP, Patterns, smoothing_matrix, support
from xaibench.benchmarks.xai_tris.shapes import fixed_placements

#: Number of different layouts except that of the paper.
LAYOUTS = 976


def rendered(scenario, size, kinds, layout=0):
    table, where = Patterns(scenario, size, layout).render(np.asarray(kinds))
    return table[where]


def cells_of(letter, placement):
    """The cells ``{(row, column)}`` of a shape on the grid of 8×8 cells, by the oracle."""
    turns, corner = placement
    drawn = oracle.draw(oracle.Placed(letter, 1, turns, *corner), 1, 8)
    return {tuple(map(int, cell)) for cell in np.argwhere(drawn)}


def extent(cells, axis):
    """The first and the last row (axis 0) or column (axis 1)."""
    return min(cell[axis] for cell in cells), max(cell[axis] for cell in cells)


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


def all_layouts():
    """Every pair of placements that a layout may have, found by trying all placements inside the image."""
    paper, found = cells_of("T", (0, (1, 1))) | cells_of("L", (0, (4, 5))), set()
    shapes = {}
    for letter in "TL":
        for turns in range(4):
            for row in range(8):
                for column in range(8):
                    try:
                        shapes[letter, (turns, (row, column))] = cells_of(letter, (turns, (row, column)))
                    except IndexError:  # part of the shape is outside
                        continue
    for (letter, t), cells_t in shapes.items():
        for (other, l), cells_l in shapes.items():  # noqa: E741
            if (letter, other) != ("T", "L") or any(i in (0, 7) for cell in cells_t | cells_l for i in cell):
                continue
            apart = False
            for axis in (0, 1):
                (first_t, last_t), (first_l, last_l) = extent(cells_t, axis), extent(cells_l, axis)
                apart |= first_l - last_t >= 2 or first_t - last_l >= 2
            if apart and len((cells_t | cells_l) & paper) <= 2:
                found.add((t, l))
    return found


def test_the_layouts_are_all_pairs_that_keep_the_margin_and_the_gap():
    layouts = [fixed_placements(layout) for layout in range(1, LAYOUTS + 1)]
    assert len(set(layouts)) == LAYOUTS
    assert set(layouts) == all_layouts()
    assert fixed_placements(0) == ((0, (1, 1)), (0, (4, 5)))
    assert fixed_placements(1 + LAYOUTS) == layouts[0]
    assert fixed_placements(2**31) == layouts[(2**31 - 1) % LAYOUTS]


def test_the_order_of_the_layouts_is_fixed():
    """Rounds refer to layouts by number, so these must never change."""
    assert [fixed_placements(layout) for layout in (1, 2, 3)] == [
        ((3, (1, 3)), (0, (4, 2))),
        ((1, (3, 1)), (0, (3, 5))),
        ((1, (5, 2)), (3, (1, 2))),
    ]
    # Consecutive layouts are unrelated: each shape moves or turns nearly always.
    for shape in (0, 1):
        same = [fixed_placements(i)[shape] == fixed_placements(i + 1)[shape] for i in range(1, LAYOUTS)]
        assert np.mean(same) < 0.05


@pytest.mark.parametrize("size", [8, 64])
def test_patterns_and_masks_follow_the_layout(size):
    cell, margin = size // 8, 1 if size == 8 else 5  # smoothing widens a shape by three pixels
    for layout in range(1, 201):
        placed = fixed_placements(layout)
        shapes = [
            oracle.Placed(letter, 1, turns, row * cell, column * cell)
            for letter, (turns, (row, column)) in zip("TL", placed, strict=True)
        ]
        t, l = expected = [oracle.pattern("lin", size, [shape]) for shape in shapes]  # noqa: E741
        np.testing.assert_allclose(rendered("lin", size, [0, 1], layout), expected, atol=1e-12)
        assert not ((t != 0) & (l != 0)).any()
        mask = (t != 0) | (l != 0)
        inner = mask[margin:-margin, margin:-margin]
        assert inner.sum() == mask.sum() == (8 if size == 8 else 862)
        signed = rendered("xor", size, range(4), layout)
        np.testing.assert_allclose(signed, [a * t + b * l for a, b in SIGNS], atol=1e-3 if size == 64 else 0)
        for scenario, images in (("lin", signed[:2]), ("mult", signed[:2]), ("xor", signed)):
            np.testing.assert_array_equal(
                Patterns(scenario, size, layout).truth(images), np.broadcast_to(mask, images.shape)
            )
        np.testing.assert_array_equal(signed != 0, np.broadcast_to(mask, signed.shape))


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
    corners = [i for i, (_, corner) in enumerate(patterns.placements) if corner == (0, 0)]
    kinds = [*corners, *(places + i for i in corners), places - 1, 2 * places - 1]
    for kind, image in zip(kinds, rendered("rigid", size, kinds), strict=True):
        shape, placement = divmod(kind, places)
        turns, corner = patterns.placements[placement]
        shown = [oracle.Placed("TL"[shape], 1, turns, *corner)]
        np.testing.assert_allclose(image, oracle.pattern("rigid", size, shown), atol=1e-12)


def test_support_is_cut_by_each_patterns_own_maximum():
    images = np.zeros((2, 2, 2))
    images[0] = [[1.0, 0.051], [0.05, -0.06]]
    images[1] = 100 * images[0]
    expected = [[[True, True], [False, True]]] * 2
    np.testing.assert_array_equal(support(images), expected)
