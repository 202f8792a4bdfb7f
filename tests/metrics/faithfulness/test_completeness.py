import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles.networks import batch, small_cnn
from oracles.perturbation import probability
from part_cases import MetricCase

import xaibench as xb
from xaibench.metrics import completeness_error


def undefined(trial):
    """With ``relative``, also where image and baseline score the same: that is not seen from the map."""
    zero = [not one.any() for one in trial.maps]
    return (np.array(zero) | np.isnan(trial.scores)).tolist() if trial.parameters["relative"] else zero


CASES = {
    "completeness_error": MetricCase(
        drawn={"relative": st.booleans(), "baseline": st.sampled_from([0.0, -1.5, "blur"])}, undefined=undefined
    )
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


def test_error_is_that_of_the_sum(case):
    model, images, maps, targets = case
    difference = [
        probability(model, image, y) - probability(model, torch.zeros_like(image), y)
        for image, y in zip(images, targets, strict=True)
    ]
    errors = [abs(float(one.double().sum()) - d) for one, d in zip(maps, difference, strict=True)]
    np.testing.assert_allclose(completeness_error(*case, reduction="none"), errors, atol=1e-6)
    shares = np.array(errors) / np.abs(difference)
    np.testing.assert_allclose(completeness_error(*case, relative=True, reduction="none"), shares, rtol=1e-4)


def test_methods_that_promise_the_sum_keep_it(case):
    model, images, _, targets = case
    asked = {"targets": targets, "reduction": "mean"}
    for output in ("probability", "logit", "margin"):
        ig = xb.explain("integrated_gradients", model, images, targets, output=output, n_steps=200)
        lift = xb.explain("saliency", model, images, targets, output=output)
        right, wrong = (completeness_error(model, images, maps, output=output, **asked) for maps in (ig, lift))
        assert right < 0.02 < wrong


def test_nothing_is_a_share_of_nothing_and_a_map_of_zeros_explains_nothing():
    model = lambda images: images.sum((2, 3))  # noqa: E731
    image, ones, target = torch.ones(1, 1, 2, 2), torch.ones(1, 2, 2), torch.tensor([0])
    assert completeness_error(model, image, 3 * ones, target, output="logit") == 8
    assert completeness_error(model, image, 3 * ones, target, output="logit", relative=True) == 2
    assert np.isnan(completeness_error(model, 0 * image, ones, target, output="logit", relative=True))
    assert np.isnan(completeness_error(model, image, 0 * ones, target, output="logit"))


def test_it_is_captums_delta(case):
    captum = pytest.importorskip("captum.attr")
    model, images, _, targets = case
    method = captum.IntegratedGradients(lambda x: model(x))
    maps, delta = method.attribute(images, target=targets, n_steps=5, return_convergence_delta=True)
    found = completeness_error(model, images, maps.sum(1), targets, output="logit", reduction="none")
    np.testing.assert_allclose(found, delta.abs().numpy(), atol=1e-5)


@pytest.mark.parametrize("baseline", [0.5, "color", "image"])
def test_a_baseline_that_all_share_is_asked_once(case, baseline):
    _, images, maps, targets = case
    baseline = {"color": [0.1, 0.2][: images.shape[1]], "image": 0.5 * images[:1]}.get(baseline, baseline)
    model, rows = small_cnn(), []
    model.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    once = completeness_error(model, images, maps, targets, baseline=baseline, reduction="none")
    looks, check = 2, 3  # the check of the model, at the first call only
    assert sum(rows) == len(images) + 1 + looks + check
    given = torch.as_tensor(baseline, dtype=images.dtype)
    given = given[:, None, None] if given.ndim == 1 else given
    rows.clear()
    each = completeness_error(
        model, images, maps, targets, baseline=given.expand(images.shape).clone(), reduction="none"
    )
    assert sum(rows) == 2 * len(images) + looks
    np.testing.assert_allclose(once, each, atol=1e-7)


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_an_image_that_is_the_baseline_has_no_share(case, level):
    """In a batch of its own the baseline scores a rounding apart from the image, and a share of that is anything."""
    model, images, maps, targets = case
    images = images.clone()
    images[1] = level
    asked = {"baseline": level, "reduction": "none"}
    shares = completeness_error(model, images, maps, targets, relative=True, **asked)
    assert np.isnan(np.asarray(shares)).tolist() == [number == 1 for number in range(len(images))]
    assert np.isfinite(np.asarray(completeness_error(model, images, maps, targets, **asked))).all()
