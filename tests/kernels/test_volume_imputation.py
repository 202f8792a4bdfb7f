from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import spsolve

from xaibench.kernels import volume_imputation
from xaibench.kernels.volume_imputation import impute_in_volume
from xaibench.metrics.faithfulness.road import factorized, imputed


def by_sparse_solver(image, removed):
    """The equations of all voxels, pair by pair, solved by SuperLU."""
    places = [tuple(place) for place in np.argwhere(removed)]
    number = {place: row for row, place in enumerate(places)}
    rows, columns, weights, right = [], [], [], np.zeros((len(places), len(image)))
    for row, place in enumerate(places):
        for step in (*np.eye(3, dtype=int), *-np.eye(3, dtype=int)):
            other = tuple(int(index) for index in place + step)
            if not all(0 <= index < side for index, side in zip(other, removed.shape, strict=True)):
                continue
            rows, columns, weights = [*rows, row], [*columns, row], [*weights, 1.0]
            if other in number:
                rows, columns, weights = [*rows, row], [*columns, number[other]], [*weights, -1.0]
            else:
                right[row] += image[:, *other]
    solution = spsolve(csr_matrix((weights, (rows, columns)), (len(places),) * 2), right)
    found = image.copy()
    found[:, removed] = solution.reshape(right.shape).T
    return found


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("shape", [(6, 7, 8), (2, 3, 40), (9, 2, 2)])
def test_against_a_sparse_solver(shape, share):
    rng = np.random.default_rng(0)
    image, removed = 1e3 * (rng.standard_normal((2, *shape)) + 3), rng.random(shape) < share
    removed[0, 1, 1] = False
    found = impute_in_volume(image, removed)
    np.testing.assert_allclose(found, by_sparse_solver(image, removed), rtol=0, atol=1e-10 * np.ptp(image))
    np.testing.assert_array_equal(found[:, ~removed], image[:, ~removed])


def test_a_linear_function_is_imputed_exactly():
    planes = sum(weight * axis for weight, axis in zip((1.0, -2.0, 0.5), np.mgrid[:20, :18, :16], strict=True))[None]
    removed = np.zeros(planes.shape[1:], dtype=bool)
    removed[1:-1, 1:-1, 1:-1] = True  # the faces stay: a linear function has no neighbors beyond them
    np.testing.assert_allclose(impute_in_volume(planes, removed), planes, rtol=0, atol=1e-9)


def test_a_long_volume_of_which_one_end_is_left():
    image, removed = np.random.default_rng(0).standard_normal((1, 2, 2, 200)), np.ones((2, 2, 200), dtype=bool)
    removed[..., 0] = False
    np.testing.assert_allclose(impute_in_volume(image, removed), factorized(image, removed), rtol=0, atol=1e-9)


def test_a_channel_of_one_value_keeps_it():
    image = np.stack([np.full((4, 5, 6), 0.7), np.arange(120.0).reshape(4, 5, 6)])
    found = impute_in_volume(image, np.random.default_rng(0).random((4, 5, 6)) < 0.7)
    assert (found[0] == 0.7).all()
    assert np.ptp(found[1]) > 1


def test_what_does_not_converge_is_factorized(monkeypatch):
    rng = np.random.default_rng(0)
    image, removed = rng.standard_normal((1, 6, 6, 6)), rng.random((6, 6, 6)) < 0.9
    monkeypatch.setattr(volume_imputation, "_solve", lambda *given: np.zeros(0))
    assert impute_in_volume(image, removed) is None
    np.testing.assert_array_equal(imputed(image, removed), factorized(image, removed))


def test_threads_find_the_same_as_one_after_the_other():
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal((1, 9, 8, 7)), rng.random((9, 8, 7)) < share) for share in np.linspace(0.1, 0.99, 8)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(impute_in_volume, *zip(*pairs, strict=True)))
    for found, pair in zip(together, pairs, strict=True):
        np.testing.assert_array_equal(found, impute_in_volume(*pair))
