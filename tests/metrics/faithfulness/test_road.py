import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import perturbation
from oracles import road as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics.faithfulness.road import imputed, road
from xaibench.metrics.shared.model_scores import random_generator

CASES = {
    "road": MetricCase(
        quick={"percentiles": (50,)},
        drawn={
            "percentiles": st.lists(st.floats(0, 100, exclude_min=True, exclude_max=True), min_size=1, max_size=3),
            "order": st.sampled_from(["both", "morf", "lerf"]),
            "noise_std": st.floats(0, 10),
            "seed": st.integers(0, 5),
        },
    )
}


@settings(deadline=None)
@given(data=st.data())
def test_imputation_solves_the_equations(data):
    shape = data.draw(st.sampled_from([(1, 2), (1, 6), (5, 1), (3, 3), (4, 6)]))
    removed = data.draw(hnp.arrays(np.bool_, shape))
    removed.flat[data.draw(st.integers(0, removed.size - 1))] = False
    image = data.draw(hnp.arrays(np.float64, (2, *shape), elements=st.floats(-10, 10)))
    before = image.copy()
    found = imputed(image, removed)
    np.testing.assert_allclose(found, oracle.imputed(image, removed), atol=1e-9)
    assert np.array_equal(found[:, ~removed], image[:, ~removed])
    assert np.array_equal(image, before)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_plane_is_imputed_exactly_and_nothing_leaves_the_range(share):
    rng = np.random.default_rng(0)
    removed = np.zeros((20, 30), dtype=bool)
    removed[1:-1, 1:-1] = rng.random((18, 28)) < share  # the border stays: a plane has no neighbors beyond it
    plane = np.add.outer(2.0 * np.arange(20), -np.arange(30.0))[None]
    np.testing.assert_allclose(imputed(plane, removed), plane, atol=1e-9)
    noise = rng.standard_normal((1, 20, 30))
    assert imputed(noise, removed).min() >= noise.min() - 1e-9
    assert imputed(noise, removed).max() <= noise.max() + 1e-9


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch(size=(6, 5))


def literal(model, image, saliency, target, percentiles, noise, seed):
    """The scores of the image, and after the removal of the most and of the least relevant pixels."""
    order = perturbation.pixel_order(saliency)
    whole, curves = perturbation.probability(model, image, target), []
    for pixels in (order, order[::-1]):
        curve = []
        for number, percentile in enumerate(percentiles):
            removed = np.zeros(saliency.shape, dtype=bool)
            for pixel in pixels[: round(percentile / 100 * len(order))]:
                removed[pixel] = True
            filled = oracle.imputed(image.double().numpy(), removed)
            filled[:, removed] += (noise * random_generator(seed, number).standard_normal(filled.shape))[:, removed]
            curve.append(perturbation.probability(model, torch.from_numpy(filled).float(), target))
        curves.append(np.array(curve))
    return whole, *curves


def test_the_score_step_by_step(case):
    model, *arrays = case
    percentiles = (10, 50, 80)
    parts = [literal(model, *one, percentiles, 0.1, 3) for one in zip(*arrays, strict=True)]
    expected = {
        "both": [np.mean(lerf - morf) / 2 for _, morf, lerf in parts],
        "morf": [np.mean(whole - morf) for whole, morf, _ in parts],
        "lerf": [np.mean(lerf - whole) for whole, _, lerf in parts],
    }
    for order, scores in expected.items():
        found = road(*case, percentiles=percentiles, order=order, noise_std=0.1, seed=3, reduction="none")
        np.testing.assert_allclose(found, scores, atol=1e-5)


def test_quantus_road_of_the_first_batch_is_not_that_of_all(case):
    # Quantus averages over the first batch only.
    model, images, maps, targets = case
    whole = road(model, images, maps, targets, reduction="none")
    assert len(whole) == 5
    assert road(model, images, maps, targets, batch_size=2) == pytest.approx(whole.mean().item(), abs=1e-6)
    assert whole[:2].mean() != pytest.approx(whole.mean().item(), abs=1e-3)


