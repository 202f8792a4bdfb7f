import functools

import captum.attr
import captum.metrics
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import robustness as oracle
from oracles.simple_explainers import saliency
from part_cases import MetricCase

from xaibench.explainers import explain
from xaibench.metrics import data_consistency, sensitivity_max
from xaibench.metrics.shared.model_scores import random_generator


def without_a_size(trial):
    """Only the change relative to the map needs one."""
    return [trial.parameters["relative"] and not one.any() for one in trial.maps]


CASES = {
    "data_consistency": MetricCase(
        quick={"n_samples": 2},
        drawn={
            "fraction": st.floats(0, 1, exclude_min=True),
            "n_samples": st.integers(1, 3),
            "relative": st.booleans(),
            "seed": st.integers(0, 5),
        },
        undefined=without_a_size,
    ),
    "sensitivity_max": MetricCase(
        quick={"n_samples": 2},
        drawn={"radius": st.floats(1e-6, 10), "n_samples": st.integers(1, 3), "seed": st.integers(0, 5)},
    ),
}


def test_data_consistency_mask_by_mask(small_case):
    _, model, images, targets = small_case
    scores = data_consistency(*small_case, fraction=0.25, n_samples=3, seed=2, reduction="none")
    relative = data_consistency(*small_case, fraction=0.25, n_samples=3, seed=2, relative=True, reduction="none")
    original, changed = saliency(model, images, targets), []
    for index in range(3):
        hidden = images.clone()
        for pixel in random_generator(2, index).permutation(30)[:8]:
            hidden[:, :, pixel // 5, pixel % 5] = 0
        changed.append(saliency(model, hidden, targets).numpy())
    for i, one in enumerate(original.numpy()):
        expected = oracle.mean_change(one, [maps[i] for maps in changed])
        assert scores[i] == pytest.approx(expected, rel=1e-9)
        assert relative[i] == pytest.approx(expected / np.abs(one).mean(), rel=1e-9)


def test_sensitivity_draw_by_draw_and_as_captum_has_it(small_case):
    _, model, images, targets = small_case
    scores = sensitivity_max(*small_case, radius=0.3, n_samples=5, seed=4, reduction="none")
    noise = [torch.from_numpy(random_generator(4, index).uniform(-0.3, 0.3, (2, 6, 5))) for index in range(5)]
    original = saliency(model, images, targets).numpy()
    changed = [saliency(model, images + delta, targets).numpy() for delta in noise]
    expected = [oracle.largest_change(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)

    @torch.enable_grad()
    def explain(inputs, target):  # a tuple of one at first, then a tensor; Captum compares tuples
        return (saliency(model, inputs[0] if isinstance(inputs, tuple) else inputs, target),)

    theirs = captum.metrics.sensitivity_max(
        explain,
        images,
        # Captum repeats each image five times in a row.
        perturb_func=lambda inputs: inputs + torch.stack(noise).repeat(4, 1, 1, 1),
        n_perturb_samples=5,
        target=targets,
    )
    np.testing.assert_allclose(scores, theirs, rtol=1e-6)


def test_extreme_maps_keep_their_scores(small_case):
    _, model, images, targets = small_case
    expected = sensitivity_max(*small_case)
    for scale in (1e-300, 1e300):
        scaled = sensitivity_max(lambda *args, s=scale: saliency(*args) * s, model, images, targets)
        assert scaled == pytest.approx(expected, rel=1e-9)


def test_captums_saliency_as_an_explainer(small_case):
    def theirs(model, images, targets):
        method = captum.attr.Saliency(lambda x: model(x).softmax(1))
        return method.attribute(images.requires_grad_(), target=targets, abs=False).sum(1)

    assert sensitivity_max(theirs, *small_case[1:]) == pytest.approx(sensitivity_max(*small_case), rel=1e-6)


def test_captum_zero_map_has_no_sensitivity(small_case):
    # Captum divides by one where the norm of the map is zero, and gives a number that has a unit.
    _, model, images, targets = small_case
    images = images.clone()
    images[1] = 0

    def dark(model, images, targets):
        return images[:, 0] * (images.abs() > 0.25).all(1)

    scores = sensitivity_max(dark, model, images, targets, radius=0.5, reduction="none")
    assert scores.isnan().tolist() == [False, True, False, False]


def test_captum_draws_by_the_place_in_the_batch_and_we_do_not(small_case):
    _, model, images, targets = small_case
    same = images[:1].expand(4, -1, -1, -1)
    scores = sensitivity_max(saliency, model, same, targets[:1].expand(4), reduction="none")
    assert len(set(scores.tolist())) == 1


def test_relative_change_of_tiny_and_huge_maps(small_case):
    # Of a single smallest number the mean magnitude is zero.
    _, model, images, targets = small_case

    def one_pixel(scale):
        def explain(model, images, targets):
            maps = torch.zeros(len(images), 6, 5, dtype=torch.float64)
            maps[:, 2, 2] = scale * (images[:, 0, 2, 2] != 0).double()
            return maps

        return explain

    expected = data_consistency(one_pixel(1.0), model, images, targets, fraction=0.5, relative=True)
    assert expected > 0
    for scale in (5e-324, 1e308):
        found = data_consistency(one_pixel(scale), model, images, targets, fraction=0.5, relative=True)
        assert found == expected


@pytest.mark.parametrize("metric", [data_consistency, sensitivity_max])
def test_the_explainers_own_random_numbers_are_no_change(small_case, metric):
    _, model, images, targets = small_case
    uniform = functools.partial(explain, "uniform", device="cpu")
    assert metric(uniform, model, images, targets, reduction="none").tolist() == [0, 0, 0, 0]
    smoothgrad = functools.partial(explain, "smoothgrad", n_samples=4, device="cpu")
    together = metric(smoothgrad, model, images, targets, n_samples=2, reduction="none")
    alone = metric(smoothgrad, model, images[2:3], targets[2:3], n_samples=2, reduction="none")
    torch.testing.assert_close(together[2:3], alone, rtol=1e-6, atol=0)
