"""``XAIBENCH_KERNELS=0``: every operation that has a compiled kernel gives the same result without it, up to rounding.

The kernels' own tests compare each with an oracle in detail; these compare the two paths that a user can choose.
"""

import numpy as np
import pytest
import torch
from fresh_process import run_fresh

from xaibench.data.base import Split
from xaibench.explainers.gradients.xrai import XRAI
from xaibench.kernels.compilation import kernels_enabled
from xaibench.kernels.pixel_updates.first_layer import FlatLinear
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses
from xaibench.metrics.faithfulness.road import imputed
from xaibench.metrics.localization.emd import emd
from xaibench.models import build, fit_many


@pytest.fixture
def both_ways(monkeypatch):
    """Call a function with and without kernels."""

    def call(function):
        monkeypatch.setenv("XAIBENCH_KERNELS", "1")
        assert kernels_enabled()
        compiled = function()
        monkeypatch.setenv("XAIBENCH_KERNELS", "0")
        assert not kernels_enabled()
        return compiled, function()

    return call


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 8, 8, generator=generator)
    targets = (images[:, 0, :4].mean((1, 2)) > images[:, 0, 4:].mean((1, 2))).long()
    return Split(images, torch.ones(count, 8, 8, dtype=torch.bool), targets)


@pytest.mark.parametrize("name", ["llr", "mlp", "cnn"])
def test_training(name, both_ways):
    """Convolution blocks, linear layers and Adam, in single precision."""
    train, val = samples(200, 0), samples(100, 1)

    def fit():
        models = [build(name, (1, 8, 8), 2, seed=seed) for seed in (0, 1)]
        fit_many(models, [train] * 2, [val] * 2, epochs=2, batch_size=64, seeds=[0, 1], device="cpu", progress=False)
        return torch.stack([torch.nn.utils.parameters_to_vector(model.parameters()).detach() for model in models])

    compiled, plain = both_ways(fit)
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-4)


def emd_of(shape, box, **settings):
    maps, masks = np.random.default_rng(0).random(shape), np.zeros(shape, dtype=bool)
    masks[box] = True
    return emd(maps, masks, reduction="none", **settings)


def road_of(*shape):
    image, random = np.random.default_rng(0).standard_normal(shape), np.random.default_rng(1).random(shape[1:])
    return imputed(image, random < 0.75) / np.ptp(image)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: emd_of((6, 8, 8), np.s_[:, 2:4, 3:5]),
        lambda: emd_of((1, 24, 24), np.s_[:, :, 4:12]),
        lambda: emd_of((1, 7, 8, 9), np.s_[:, :, 2:6], spacing=(3.0, 1.0, 0.5)),
        lambda: road_of(3, 31, 50),
        lambda: road_of(2, 7, 9, 8),
        # Of more pixels than are cached.
        lambda: XRAI(segmentation_size=80).segments(np.random.default_rng(0).standard_normal((3, 70, 66)).cumsum(1)),
    ],
    ids=["emd to small masks", "emd of images", "emd of volumes", "road of images", "road of volumes", "segments"],
)
def test_what_is_computed_without_a_network(compute, both_ways):
    np.testing.assert_allclose(*both_ways(compute), rtol=1e-9, atol=1e-9)


def test_bounds_without_kernels_hold_the_exact_distance(both_ways):
    low, high = both_ways(lambda: emd_of((1, 24, 24), np.s_[:, :, 4:12], exact=False))[1]
    exact = emd_of((1, 24, 24), np.s_[:, :, 4:12])
    assert low <= exact * (1 + 1e-9)
    assert high >= exact * (1 - 1e-9)


@pytest.mark.parametrize("network", ["cnn", "mlp"])
@pytest.mark.parametrize("explainer", ["shapley_sampling", "pfi", "occlusion"])
def test_one_pixel_updates(network, explainer, both_ways):
    import xaibench as xb

    model = build(network, (1, 8, 8), 2, seed=0).double().eval()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameters = {"window": 1} if explainer == "occlusion" else {}
    compiled, plain = both_ways(
        lambda: xb.explain(explainer, model, images, torch.tensor([0, 1]), device="cpu", progress=False, **parameters)
    )
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-10)


def test_faster_passes_are_not_looked_for(monkeypatch):
    monkeypatch.setenv("XAIBENCH_KERNELS", "0")
    model, images = build("mlp", (1, 64, 64), 2, seed=0).double().eval(), torch.zeros(1, 1, 64, 64).double()
    assert IncrementalPasses.find(model, images, 1) is None
    assert FlatLinear.find(model, images) is None


def test_the_library_works_without_numba():
    """In a process that cannot import numba: train, explain and score."""
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import xaibench as xb
import xaibench.kernels.emd, xaibench.kernels.multigrid, xaibench.kernels.pixel_updates.loops
import xaibench.kernels.graph_segments, xaibench.kernels.training.convolution_blocks
data = xb.load("xai-tris/lin-white-8x8", n_samples=60)
model = xb.models.build("cnn", (1, 8, 8), 2, seed=0)
xb.models.fit(model, data.train, data.val, epochs=1, progress=False, device="cpu")
result = xb.evaluate(
    ["gradient", "occlusion"], data, model, metrics=["iou", "emd", "road"], samples=4, scored="all", progress=False,
    controls=False, device="cpu",
)
assert len(result.summary()) == 6, result.summary()
"""
    run_fresh(code, XAIBENCH_KERNELS="0")
