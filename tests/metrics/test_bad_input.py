"""What no metric takes: every registered metric meets every case of bad input that applies to its kind."""

import math

import numpy as np
import pytest
import torch
from oracles.networks import small_cnn
from oracles.simple_explainers import saliency
from part_cases import MetricCase, case

from xaibench.metrics import METRICS, undefined_reasons

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
    return METRICS.resolve(name)(*(inputs[part] for part in TAKES[KIND[name]]), **CASE[name].quick, **parameters)


def applies(argument):
    return [name for name in METRICS if argument in TAKES[KIND[name]]]


def undefined(name, inputs):
    """In which samples the metric has no score, as its record has it."""
    return [reason != "" for reason in undefined_reasons(inputs["maps"], inputs["masks"], name)]


def put(array, index, value):
    changed = array.astype(np.float64) if isinstance(value, float) else array.copy()
    changed[index] = value
    return changed


def failing(explainer):
    def broken(model, images, targets):
        maps = explainer(model, images, targets)
        maps[1, 0, 0] = math.nan
        return maps

    return broken


#: ``case: (argument, what becomes of it, the error, what the message says)``.
BAD = {
    "nan in a map": ("maps", lambda m: put(m, (2, 0, 0), math.nan), ValueError, r"maps must be finite.* sample 2"),
    "infinity in a map": (
        "maps",
        lambda m: put(m, (3, 1, 1), -math.inf),
        ValueError,
        r"maps must be finite.* sample 3",
    ),
    "maps of another size": ("maps", lambda m: m[:, 1:], ValueError, r"\[4, 4, 6\] and (masks|images) \[4, "),
    "fewer maps": ("maps", lambda m: m[:3], ValueError, r"\[3, 5, 6\] and (masks|images) \[4, "),
    "maps with channels": (
        "maps",
        lambda m: m[:, None].repeat(3, 1),
        ValueError,
        r"\[4, 3, 5, 6\].*Reduce the channels",
    ),
    "flat maps": ("maps", lambda m: m.reshape(-1), ValueError, r"\[120\]"),
    "maps without pixels": ("maps", lambda m: m[:, :0], ValueError, r"\[4, 0, 6\]"),
    "complex maps": ("maps", lambda m: m + 0j, TypeError, "maps must hold real numbers, got complex128"),
    "maps in a list": (
        "maps",
        lambda m: m.tolist(),
        TypeError,
        "maps must be a numpy array or a torch tensor, got list",
    ),
    "masks of another size": ("masks", lambda m: m[:, :, 1:], ValueError, r"maps \[4, 5, 6\] and masks \[4, 5, 5\]"),
    "gray masks": ("masks", lambda m: m * 0.5, ValueError, "masks must be binary .* got the value 0.5"),
    "0-255 masks": ("masks", lambda m: m * np.uint8(255), ValueError, "masks must be binary .* got the value 255"),
    "nan in a mask": ("masks", lambda m: put(m, (0, 0, 0), math.nan), ValueError, "masks must be binary .* value nan"),
    "nan in an image": (
        "images",
        lambda x: put(x, (2, 0, 0, 0), math.nan),
        ValueError,
        "images must be finite.*sample 2",
    ),
    "whole numbers": ("images", lambda x: x.astype(int), TypeError, "images must be floating"),
    "images without channels": ("images", lambda x: x[0, 0], ValueError, r"images must be \[N, C, H, W\]"),
    "no images": ("images", lambda x: x[:0], ValueError, r"at least one image, got \[0, 2, 5, 6\]"),
    "fewer targets": ("targets", lambda y: y[:3], ValueError, r"targets: got \[3\], expected \[4\]"),
    "a target too large": (
        "targets",
        lambda y: put(y, 1, 3),
        ValueError,
        "class 3 in samples 1; .* classes 0 to 2",
    ),
    "a negative target": (
        "targets",
        lambda y: put(y, 2, -1),
        ValueError,
        "class -1 in samples 2; .* classes 0 to 2",
    ),
    "fractional targets": ("targets", lambda y: y + 0.5, TypeError, "expected integers"),
    "no model": ("model", lambda m: "resnet18", TypeError, "model must be "),
    "a model that returns [N]": ("model", lambda m: First(m), ValueError, "the model has classes 0 to 0"),
    "an explainer's name": ("explainer", lambda e: "saliency", TypeError, "explainer must be callable"),
    "an explainer of nan": ("explainer", failing, ValueError, "maps of the explainer must be finite.*sample 1"),
    "an explainer with channels": (
        "explainer",
        lambda e: lambda m, x, y: x,
        ValueError,
        r"must return maps \[N, H, W\]",
    ),
}
#: What a metric of the map alone has nothing to compare with.
COMPARED = ("maps of another size", "fewer maps")
CASES = [
    (name, case)
    for case, (argument, *_) in BAD.items()
    for name in applies(argument)
    if not (KIND[name] == "map" and case in COMPARED)
]


class First(torch.nn.Module):
    """A model that returns the score of one class only."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        return self.network(images)[:, 0]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_bad_input_is_refused(name, case):
    argument, change, error, message = BAD[case]
    inputs = good()
    with pytest.raises(error, match=message):
        call(name, inputs | {argument: change(inputs[argument])})


@pytest.mark.parametrize("name", METRICS)
def test_good_input_is_not(name):
    assert math.isfinite(call(name, good()))


@pytest.mark.parametrize("name", METRICS)
def test_an_unknown_reduction_is_refused(name):
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'none', got 'sum'"):
        call(name, good(), reduction="sum")


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
