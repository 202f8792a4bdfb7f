import math
import threading

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numba.core.caching import FunctionCache
from oracles import exact_transport as oracle
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from xaibench.kernels.emd import (
    emd_with_free_mass,
    exact_emd,
    interval_emd,
    multiscale,
    pyramid,
    warm_up,
)
from xaibench.kernels.emd.pyramid import TransportProblem

KINDS = ["uniform", "smooth", "sparse", "heavy-tailed", "good"]


def disc(size):
    rows, columns = np.mgrid[:size, :size] / size
    return (rows - 0.4) ** 2 + (columns - 0.6) ** 2 < 0.06


def image(kind, size, seed=0):
    rng = np.random.default_rng(seed)
    values = {
        "uniform": rng.random((size, size)),
        "smooth": np.abs(gaussian_filter(rng.standard_normal((size, size)), size / 10)),
        "sparse": rng.random((size, size)) * (rng.random((size, size)) < 0.1),
        "heavy-tailed": np.abs(rng.standard_cauchy((size, size))),
        "good": gaussian_filter(disc(size).astype(float), size / 20) + 0.05 * rng.random((size, size)),
    }[kind]
    return values / values.sum()


def assert_proven(result, source, target, gap=1e-9, spacing=None):
    """The plan is one, the potential is 1-Lipschitz, and their values are the bounds: nothing taken on trust."""
    pixels = np.argwhere(np.ones(source.shape)) * (1 if spacing is None else np.array(spacing))
    mass = source.sum()
    plan_cost = math.fsum(result.masses * np.linalg.norm(pixels[result.origins] - pixels[result.places], axis=1))
    assert plan_cost == pytest.approx(result.upper, rel=1e-11, abs=1e-12 * mass)
    moved = source.ravel().copy()
    np.subtract.at(moved, result.origins, result.masses)
    assert (moved >= -1e-15 * mass).all()
    np.add.at(moved, result.places, result.masses)
    np.testing.assert_allclose(moved, target.ravel(), rtol=0, atol=1e-14 * mass)
    assert (result.masses > 0).all()
    phi = result.potential.ravel()
    assert (np.abs(phi[:, None] - phi) <= cdist(pixels, pixels) * (1 + 1e-12) + 1e-12).all()
    assert float(phi @ (source - target).ravel()) == pytest.approx(result.lower, rel=1e-11, abs=1e-12 * mass)
    assert 0 <= result.gap <= gap


VALUES = st.one_of(st.just(0.0), st.integers(1, 3).map(float), st.floats(-12, 3).map(lambda power: 10.0**power))


@st.composite
def masses(draw, shape):
    """Images with zeros, with ties and with heavy tails: few values, spread by a seed (pixel by pixel is slow)."""
    few = draw(st.lists(VALUES, min_size=1, max_size=20))
    pixels = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).choice(few, shape)
    assume(pixels.sum() > 0)
    return pixels


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_small_images_against_the_full_matrix(data):
    shape = data.draw(st.tuples(st.integers(1, 10), st.integers(1, 10)))
    source, target = (array / array.sum() for array in (data.draw(masses(shape)), data.draw(masses(shape))))
    result = exact_emd(source, target)
    assert result.cost == pytest.approx(oracle.by_full_matrix(source, target), rel=1e-9, abs=1e-12)
    assert result.lower == pytest.approx(result.upper, rel=1e-9, abs=1e-13)


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_small_images_by_way_of_all_the_coarser_ones(data):
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    source, target = (array / array.sum() for array in (data.draw(masses(shape)), data.draw(masses(shape))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiscale, "_FEW_PAIRS", 1)
        result = exact_emd(source, target)
        bounds = interval_emd(source, target, tolerance=0.1)
    expected = oracle.by_full_matrix(source, target)
    assert result.cost == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert result.lower == pytest.approx(result.upper, rel=1e-9, abs=1e-13)
    assert bounds.lower <= expected * (1 + 1e-9) + 1e-12
    assert bounds.upper >= expected * (1 - 1e-9) - 1e-12
    assert bounds.gap <= 0.1 * (1 + 1e-12) or bounds.upper < 1e-13  # a gap of just 0.1 rounds either way


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_maps_against_the_full_matrix(kind):
    source, target = image(kind, 32), disc(32) / disc(32).sum()
    result = exact_emd(source, target)
    assert result.cost == pytest.approx(oracle.by_full_matrix(source, target), rel=1e-12)
    assert_proven(result, source, target, gap=1e-12)


@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (3, 150), (37, 23), (16, 70)])
def test_images_that_are_not_square(shape):
    source, target = np.random.default_rng(0).random((2, *shape)) ** 4
    source, target = source / source.sum(), target / target.sum()
    result = exact_emd(source, target)
    assert result.cost == pytest.approx(oracle.by_full_matrix(source, target), rel=1e-10)
    assert_proven(result, source, target)


