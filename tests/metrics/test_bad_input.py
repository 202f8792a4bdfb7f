"""What no metric takes: every registered metric meets every case of bad input that applies to its kind."""

import inspect
import math

import numpy as np
import pytest
import torch
from oracles.networks import small_cnn
from oracles.simple_explainers import saliency
from part_cases import MetricCase, case

from xaibench.metrics import METRICS, undefined_reasons
from xaibench.models import Wrapped

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
KIND = {name: METRICS.resolve(name).info.kind for name in METRICS}
TAKES = {
    "ground-truth": ("maps", "masks"),
    "map": ("maps",),
    "model": ("model", "images", "maps", "targets"),
    "explainer": ("explainer", "model", "images", "targets"),
}
CASE = {name: case(METRICS, name, MetricCase()) for name in METRICS}


def good():
    """What metrics of all kinds are called with: four samples of 5 × 6 pixels, three classes."""
    rng = np.random.default_rng(0)
    return {
        "maps": rng.standard_normal((4, 5, 6)),
        "masks": rng.random((4, 5, 6)) < 0.3,
        "images": rng.standard_normal((4, 2, 5, 6)).astype(np.float32),
        "targets": np.array([0, 1, 2, 0]),
        "model": small_cnn(),
        "explainer": saliency,
    }


def call(name, inputs, **parameters):
    return METRICS.resolve(name)(*(inputs[part] for part in TAKES[KIND[name]]), **CASE[name].quick | parameters)


def applies(argument):
    return [name for name in METRICS if argument in TAKES[KIND[name]]]


def undefined(name, inputs):
    """In which samples the metric has no score, as its record has it."""
    return [reason != "" for reason in undefined_reasons(inputs["maps"], inputs["masks"], name)]


def put(value, index=(2, 0, 0)):
    """Return a change that puts a value into an array."""

    def changed(array):
        array = array.astype(np.float64) if isinstance(value, float) else array.copy()
        array[index] = value
        return array

    return changed


def zero_channels(explainer):
    return lambda model, images, targets: images


def not_a_number(explainer):
    return lambda model, images, targets: math.nan * explainer(model, images, targets)


def one_class(model):
    return lambda images: model(images)[:, 0]


def without_numbers(model):
    return Wrapped(model, lambda model, images: math.nan * model(images))


#: ``(argument, what becomes of it, the error)``; the message names the argument.
BAD = [
    ("maps", put(math.nan), ValueError),
    ("maps", put(-math.inf), ValueError),
    ("maps", lambda maps: maps[:, 1:], ValueError),
    ("maps", lambda maps: maps[:3], ValueError),
    ("maps", lambda maps: maps[:, None].repeat(3, 1), ValueError),
    ("maps", lambda maps: maps.reshape(-1), ValueError),
    ("maps", lambda maps: maps[:, :0], ValueError),
    ("maps", lambda maps: maps + 0j, TypeError),
    ("maps", lambda maps: maps.tolist(), TypeError),
    ("masks", lambda masks: masks[:, :, 1:], ValueError),
    ("masks", lambda masks: masks * 0.5, ValueError),
    ("masks", lambda masks: masks * np.uint8(255), ValueError),
    ("masks", put(math.nan), ValueError),
    ("masks", lambda masks: None, TypeError),
    ("images", put(math.nan, (2, 0, 0, 0)), ValueError),
    ("images", lambda images: images.astype(int), TypeError),
    ("images", lambda images: images[0, 0], ValueError),
    ("images", lambda images: images[:0], ValueError),
    ("targets", lambda targets: targets[:3], ValueError),
    ("targets", put(3, 1), ValueError),
    ("targets", put(-1, 2), ValueError),
    ("targets", lambda targets: targets + 0.5, TypeError),
    ("model", lambda model: "resnet18", TypeError),
    ("model", one_class, (TypeError, ValueError)),
    ("model", without_numbers, ValueError),
    ("explainer", lambda explainer: "saliency", TypeError),
    ("explainer", not_a_number, ValueError),
    ("explainer", zero_channels, ValueError),
    ("reduction", "sum", ValueError),
    ("batch_size", 0, ValueError),
    ("seed", -1, ValueError),
    ("output", "logits", ValueError),
    ("threshold", math.nan, ValueError),
    ("threshold", "half", ValueError),
    ("time_limit", -1, ValueError),
    ("time_limit", "2", TypeError),
    ("workers", 1.5, ValueError),
    ("spacing", (1.0, 0.0), ValueError),
    ("tolerance", -1, ValueError),
    ("tolerance", None, TypeError),
    ("steps", 0, ValueError),
    ("baseline", "median", ValueError),
    ("baseline", torch.zeros(3, 1, 1), ValueError),
    ("baseline", math.nan, ValueError),
    ("baseline", 10**400, ValueError),
    ("baseline", np.array([None]), TypeError),
    ("baseline", ["black"], TypeError),
    ("segmentation", "voronoi", ValueError),
    ("fraction", 0.0, ValueError),
    ("fractions", (0.5, 0), ValueError),
    ("fractions", (), ValueError),
    ("beta", 2.0, ValueError),
    ("side", "neither", ValueError),
    ("epsilon", -0.1, ValueError),
    ("pixels", "all", ValueError),
    ("bounds", (1.0, 0.0), ValueError),
    ("bounds", (0.0, 0.1), ValueError),
    ("bounds", 0, TypeError),
    ("progress", True, TypeError),
    ("perturbation", "noise", ValueError),
    ("n_samples", 0, ValueError),
    ("n_samples", 2.5, ValueError),
    ("noise_std", math.nan, ValueError),
    ("grid_size", 1, ValueError),
    ("n_groups", 1, ValueError),
    ("n_bins", 1, ValueError),
    ("percentiles", (0,), ValueError),
    ("percentiles", (), ValueError),
    ("order", "most", ValueError),
    ("radius", math.inf, ValueError),
    ("noise", -0.1, ValueError),
    ("similarity", "cosine", ValueError),
    ("importance", "max", ValueError),
    ("parts", np.zeros((2, 5, 6), int), ValueError),
    ("parts", -np.ones((4, 5, 6), int), ValueError),
    ("parts", np.zeros((4, 5, 6)), TypeError),
    ("diameter", "paper", ValueError),
    ("diameter", "released", ValueError),
]
PARAMETERS = {name: inspect.signature(METRICS.resolve(name)).parameters for name in METRICS}
CASES = [
    pytest.param(name, *bad, id=f"{name}-{bad[0]}-{number}")
    for number, bad in enumerate(BAD)
    for name in METRICS
    if bad[0] in PARAMETERS[name] and not (KIND[name] == "map" and number in (2, 3))  # nothing to compare with
]


