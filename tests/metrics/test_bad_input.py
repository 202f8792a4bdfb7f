"""What no metric takes: every registered metric meets every case of bad input that applies to its kind."""

import inspect
import math
import re

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


#: By argument and error: what becomes of it, or its value; the message names the argument.
BAD = {
    ("maps", ValueError): [
        put(math.nan),
        put(-math.inf),
        lambda maps: maps[:, 1:],
        lambda maps: maps[:3],
        lambda maps: maps[:, None].repeat(3, 1),
        lambda maps: maps.reshape(-1),
        lambda maps: maps[:, :0],
    ],
    ("maps", TypeError): [lambda maps: maps + 0j, lambda maps: maps.tolist()],
    ("masks", ValueError): [
        lambda masks: masks[:, :, 1:],
        lambda masks: masks * 0.5,
        lambda masks: masks * np.uint8(255),
        put(math.nan),
    ],
    ("masks", TypeError): [lambda masks: None],
    ("images", ValueError): [put(math.nan, (2, 0, 0, 0)), lambda images: images[0, 0], lambda images: images[:0]],
    ("images", TypeError): [lambda images: images.astype(int)],
    ("targets", ValueError): [lambda targets: targets[:3], put(3, 1), put(-1, 2)],
    ("targets", TypeError): [lambda targets: targets + 0.5],
    ("model", TypeError): [lambda model: "resnet18"],
    ("model", (TypeError, ValueError)): [lambda model: lambda images: model(images)[:, 0]],
    ("model", ValueError): [lambda model: Wrapped(model, lambda model, images: math.nan * model(images))],
    ("explainer", TypeError): [lambda explainer: "saliency"],
    ("explainer", ValueError): [
        lambda explainer: lambda model, images, targets: math.nan * explainer(model, images, targets),
        lambda explainer: lambda model, images, targets: images,
    ],
    ("reduction", ValueError): ["sum"],
    ("batch_size", ValueError): [0],
    ("seed", ValueError): [-1],
    ("output", ValueError): ["logits"],
    ("threshold", ValueError): [math.nan, "half"],
    ("time_limit", ValueError): [-1],
    ("time_limit", TypeError): ["2"],
    ("workers", ValueError): [1.5],
    ("spacing", ValueError): [(1.0, 0.0)],
    ("tolerance", ValueError): [-1],
    ("tolerance", TypeError): [None],
    ("steps", ValueError): [0],
    ("baseline", ValueError): ["median", torch.zeros(3, 1, 1), math.nan, 10**400],
    ("baseline", TypeError): [np.array([None]), ["black"]],
    ("segmentation", ValueError): ["voronoi"],
    ("fraction", ValueError): [0.0],
    ("fractions", ValueError): [(0.5, 0), ()],
    ("beta", ValueError): [2.0],
    ("side", ValueError): ["neither"],
    ("epsilon", ValueError): [-0.1],
    ("pixels", ValueError): ["all"],
    ("bounds", ValueError): [(1.0, 0.0), (0.0, 0.1)],
    ("bounds", TypeError): [0],
    ("progress", TypeError): [True],
    ("perturbation", ValueError): ["noise"],
    ("n_samples", ValueError): [0, 2.5],
    ("noise_std", ValueError): [math.nan],
    ("grid_size", ValueError): [1],
    ("n_groups", ValueError): [1],
    ("n_bins", ValueError): [1],
    ("percentiles", ValueError): [(0,), ()],
    ("order", ValueError): ["most"],
    ("radius", ValueError): [math.inf],
    ("noise", ValueError): [-0.1],
    ("similarity", ValueError): ["cosine"],
    ("importance", ValueError): ["max"],
    ("parts", ValueError): [np.zeros((2, 5, 6), int), -np.ones((4, 5, 6), int)],
    ("parts", TypeError): [np.zeros((4, 5, 6))],
    ("diameter", ValueError): ["paper", "released"],
}
PARAMETERS = {name: inspect.signature(METRICS.resolve(name)).parameters for name in METRICS}


def refusals_of(name):
    """The errors of all bad input that applies to a metric, and what it was not refused with."""
    for (argument, error), values in BAD.items():
        for number, value in enumerate(values):
            if argument not in PARAMETERS[name]:
                continue
            if KIND[name] == "map" and argument == "maps" and value in BAD["maps", ValueError][2:4]:
                continue  # nothing to compare
            inputs, settings = good(), {}
            if argument in inputs:
                inputs[argument] = value(inputs[argument])
            else:
                settings = {argument: value}
            try:
                yield f"{argument} {number} gives {call(name, inputs, **settings)}"
            except Exception as found:
                is_named = isinstance(found, error) and re.search(rf"\b{argument}\b", str(found))
                yield None if is_named else f"{argument} {number}: {found!r}"


@pytest.mark.parametrize("name", METRICS)
def test_bad_input_is_refused(name):
    assert [problem for problem in refusals_of(name) if problem] == []


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