def test_curves(case):
    scores, curves = road(*case, percentiles=(20, 90), order="lerf", reduction="none", return_curves=True)
    assert curves.fractions.tolist() == [6 / 30, 27 / 30]
    np.testing.assert_allclose(curves.values.mean(1), scores, rtol=1e-12)


def test_noise_is_seeded(case):
    one, same, other = (road(*case, percentiles=(50,), noise_std=1.0, seed=seed) for seed in (0, 0, 1))
    assert one == same != other
    assert road(*case, noise_std=0.0, seed=0) == road(*case, noise_std=0.0, seed=1)


def test_pytorch_grad_cam_imputes_the_same():
    metrics = pytest.importorskip("pytorch_grad_cam.metrics.road", exc_type=ImportError)
    rng = np.random.default_rng(1)
    image, removed = rng.standard_normal((3, 12, 9)), rng.random((12, 9)) < 0.7
    theirs = metrics.NoisyLinearImputer(noise=0.0)(
        torch.from_numpy(image).float(), torch.from_numpy(1.0 - removed).float()
    )
    np.testing.assert_allclose(imputed(image, removed), theirs, atol=1e-5)


def test_grad_cam_removes_tied_pixels_together_and_we_do_not(case):
    # It removes all that lies at or above a percentile: of a map with one small pixel everything else at once.
    model, images, _, targets = case
    maps = torch.ones(5, 6, 5)
    maps[:, 5, 4] = 0
    _, curves = road(model, images, maps, targets, percentiles=(10,), order="morf", return_curves=True)
    assert curves.fractions.tolist() == [3 / 30]
    first = torch.zeros(6, 5)
    first[0, :3] = 1  # ties in the order of the pixels
    ordered = first + maps
    assert torch.equal(
        curves.values,
        road(model, images, ordered, targets, percentiles=(10,), order="morf", return_curves=True)[1].values,
    )


def test_one_pixel_is_always_left(case):
    # 99 percent of 6 pixels are 6, and nothing would be left to impute them by.
    model, images, maps, targets = case
    settings = {"order": "morf", "noise_std": 0.0, "reduction": "none", "return_curves": True}
    scores, curves = road(model, images[..., :2, :3], maps[:, :2, :3], targets, percentiles=(99,), **settings)
    assert curves.fractions.tolist() == [5 / 6]
    assert scores.isfinite().all()


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_each_voxel_becomes_the_mean_of_its_direct_neighbors(data):
    shape = data.draw(st.sampled_from([(2, 2, 2), (3, 4, 5), (2, 6, 3)]))
    removed = data.draw(hnp.arrays(np.bool_, shape))
    removed.flat[data.draw(st.integers(0, removed.size - 1))] = False
    image = data.draw(hnp.arrays(np.float64, (2, *shape), elements=st.floats(-10, 10)))
    before = image.copy()
    found = imputed(image, removed)
    for place in np.argwhere(removed):
        near = [place + step for axis in np.eye(3, dtype=int) for step in (axis, -axis)]
        near = [tuple(one) for one in near if (one >= 0).all() and (one < shape).all()]
        mean = np.mean([found[:, *one] for one in near], axis=0)
        np.testing.assert_allclose(found[:, *place], mean, rtol=0, atol=1e-9)
    assert np.array_equal(found[:, ~removed], image[:, ~removed])
    assert np.array_equal(image, before)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_volume_of_one_slice_has_the_neighbors_of_an_image(axis):
    rng = np.random.default_rng(0)
    image, removed = rng.standard_normal((2, 6, 7)), rng.random((6, 7)) < 0.6
    found = imputed(np.expand_dims(image, axis), np.expand_dims(removed, axis - 1))
    np.testing.assert_array_equal(found, np.expand_dims(imputed(image, removed), axis))
