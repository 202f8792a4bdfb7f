"""The sets of volumes: tetracubes drawn from their definition, smoothing by scipy, the distribution of the images."""

import itertools

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from xaibench.benchmarks.xai_tris.noise import CORR_SIGMA, fill_noise
from xaibench.benchmarks.xai_tris.patterns import SIGNS, Patterns
from xaibench.benchmarks.xai_tris.shapes import SHAPES, fixed_placements, rotated, rotation_count
from xaibench.data import load

#: Steps from cell to cell, of which each is along another axis.
SHAPE_OF_STEPS = {"tripod": [(), (0,), (1,), (2,)], "screw": [(), (1,), (1, 2), (1, 2, 0)]}


def cells_of(steps):
    return {tuple(path.count(axis) for axis in range(3)) for path in steps}


def moved_to_origin(cells):
    low = np.min(list(cells), axis=0)
    return frozenset(tuple(np.subtract(cell, low).tolist()) for cell in cells)


def turned_by_matrices(cells):
    """All rotations of some cells, by the matrices of determinant 1 with entries 0 and ±1."""
    found = set()
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1, -1), repeat=3):
            matrix = np.zeros((3, 3), dtype=int)
            matrix[range(3), order] = signs
            if round(np.linalg.det(matrix)) == 1:
                found.add(moved_to_origin({tuple((matrix @ cell).tolist()) for cell in cells}))
    return found


@pytest.mark.parametrize(("shape", "name", "looks"), [(0, "tripod", 8), (1, "screw", 12)])
def test_tetracubes_are_turned_as_solid_bodies(shape, name, looks):
    drawn = {tuple(cell) for cell in np.argwhere(SHAPES[3][shape]).tolist()}
    assert drawn == cells_of(SHAPE_OF_STEPS[name])
    turned = [frozenset(map(tuple, np.argwhere(rotated(SHAPES[3][shape], n)).tolist())) for n in range(24)]
    assert rotation_count(3) == 24
    assert turned[0] == moved_to_origin(drawn)
    assert set(turned) == turned_by_matrices(drawn)
    assert {turned.count(one) for one in turned} == {24 // looks}  # every look is equally frequent
    for cells in turned:  # no slice along an axis shows the whole shape
        assert all(len({cell[axis] for cell in cells}) == 2 for axis in range(3))


def test_layouts_of_volumes_are_apart_and_never_change():
    first = [
        {tuple(np.add(cell, corner)) for cell in np.argwhere(SHAPES[3][shape])}
        for shape, (_, corner) in enumerate(fixed_placements(0, 3))
    ]
    assert fixed_placements(0, 3) == ((0, (1, 1, 1)), (0, (4, 5, 5)))
    layouts = [fixed_placements(number, 3) for number in range(1, 60)]
    assert layouts[:2] == FIRST_LAYOUTS
    assert len(set(layouts)) == len(layouts)
    for pair in layouts:
        cells = [np.argwhere(rotated(SHAPES[3][shape], turns)) + corner for shape, (turns, corner) in enumerate(pair)]
        assert np.min(cells) >= 1
        assert np.max(cells) <= 6
        gaps = [cells[i].min(0) - cells[1 - i].max(0) for i in (0, 1)]
        assert np.max(gaps) >= 2
        assert len({tuple(cell) for part in cells for cell in part} & set.union(*first)) <= 2


FIRST_LAYOUTS = [((18, (2, 4, 5)), (18, (5, 2, 5))), ((4, (3, 1, 4)), (7, (1, 4, 3)))]


@pytest.mark.parametrize("scenario", ["lin", "mult", "xor", "rigid"])
def test_patterns_of_volumes_are_whole_cells(scenario):
    patterns = Patterns(scenario, 16, 0 if scenario == "rigid" else 3)
    places = len(patterns.placements) if scenario == "rigid" else 1
    kinds = np.array([0, places - 1, places, 2 * places - 1]) if scenario == "rigid" else np.arange(patterns.kinds)
    table, where = patterns.render(kinds)
    for kind, image, mask in zip(kinds, table[where], patterns.truth(table)[where], strict=True):
        expected = np.zeros((16, 16, 16))
        if scenario == "rigid":
            shape, number = divmod(int(kind), places)
            shown = [(shape, 1, patterns.placements[number])]
        else:
            signs = SIGNS[kind] if scenario == "xor" else np.eye(2, dtype=int)[kind]
            shown = [(shape, signs[shape], patterns.fixed[shape]) for shape in (0, 1)]
        for shape, sign, (turns, corner) in shown:
            for cell in np.argwhere(rotated(SHAPES[3][shape], turns)):
                low = np.array(corner) + 2 * cell
                expected[low[0] : low[0] + 2, low[1] : low[1] + 2, low[2] : low[2] + 2] = sign
        np.testing.assert_array_equal(image, expected)
        assert mask.sum() == (32 if scenario == "rigid" else 64)
        assert mask[expected != 0].all()
    assert places in (1, 24 * 13**3)


def test_correlated_noise_of_volumes_is_smoothed_along_each_axis():
    white, smooth = (np.empty((3, 16, 16, 16), dtype=np.float32) for _ in range(2))
    fill_noise("white", 5, 0, white)
    fill_noise("corr", 5, 0, smooth)
    expected = [gaussian_filter(each, CORR_SIGMA[16]) for each in white.astype(np.float64)]
    np.testing.assert_allclose(smooth, expected, atol=2e-6)


@pytest.mark.parametrize("name", ["lin-white", "mult-corr", "xor-corr"])
def test_volumes_are_drawn_from_their_known_distribution(name):
    data = load(f"xai-tris/{name}-16x16x16", seed=2, n_samples=300)
    known = data.distribution()
    assert known.image_shape == (1, 16, 16, 16)
    seen = known._observe(data.train.images[:60].numpy().astype(np.float64))
    logs = np.log(known._scales).reshape(len(known.shares), -1).sum(axis=1)
    likeliest = (seen.square / 2 + logs).min(axis=1) - logs.min()
    # The square of a whitened image is the sum of 4,096 squares of standard normal numbers.
    # The rounding of float32 counts as three operations, of which MULT has two where the pattern is zero.
    assert 0.65 < 2 * likeliest.mean() / 4096 < 1.1