@pytest.mark.parametrize(("name", "argument", "value", "error"), CASES)
def test_bad_input_is_refused(name, argument, value, error):
    inputs, settings = good(), {}
    if argument in inputs:
        inputs[argument] = value(inputs[argument])
    else:
        settings = {argument: value}
    with pytest.raises(error, match=rf"\b{argument}\b"):
        call(name, inputs, **settings)


@pytest.mark.parametrize("name", METRICS)
def test_good_input_is_not(name):
    assert math.isfinite(call(name, good()))


@pytest.mark.parametrize("name", applies("masks"))
def test_an_empty_mask_is_nan_and_leaves_the_others_alone(name):
    inputs = good()
    whole = call(name, inputs, reduction="none")
    inputs["masks"][1] = False
    scores = call(name, inputs, reduction="none")
    assert np.isnan(scores).tolist() == [False, True, False, False]
    assert np.array_equal(np.delete(scores, 1), np.delete(whole, 1))


@pytest.mark.parametrize("name", applies("maps"))
def test_a_constant_map_ranks_nothing(name):
    inputs = good()
    inputs["maps"][1] = 0.7
    inputs["masks"][1] = False
    inputs["masks"][1, 2] = True
    scores = call(name, inputs, reduction="none")
    assert np.isnan(scores).tolist() == undefined(name, inputs)
    if CASE[name].constant is not None:
        assert scores[1] == pytest.approx(CASE[name].constant, rel=1e-12)


@pytest.mark.parametrize("name", applies("maps"))
def test_released_scoring_drops_zero_maps_and_ours_keeps_them_as_nan(name):
    # The released XAI-TRIS scoring leaves such samples out, so that methods are scored on different ones.
    inputs = good()
    inputs["maps"][1] = 0
    scores = call(name, inputs, reduction="none")
    assert np.isnan(scores).tolist() == undefined(name, inputs)
    if METRICS.resolve(name).info.thresholded and not np.isnan(scores[1]):  # it asks only what is above the threshold
        assert scores[1] <= 0  # a skill is below
    else:
        assert np.isnan(scores[1])


@pytest.mark.parametrize("name", applies("maps"))
def test_negative_maps(name):
    # Where a map is taken for a mass, its magnitude is; where it is ranked or cut, its sign counts.
    inputs = good()
    turned = inputs | {"maps": -inputs["maps"]}
    scores, others = call(name, inputs, reduction="none"), call(name, turned, reduction="none")
    assert np.isfinite(others).all()
    if CASE[name].takes_magnitude is None:
        np.testing.assert_allclose(scores, others, rtol=1e-9)
    else:
        assert np.array_equal(scores, others) == CASE[name].takes_magnitude
