"""Metrics of masks of what a network uses."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import use as oracle
from part_cases import MetricCase

import xaibench as xb
from xaibench.benchmarks import blind
from xaibench.benchmarks.certified.hand_set_networks import HAND_SET
from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.metrics import grid_pointing, mass_outside, use_ap, use_auc
from xaibench.models import build

CASES = {"mass_outside": MetricCase(constant=1.0, takes_magnitude=True), "grid_pointing": MetricCase(constant=6 / 30)}

#: They say exactly zero where there is exactly no effect: they follow gradients, contributions or single changes.
PROMISE_ZERO = (
    "saliency", "integrated_gradients", "input_x_gradient", "smoothgrad", "gradient_shap", "deeplift", "deep_shap",
    "lrp_epsilon", "occlusion", "pfi", "shapley_sampling", "pattern_attribution",
)  # fmt: skip


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("metric", [mass_outside, grid_pointing], ids=lambda metric: metric.__name__)
def test_they_are_what_is_counted_by_hand(metric, data):
    shape = data.draw(st.sampled_from([(1, 1), (1, 5), (2, 3), (6, 2)]))
    elements = st.sampled_from([0.0, 1.0, -1.0, 0.3, -3.0, 1e300, 1e-300])
    map_, mask = data.draw(hnp.arrays(np.float64, shape, elements=elements)), data.draw(hnp.arrays(np.bool_, shape))
    np.testing.assert_allclose(
        metric(map_, mask), getattr(oracle, metric.__name__)(map_, mask), rtol=1e-12, atol=1e-300
    )


def test_chance_is_one():
    rng = np.random.default_rng(0)
    masks = np.broadcast_to(rng.random((8, 8)) < 0.2, (2000, 8, 8))
    assert mass_outside(rng.standard_normal((2000, 8, 8)), masks) == pytest.approx(1, abs=0.01)
    assert mass_outside(np.ones((1, 8, 8)), masks[:1]) == 1


def explained(model, images, targets, name):
    part = xb.explainers.build(name, **({"n_samples": 2} if "shapley" in name else {}))
    fitted = part.fit(model, [images]) if hasattr(part, "fit") else part
    return xb.explain(fitted, model, images, targets, device="cpu", output=None)


@functools.cache
def certified(network):
    """A network set by hand, and samples."""
    data = xb.load(f"certified:{network.rpartition('-')[0]}", seed=0, n_samples=20)
    return build(f"certified:{network}", (1, 8, 8), 2), data.train[:6]


@pytest.mark.parametrize("name", PROMISE_ZERO)
def test_methods_that_promise_zero_leak_nothing_on_any_certified_network(name):
    for network in HAND_SET:
        model, (images, used, targets) = certified(network)
        maps = explained(model, images, targets, name)
        assert mass_outside(maps, used, reduction="none").nan_to_num(0).max() <= 1e-12, network
    visible = torch.zeros(8, 8, dtype=torch.bool)
    visible[2:5, 1:7] = True
    for network in ("llr", "mlp", "cnn"):
        images, targets = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2
        maps = explained(blind(build(network, (1, 8, 8), 2, seed=0), visible), images, targets, name)
        assert mass_outside(maps, visible.expand(6, 8, 8)) <= 1e-12, network


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("guided_backprop", "cancellation-mlp"),  # keeps what is positive, so that nothing cancels
        ("deep_taylor", "cancellation-mlp"),
        ("gradcam", "additive-cnn"),  # a cell is all that it sees
        ("rise", "and-mlp"),
        ("uniform", "xor-cnn"),
    ],
)
def test_others_leak(name, network):
    assert name in EXPLAINERS
    data = xb.load(f"certified:{network.rpartition('-')[0]}", seed=0, n_samples=40)
    images, used, targets = data.train[:20]
    model = build(f"certified:{network}", (1, 8, 8), 2)
    try:
        maps = explained(model, images, targets, name)
    except UnsupportedModelError:
        pytest.fail("it explains such networks")
    assert mass_outside(maps, used) > 0.3


CASES |= {
    "use_auc": MetricCase(constant=0.5, takes_magnitude=True),
    "use_ap": MetricCase(constant=6 / 30, takes_magnitude=True),
}


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize(
    ("metric", "counted"), [(use_auc, oracle.pairs_won), (use_ap, oracle.precision_at_each)], ids=["auc", "ap"]
)
def test_they_are_what_is_counted_pixel_by_pixel(metric, counted, data):
    shape = data.draw(st.sampled_from([(1, 1), (1, 5), (2, 3), (6, 2)]))
    elements = st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0])
    map_, mask = data.draw(hnp.arrays(np.float64, shape, elements=elements)), data.draw(hnp.arrays(np.bool_, shape))
    np.testing.assert_allclose(metric(map_, mask), counted(map_, mask), rtol=1e-12)


def test_evidence_against_is_use_too():
    map_, mask = np.array([[-2.0, 1.0, 0.0, 0.5]]), np.array([[True, True, False, False]])
    assert use_auc(map_, mask) == use_ap(map_, mask) == 1