def test_on_a_line_it_is_the_area_between_the_cumulated_masses():
    source, target = np.random.default_rng(1).dirichlet(np.ones(5000), 2)
    expected = math.fsum(np.abs(np.cumsum(source - target)))
    assert exact_emd(source[None], target[None]).cost == pytest.approx(expected, rel=1e-11)
    assert exact_emd(source[:, None], target[:, None]).cost == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_symmetries(kind):
    source, target = image(kind, 30), image("uniform", 30, seed=5)
    cost = exact_emd(source, target).cost
    for turn in (lambda x: x.T, np.flipud, lambda x: np.pad(x, ((3, 0), (1, 7)))):
        assert exact_emd(turn(source), turn(target)).cost == pytest.approx(cost, rel=1e-12)
    back = exact_emd(target, source)
    assert back.cost == pytest.approx(cost, rel=1e-15)
    assert_proven(back, target, source)


def test_what_costs_nothing():
    same = image("uniform", 20)
    for source, target in ((same, same), (np.ones((1, 1)), np.ones((1, 1))), (np.zeros((3, 3)), np.zeros((3, 3)))):
        result = exact_emd(source, target)
        assert (result.lower, result.upper, result.gap, len(result.masses)) == (0, 0, 0, 0)
    nearly = exact_emd(same, np.nextafter(same, 1))  # equal, up to rounding
    assert 0 <= nearly.lower <= nearly.upper < 1e-13


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 7.0, 1e300])
def test_masses_of_any_size(scale):
    source, target = image("uniform", 16), image("sparse", 16)
    assert exact_emd(source * scale, target * scale).cost / scale == pytest.approx(
        exact_emd(source, target).cost, rel=1e-12
    )


