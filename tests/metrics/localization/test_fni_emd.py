"""The FNI-EMD, held to the transport problem with all pairs of pixels as PatternGAM states it."""

import numpy as np
import pytest
from ot.lp import emd as transport
from part_cases import MetricCase
from scipy.spatial.distance import cdist

from xaibench.metrics import emd_perf, fni_emd, fni_emd_skill

CASES = {"fni_emd": MetricCase(takes_magnitude=True)}


def literal(values, mask, spacing=1.0):
    """The full cost matrix, free between pixels of the mask, solved by POT."""
    pixels = np.argwhere(np.ones_like(mask)) * spacing
    costs, marked = cdist(pixels, pixels), mask.ravel()
    costs[np.ix_(marked, marked)] = 0
    p, q = np.abs(values).ravel() / np.abs(values).sum(), marked / marked.sum()
    _, log = transport(p, q, costs, numItermax=10**6, log=True)
    return 1 - log["cost"] / (costs @ q).max()


def masks_and_maps(shape, marked, count=12):
    rng = np.random.default_rng(0)
    masks = np.zeros((count, np.prod(shape)), dtype=bool)
    for mask in masks:
        mask[rng.permutation(len(mask))[:marked]] = True
    maps = rng.normal(size=(count, *shape)) ** 3
    maps[::3] *= rng.random((len(maps[::3]), *shape)) < 0.3  # with many zeros
    return maps, masks.reshape(count, *shape)


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize(("shape", "marked"), [((8, 8), 8), ((5, 9), 1), ((7, 4), 27), ((12, 12), 40), ((20, 20), 200)])
def test_it_is_the_optimum_of_the_full_problem(shape, marked, kernels, monkeypatch):
    monkeypatch.setenv("XAIBENCH_KERNELS", kernels)
    maps, masks = masks_and_maps(shape, marked)
    expected = [literal(*pair) for pair in zip(maps, masks, strict=True)]
    np.testing.assert_allclose(fni_emd(maps, masks, reduction="none"), expected, atol=1e-9)


def test_mass_inside_is_free_and_makes_room():
    mask = np.array([[1, 1, 0, 0]])
    assert fni_emd(np.array([[0.0, 9, 0, 0]]), mask) == 1.0
    assert emd_perf(np.array([[0.0, 9, 0, 0]]), mask) < 1
    # The mass on the second pixel goes to the first one, so that the third's takes the nearest place.
    assert fni_emd(np.array([[0.0, 1, 1, 0]]), mask) == pytest.approx(1 - 0.5 / 2.5)


def test_it_ignores_scale_sign_and_place_of_the_image():
    maps, masks = masks_and_maps((8, 8), 8)
    scores = fni_emd(maps, masks, reduction="none")
    for changed in (-maps, maps * 1e300, maps * 1e-300):
        np.testing.assert_allclose(fni_emd(changed, masks, reduction="none"), scores, rtol=1e-12)
    turned = fni_emd(np.rot90(maps, axes=(1, 2)), np.rot90(masks, axes=(1, 2)), reduction="none")
    np.testing.assert_allclose(turned, scores, atol=1e-12)


def test_undefined_and_extreme_scores():
    ones, zeros = np.ones((3, 3)), np.zeros((3, 3))
    assert np.isnan(fni_emd(zeros, ones))
    assert np.isnan(fni_emd(ones, zeros))
    assert fni_emd(ones, ones) == 1.0
    assert np.isnan(fni_emd_skill(ones, ones))
    corner = np.zeros((3, 3))
    corner[0, 0] = 1
    assert fni_emd(np.rot90(corner, 2), corner) == 0.0
    assert fni_emd_skill(corner, corner) == 1.0


def test_noise_has_no_skill():
    mask = np.zeros((8, 8), dtype=bool)
    mask[1:3, 2:6] = True
    noise = np.random.default_rng(1).random((400, 8, 8))
    skills = fni_emd_skill(noise, np.broadcast_to(mask, noise.shape), reduction="none")
    assert abs(skills.mean()) < 0.01


@pytest.mark.parametrize("inside", [0.0, 1e-12, 1e-6, 0.5, 1.0])
def test_large_masks_with_little_or_much_mass_inside(inside):
    maps, masks = masks_and_maps((20, 20), 150, count=2)
    maps = np.where(masks, inside * maps, maps)
    expected = [literal(*pair) for pair in zip(maps, masks, strict=True)]
    np.testing.assert_allclose(fni_emd(maps, masks, reduction="none"), expected, atol=1e-9)


@pytest.mark.parametrize("inside", [0.0, 1e-15])
def test_large_images_with_no_mass_inside_need_no_matrix(inside, monkeypatch):
    monkeypatch.setattr("xaibench.metrics.localization.fni_emd._MOST_PAIRS", 0)
    mask = np.zeros((24, 24), dtype=bool)
    mask[2:14, 3:17] = True
    values = np.where(mask, inside, np.random.default_rng(0).random(mask.shape))
    assert fni_emd(values, mask) == pytest.approx(literal(values, mask), abs=1e-9)


def test_problems_that_do_not_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setenv("XAIBENCH_KERNELS", "0")
    mask = np.zeros((400, 400), dtype=bool)
    mask[:200] = True
    with pytest.raises(ValueError, match="Resize maps and masks to 64×64"):
        fni_emd(np.ones((400, 400)), mask)


@pytest.mark.parametrize("kernels", ["0", "1"])
@pytest.mark.parametrize(("shape", "marked"), [((3, 4, 5), 6), ((6, 7, 8), 60)])
def test_volumes_with_spacing_are_the_optimum_of_the_full_problem(shape, marked, kernels, monkeypatch):
    monkeypatch.setenv("XAIBENCH_KERNELS", kernels)
    maps, masks = masks_and_maps(shape, marked, count=4)
    spacing = np.array([[1.0, 1.0, 1.0], [5.0, 0.7, 0.7], [0.2, 1.0, 3.0], [5.0, 0.7, 0.7]])
    expected = [literal(*problem) for problem in zip(maps, masks, spacing, strict=True)]
    np.testing.assert_allclose(fni_emd(maps, masks, spacing=spacing, reduction="none"), expected, atol=1e-9)
