from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from xaibench.kernels import multigrid as grid_solver
from xaibench.kernels.multigrid import impute_on_grid
from xaibench.metrics.faithfulness.road import imputed, solve_sparse


def all_but(*known):
    def mask(shape):
        removed = np.ones(shape, dtype=bool)
        for place in known:
            removed[place] = False
        return removed

    return mask


def random(share):
    return lambda shape: all_but((4, 4))(shape) & (np.random.default_rng(1).random(shape) < share)


def smooth(share):
    """As much of a map of low frequencies, as explainers make them."""

    def mask(shape):
        rows, columns = (np.linspace(0, 3 * np.pi, side)[:, None] for side in shape)
        values = np.sin(rows + 1) * np.cos(1.3 * columns.T) + 0.1 * np.sin(2 * rows - columns.T)
        return values < np.quantile(values, share)

    return mask


MASKS = {
    "all but one": all_but((5, 3)),
    "all but two corners": all_but((0, 0), (-1, -1)),
    "all but a column": all_but(np.s_[:, 0]),
    "all but every fifth row": all_but(np.s_[::5]),
    "all but isolated pixels": all_but(np.s_[3::7, 2::6]),
    "all but the border": all_but(0, -1, np.s_[:, 0], np.s_[:, -1]),
    "the border": lambda shape: ~all_but(0, -1, np.s_[:, 0], np.s_[:, -1])(shape),
    "rows": lambda shape: np.indices(shape)[0] % 2 == 1,
    "columns": lambda shape: np.indices(shape)[1] % 2 == 0,
    "a checkerboard": lambda shape: np.indices(shape).sum(0) % 2 == 0,
    "one pixel": lambda shape: ~all_but((2, 3))(shape),
    "a tenth": random(0.1),
    "half": random(0.5),
    "nearly all": random(0.99),
    "blobs": smooth(0.3),
    "all but blobs": smooth(0.9),
}


def agrees(shape, removed, channels=2, scale=1.0):
    image = scale * (np.random.default_rng(0).standard_normal((channels, *shape)) + 3)
    before = image.copy()
    found = impute_on_grid(image, removed)
    assert found is not None
    assert np.array_equal(image, before)
    assert np.array_equal(found[:, ~removed], image[:, ~removed])
    assert np.abs(found - solve_sparse(image, removed)).max() <= 1e-9 * np.ptp(image)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", [(8, 8), (9, 7), (64, 64), (31, 50)])
def test_the_grid_gives_what_a_factorization_gives(shape, mask, monkeypatch):
    monkeypatch.setattr(grid_solver, "_MOST_CYCLES", 16)  # whatever the mask
    agrees(shape, MASKS[mask](shape))


@pytest.mark.parametrize("mask", ["all but two corners", "half", "all but blobs"])
def test_as_many_cycles_do_for_a_photograph(mask, monkeypatch):
    monkeypatch.setattr(grid_solver, "_MOST_CYCLES", 16)
    agrees((224, 224), MASKS[mask]((224, 224)), channels=1)


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (1, 224), (224, 1), (2, 100), (3, 64)])
def test_narrow_images_of_which_one_end_is_left(shape):
    longest = int(np.argmax(shape))
    for end in (np.s_[:2], np.s_[-2:]):  # two rows across, of which one is next to what is removed
        known = (end, slice(None)) if longest == 0 else (slice(None), end)
        agrees(shape, all_but(known)(shape))
        agrees(shape, all_but(known)(shape), scale=1e-6)


def test_a_channel_of_one_value_keeps_it():
    image = np.stack([np.full((6, 5), 0.7), np.arange(30.0).reshape(6, 5), np.zeros((6, 5))])
    found = impute_on_grid(image, random(0.6)((6, 5)))
    assert (found[0] == 0.7).all()
    assert np.ptp(found[1]) > 1
    assert not found[2].any()


def test_what_does_not_converge_is_solve_sparse(monkeypatch):
    image, removed = np.random.default_rng(0).standard_normal((1, 20, 20)), MASKS["all but a column"]((20, 20))
    monkeypatch.setattr(grid_solver, "_MOST_CYCLES", 3)
    assert impute_on_grid(image, removed) is None
    np.testing.assert_array_equal(imputed(image, removed), solve_sparse(image, removed))


def test_threads_find_the_same_as_one_after_the_other():
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal((2, 40, 33)), rng.random((40, 33)) < share) for share in np.linspace(0.1, 0.99, 12)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(impute_on_grid, *zip(*pairs, strict=True)))
    for found, pair in zip(together, pairs, strict=True):
        np.testing.assert_array_equal(found, impute_on_grid(*pair))