def test_pairs_of_equal_masses_are_an_assignment():
    from scipy.optimize import linear_sum_assignment

    places = np.random.default_rng(3).permutation(48 * 48)[:600]
    source, target = np.zeros((2, 48 * 48))
    source[places[:300]], target[places[300:]] = 1, 1
    points = np.stack(np.divmod(places, 48), axis=1)
    lengths = cdist(points[:300], points[300:])
    expected = lengths[linear_sum_assignment(lengths)].sum()
    result = exact_emd(source.reshape(48, 48), target.reshape(48, 48))
    assert result.cost == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(result.masses, 1, rtol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_interval(kind):
    source, target = image(kind, 48), disc(48) / disc(48).sum()
    bounds, exact = interval_emd(source, target), exact_emd(source, target)
    assert_proven(bounds, source, target, gap=0.003)
    assert bounds.lower <= exact.cost <= bounds.upper
    assert bounds.gap > exact.gap


@pytest.mark.parametrize("tolerance", [0.1, 1e-3, 1e-5, 0.0])
def test_interval_keeps_to_the_tolerance(tolerance):
    source, target = image("smooth", 40), image("heavy-tailed", 40)
    assert_proven(interval_emd(source, target, tolerance=tolerance), source, target, gap=max(tolerance, 1e-9))


def test_large_image_within_bounds():
    source, target = image("uniform", 224), disc(224) / disc(224).sum()
    bounds = interval_emd(source, target)
    assert 0 < bounds.gap < 0.003
    assert 50 < bounds.lower < bounds.upper < 56


def test_time_limit_returns_what_is_known():
    source, target = image("uniform", 48), disc(48) / disc(48).sum()
    exact = exact_emd(source, target).cost
    for limit in (0.0, 0.02):
        result = exact_emd(source, target, time_limit=limit)
        assert result.lower <= exact * (1 + 1e-12)
        assert exact <= result.upper * (1 + 1e-12)
        assert_proven(result, source, target, gap=1.0)
    assert exact_emd(source, target, time_limit=0.0).gap > 1e-3
    assert exact_emd(source, target, time_limit=600).cost == pytest.approx(exact, rel=1e-12)


def test_progress_tells_bounds_that_close_in():
    source, target = image("uniform", 64), disc(64) / disc(64).sum()
    seen = []
    exact = exact_emd(source, target, progress=seen.append)
    finest = [report for report in seen if report.shape == (64, 64)]
    assert len(finest) >= 2
    assert {report.shape for report in seen} > {(64, 64), (32, 64), (32, 32)}
    moved = exact.masses.sum()
    for report in finest:
        assert report.lower * moved <= exact.cost * (1 + 1e-9)
        assert exact.cost <= report.upper * moved * (1 + 1e-9)
    assert [r.lower for r in finest] == sorted(r.lower for r in finest)
    assert [r.upper for r in finest] == sorted((r.upper for r in finest), reverse=True)


def test_the_same_bits_each_time_and_in_threads():
    source, target = image("heavy-tailed", 40), disc(40) / disc(40).sum()
    first = exact_emd(source, target)
    results = [None] * 4

    def solve(k):
        results[k] = exact_emd(source, target)

    threads = [threading.Thread(target=solve, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert (result.lower, result.upper) == (first.lower, first.upper)
        np.testing.assert_array_equal(result.potential, first.potential)
        np.testing.assert_array_equal(result.masses, first.masses)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (np.ones((2, 3)), np.ones((3, 2)), r"same shape, got \(2, 3\) and \(3, 2\)"),
        (np.ones(4), np.ones(4), r"two images \[H, W\]"),
        (np.ones((0, 4)), np.ones((0, 4)), r"two images \[H, W\]"),
        (np.array([[1.0, -1]]), np.ones((1, 2)), "source must be finite and not negative, got values from -1.0 to 1.0"),
        (np.ones((1, 2)), np.array([[1.0, np.nan]]), "target must be finite and not negative"),
        (np.ones((1, 2)), np.ones((1, 2)) * 2, "the same mass, got 2.0 and 4.0. Normalize them first"),
    ],
)
def test_bad_input(source, target, message):
    with pytest.raises(ValueError, match=message):
        exact_emd(source, target)


def degenerate(kind, shape, rng):
    """Images full of ties: integer and equal masses, symmetries, powers of two."""
    rows, columns = np.indices(shape)
    pixels = rows.size
    return {
        "few values": rng.integers(0, 3, shape) + np.eye(*shape),
        "binary": (rng.random(shape) < 0.3) + np.eye(*shape),
        "one pixel": (np.arange(pixels) == rng.integers(pixels)).reshape(shape),
        "permutation": 1 + rng.permutation(pixels).reshape(shape),
        "squares around the center": np.maximum(abs(2 * rows - shape[0] + 1), abs(2 * columns - shape[1] + 1)),
        "checks": 1 - (rows + columns) % 2,
        "constant": np.ones(shape),
        "powers of two": 2.0 ** rng.integers(-40, 4, shape),
    }[kind].astype(float)


@pytest.mark.parametrize("shape", [(8, 8), (13, 17), (32, 32)])
def test_no_tie_makes_it_cycle(shape, monkeypatch):
    kinds = [
        *("few values", "binary", "one pixel", "permutation"),
        *("squares around the center", "checks", "constant", "powers of two"),
    ]
    rng = np.random.default_rng(0)
    warm_up()  # compiling would count toward the time limit
    for few_pairs in (4096, 1):
        monkeypatch.setattr(multiscale, "_FEW_PAIRS", few_pairs)
        for one in kinds:
            for other in kinds:
                source, target = degenerate(one, shape, rng), degenerate(other, shape, rng)
                source, target = source / source.sum(), target / target.sum()
                result = exact_emd(source, target, time_limit=5.0)
                assert result.upper - result.lower <= 1e-9 * result.upper + 1e-13, (one, other)
                if shape != (32, 32) or "one pixel" in (one, other):  # the matrix takes its time
                    assert result.cost == pytest.approx(oracle.by_full_matrix(source, target), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("swap", [False, True])
def test_masses_that_differ_by_rounding_alone_and_differently_on_either_side(swap):
    """120 pixels have one unit in the last place too much, one has a thousand times as much too little."""
    target = np.full((11, 11), 1 / 121)
    source = np.nextafter(target, 1)
    target[0, 0] += 3e-13
    result = exact_emd(target, source) if swap else exact_emd(source, target)
    assert 0 <= result.lower <= result.upper < 3e-13 * math.hypot(10, 10) * 2
    assert (result.masses > 0).all()
    assert result.masses.sum() < 1e-12


def test_rounds_are_bounded(monkeypatch):
    monkeypatch.setattr(multiscale, "_MOST_ROUNDS", 2)
    source, target = image("uniform", 40), disc(40) / disc(40).sum()
    stopped = exact_emd(source, target)
    monkeypatch.undo()
    assert stopped.gap > 1e-9
    assert_proven(stopped, source, target, gap=0.2)
    assert stopped.lower <= exact_emd(source, target).cost <= stopped.upper


def test_to_be_watched_changes_no_bit():
    source, target = image("good", 40), disc(40) / disc(40).sum()
    alone, watched = exact_emd(source, target), exact_emd(source, target, time_limit=600.0, progress=lambda _: None)
    assert (alone.lower, alone.upper) == (watched.lower, watched.upper)


def compiled(module):
    loops = {name: value for name, value in vars(module).items() if hasattr(value, "py_func")}
    return {name: loop for name, loop in loops.items() if loop.py_func.__module__ == module.__name__}


def test_loops_call_only_loops_of_their_own_module():
    """What is kept on disk is named after its module: see compilation.py."""
    count = 0
    for module in (pyramid, multiscale):
        imported = {name for name, value in vars(module).items() if hasattr(value, "py_func")} - compiled(module).keys()
        for function in compiled(module).values():
            names = function.py_func.__code__.co_names
            assert imported.isdisjoint(names)
            count += sum(name in compiled(module) for name in names)
    assert count > 10


def test_each_loop_that_is_kept_is_called_with_arguments_of_one_type():
    for shape in ((6, 30), (40, 40)):
        source, target = np.random.default_rng(0).random((2, *shape))
        source, target = source / source.sum(), target / target.sum()
        source.flags.writeable = False
        exact_emd(source, target)
        interval_emd(np.asfortranarray(target), source, tolerance=1)
    loops = [loop for module in (pyramid, multiscale) for loop in compiled(module).values()]
    kept = [loop for loop in loops if isinstance(loop._cache, FunctionCache)]
    assert len(kept) == 5
    assert all(len(loop.signatures) == 1 for loop in kept)


@pytest.mark.parametrize("shape", [(5, 7), (8, 1), (1, 9), (16, 16)])
def test_refined_plans_are_plans_without_cycles(shape):
    rng = np.random.default_rng(0)
    net = rng.integers(-9, 10, shape).astype(np.int64)
    net.flat[0] -= net.sum()
    fine = TransportProblem(net, (1.0,) * net.ndim)
    coarser = fine.merge()
    assert coarser.level.net.sum() == 0
    assert coarser.level.net.size < net.size
    plan = coarser.refine(coarser.level.corner_plan())
    np.testing.assert_array_equal(np.bincount(plan.tails, plan.flows, len(fine.supply)), fine.supply)
    np.testing.assert_array_equal(np.bincount(plan.heads, plan.flows, len(fine.demand)), fine.demand)
    root = {node: node for node in range(len(fine.supply) + len(fine.demand))}

    def find(node):
        while root[node] != node:
            node = root[node]
        return node

    for tail, head in zip(plan.tails.tolist(), (plan.heads + len(fine.supply)).tolist(), strict=True):
        assert find(tail) != find(head), "a cycle"
        root[find(tail)] = find(head)


@pytest.mark.parametrize("spacing", [None, (3.0, 0.5, 1.0), (1e-3, 1.0, 40.0)])
@pytest.mark.parametrize("shape", [(7, 8, 9), (1, 12, 12), (20, 3, 4)])
def test_volumes_are_proven(shape, spacing):
    rng = np.random.default_rng(0)
    source, target = rng.random((2, *shape)) ** 3
    source, target = source / source.sum(), target / target.sum()
    assert_proven(exact_emd(source, target, spacing=spacing), source, target, spacing=spacing)
    assert_proven(interval_emd(source, target, spacing=spacing), source, target, gap=0.003, spacing=spacing)


def test_a_volume_of_one_slice_has_the_distance_of_the_image():
    source, target = image("smooth", 24), image("good", 24)
    flat, deep = exact_emd(source, target), exact_emd(source[None], target[None])
    assert (flat.lower, flat.upper) == (deep.lower, deep.upper)
    for name in ("origins", "places", "masses"):
        np.testing.assert_array_equal(getattr(flat, name), getattr(deep, name))
    np.testing.assert_array_equal(flat.potential, deep.potential[0])


def test_free_mass_in_a_volume_with_spacing():
    source, target = np.zeros((2, 8, 8, 8))
    source[7, 0, 0], target[0] = 0.25, 1 / 64  # one voxel takes a sixteenth of it
    lower, upper = emd_with_free_mass(source, target, spacing=(10.0, 1.0, 1.0))
    nearest = np.sort(np.hypot(70.0, np.hypot(*np.mgrid[:8, :8]).ravel()))[:16]
    assert lower == pytest.approx(upper, rel=1e-12)
    assert upper == pytest.approx(nearest.sum() / 64, rel=1e-12)


def test_masses_too_small_to_count_and_inputs_left_alone():
    source, target = np.full((2, 20, 20), 1e-300)
    source[0, 0] = target[19, 0] = 1
    before = source.copy(), target.copy()
    source.flags.writeable = target.flags.writeable = False
    assert exact_emd(source, target).cost == pytest.approx(19, rel=1e-12)
    np.testing.assert_array_equal([source, target], before)


@pytest.mark.parametrize("tolerance", [-0.1, math.nan])
def test_bad_tolerance(tolerance):
    with pytest.raises(ValueError, match="tolerance"):
        interval_emd(np.ones((2, 2)), np.ones((2, 2)), tolerance=tolerance)
