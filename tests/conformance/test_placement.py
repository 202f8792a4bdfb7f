"""Everything computes on the device that it is told, waits for it seldom, and leaves its generator alone.

On a pretended device (:mod:`pretend_device`), so that it is seen without a GPU.
"""

import contextlib
import copy
import functools
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pretend_device
import pytest
import torch
from part_cases import ExplainerCase, MetricCase, case
from pretend_device import WrongPlaceError, pretended
from torch import nn

import xaibench as xb
from xaibench.explainers import EXPLAINERS, build
from xaibench.explainers.gradients import smoothgrad
from xaibench.explainers.perturbation import surrogate
from xaibench.explainers.perturbation.surrogate import least_squares_of_sum
from xaibench.metrics import METRICS
from xaibench.metrics.faithfulness import road as imputation
from xaibench.models import build as build_network
from xaibench.models import fit_head, fit_many
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.stages import execute as execution
from xaibench.runner.stages.execute import execute
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import parse_suite
from xaibench.tensors.random_numbers import sample_generators

pytestmark = pytest.mark.skipif(not pretend_device.available(), reason="this torch has no devices written in Python")

#: Those that ask for a network of another kind.
OTHER_NETWORKS = [name for name in EXPLAINERS if case(EXPLAINERS, name, ExplainerCase()).network != "cnn"]


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2),
        ).eval()  # fmt: skip


def samples(count):
    generator = torch.Generator().manual_seed(1)
    images, maps = torch.randn(6, 3, 8, 8, generator=generator), torch.rand(6, 8, 8, generator=generator)
    return images[:count], maps[:count], torch.arange(count) % 2


def placed(*given):
    """Copies on the pretended device."""
    return [copy.deepcopy(one).to("pretend") for one in given]


def held(found):
    return getattr(found, "held", found)


CHECKS = {"Gradients with rules for ReLUs": 1, "Relevance": 1, "Patterns": 1, "Differences from a baseline": 3}


@pytest.mark.parametrize("name", [name for name in EXPLAINERS if name not in OTHER_NETWORKS])
def test_explainers_compute_on_the_device(name, network):
    part = build(name, **case(EXPLAINERS, name, ExplainerCase()).quick)
    training = (samples(6)[0], samples(6)[1] > 0.5, samples(6)[2])
    part = part.fit(network, [training]) if hasattr(part, "fit") else part
    waits = []
    for count in (2, 6):
        images, _, targets = samples(count)
        expected = xb.explain(part, network, images, targets, device="cpu")
        with pretended() as seen:
            there = copy.deepcopy(network).to("pretend")
            xb.explain(part, there, images, targets, device="pretend")  # checks the network
            before = torch.pretend.get_rng_state(), seen.synchronizations
            found = xb.explain(part, there, images, targets, device="pretend")
            waits.append(seen.synchronizations - before[1])
            assert torch.pretend.get_rng_state().equal(before[0])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    # A further call of ``explain`` waits at most four times: for two looks at the model's outputs, and for the maps.
    # Methods that trace the network compare its outputs, and DeepLIFT its sums.
    more = CHECKS.get(EXPLAINERS.resolve(name).info.family, 0)
    assert waits[0] == waits[1] <= 4 + more + case(EXPLAINERS, name, ExplainerCase()).waits


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS.resolve(name).info.kind == "model"])
def test_metrics_ask_the_model_on_the_device(name, network):
    metric = METRICS.resolve(name)
    images, maps, targets = samples(6)
    expected = metric(network, images, maps, targets, reduction="none")
    waits = []
    for count in (2, 6):
        with pretended() as seen:
            given = placed(network, *(each[:count] for each in (images, maps, targets)))
            metric(*given, reduction="none")  # checks the network
            before = seen.synchronizations
            found = metric(*given, reduction="none")
            waits.append(seen.synchronizations - before)
        torch.testing.assert_close(held(found), expected[:count], rtol=1e-5, atol=1e-7)
    # Whatever the number of samples, points and disturbances.
    assert waits[0] == waits[1] <= 8


@pytest.mark.parametrize("name", ["insertion", "deletion"])
def test_a_curve_waits_as_often_whatever_its_points(name, network):
    waits = []
    for steps in (4, 32):
        with pretended() as seen:
            given = placed(network, *samples(2))
            before = seen.synchronizations
            METRICS.resolve(name)(*given, steps=steps, batch_size=4)
            waits.append(seen.synchronizations - before)
    assert waits[0] == waits[1]


def noted(work, threads):
    """The same, and who does it is written down."""

    def done(*given, **named):
        threads.add(threading.get_ident())
        return work(*given, **named)

    return done


def drawing(threads, *given):
    return [SimpleNamespace(standard_normal=noted(one.standard_normal, threads)) for one in sample_generators(*given)]


@pytest.mark.parametrize("name", ["smoothgrad", "kernel_shap", "road"])
def test_what_the_host_computes_is_done_beside_the_device(name, network, monkeypatch):
    threads = set()
    monkeypatch.setattr(smoothgrad, "sample_generators", functools.partial(drawing, threads))
    monkeypatch.setattr(surrogate, "least_squares_of_sum", noted(least_squares_of_sum, threads))
    monkeypatch.setattr(imputation, "imputed", noted(imputation.imputed, threads))
    for device in ("cpu", "pretend"):
        threads.clear()
        with pretended():
            images, maps, targets = samples(3)
            there = [copy.deepcopy(one).to(device) for one in (network, images, maps, targets)]
            if name == "road":
                METRICS.resolve(name)(*there, percentiles=(50,))
            else:
                xb.explain(name, there[0], images, targets, device=device, n_samples=200)
        assert (threading.get_ident() in threads) == (device == "cpu")


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS.resolve(name).info.kind == "explainer"])
def test_metrics_ask_the_explainer_on_the_device(name, network):
    metric = functools.partial(METRICS.resolve(name), **case(METRICS, name, MetricCase()).quick)
    images, _, targets = samples(6)
    here = functools.partial(xb.explain, "saliency", device="cpu")
    expected = metric(here, network, images, targets, reduction="none")
    with pretended():
        before = torch.pretend.get_rng_state()
        there = functools.partial(xb.explain, "saliency", device="pretend")
        found = metric(there, *placed(network, images, targets), reduction="none")
        assert torch.pretend.get_rng_state().equal(before)
    torch.testing.assert_close(held(found), expected, rtol=1e-5, atol=1e-6)


class Samples(torch.utils.data.Dataset):
    """Samples in memory, as training cuts batches from them, and as ``fit_head`` reads them."""

    def __init__(self, count, channels=1):
        generator = torch.Generator().manual_seed(count)
        self.images = torch.randn(count, channels, 8, 8, generator=generator)
        self.targets = torch.arange(count) % 2

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("name", ["llr", "mlp", "cnn"])
def test_no_training_step_waits(name, many):
    waits = []
    for count in (32, 128):  # two and eight steps an epoch
        with pretended() as seen:
            networks = [build_network(name, (1, 8, 8), 2, seed=seed) for seed in range(many)]
            data = [Samples(count)] * many
            fit_many(networks, data, data, epochs=2, batch_size=16, device="pretend", progress=False)
            waits.append(seen.synchronizations)
        assert all(weight.device.type == "cpu" for weight in networks[0].parameters())
    assert waits[0] == waits[1]


@pytest.mark.parametrize("finetune", ["head", "all"])
def test_no_step_of_fine_tuning_waits(finetune):
    waits = []
    for count in (32, 64):
        with pretended() as seen:
            before = torch.pretend.get_rng_state()
            model = nn.Sequential(
                nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                nn.Dropout(), nn.Linear(16, 2),
            )  # fmt: skip
            data = Samples(count, channels=3)
            fit_head(model, data, data, epochs=2, finetune=finetune, batch_size=8, device="pretend", progress=False)
            waits.append(seen.synchronizations)
            assert torch.pretend.get_rng_state().equal(before)
    assert waits[0] == waits[1]


SUITE = {
    "name": "placed",
    "title": "A suite on a device",
    "data": {"parameters": {"n_samples": 200}},
    "training": {"seeds": [0, 1], "epochs": 2, "batch_size": 64},
    "explaining": {"samples": 5},
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["mlp", "cnn"]}],
    "explainers": {
        "saliency": {},
        "pattern_net": {},
        "pattern_attribution": {},
        "smoothgrad": {"n_samples": 3},
        "uniform": {},
    },
    "metrics": {"iou": {}, "deletion": {}, "sensitivity_max": {"n_samples": 2}},
}


def test_a_suite_runs_on_the_device(tmp_path):
    jobs = make_plan(parse_suite(SUITE)).jobs
    store = Store(tmp_path / "there")
    with pretended() as seen:
        for job in jobs:
            execute(job, store, "pretend")
    # What the trained networks make of the test samples is asked there, too, and patterns are fitted there.
    assert {"train", "api", "fitting"} <= {Path(line.partition(":")[0]).stem for line in seen.sent}
    here = Store(tmp_path / "here")
    for job in jobs:
        execute(job, here, "cpu")
    for job in jobs:
        if job.stage == "score":
            values = [one.load_table("score", job.key)["value"].to_numpy() for one in (store, here)]
            np.testing.assert_allclose(*values, atol=1e-4)


def test_a_job_sends_the_network_once_whatever_its_batches(tmp_path, monkeypatch):
    some = SUITE | {"explainers": {"saliency": {}, "pattern_net": {}}, "metrics": {"deletion": {}}}
    jobs = make_plan(parse_suite(some | {"training": SUITE["training"] | {"seeds": [0]}})).jobs
    copies, copied = [], copy.deepcopy

    def counted(what, *memo):
        asker = Path(sys._getframe(1).f_code.co_filename).stem
        copies.extend([what] * (isinstance(what, nn.Module) and asker == "lending"))
        return copied(what, *memo)

    monkeypatch.setattr(copy, "deepcopy", counted)
    monkeypatch.setattr(execution, "batches", lambda split, start, stop: (split[i : i + 1] for i in range(start, stop)))
    with pretended():
        for job in jobs:
            copies.clear()
            execute(job, Store(tmp_path), "pretend")
            assert len(copies) == (job.stage in ("explain", "score")), f"{job}: five batches, {len(copies)} copies"


def test_evaluate_computes_on_the_device(network):
    images, maps, targets = samples(6)
    split = xb.data.Split(images, maps > 0.5, targets)
    methods, metrics = ["saliency", "gradcam"], ["iou", "deletion", "sensitivity_max"]
    ask = functools.partial(xb.evaluate, methods, split, network, metrics, controls=False)
    expected = ask(device="cpu").table()
    with pretended():
        found = ask(device="pretend").table()
    found, expected = (table.select_dtypes("number").to_numpy() for table in (found, expected))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert all(weight.device.type == "cpu" for weight in network.parameters())


def captums(model, images, targets):
    captum = pytest.importorskip("captum.attr")
    return xb.explain(captum.GradientShap, model, images, targets, device="pretend", baselines=torch.zeros(2, 3, 8, 8))


def test_captum_leaves_the_devices_generator_as_it_was(network):
    images, _, targets = samples(2)
    with pretended() as seen:
        before = torch.pretend.get_rng_state()
        captums(copy.deepcopy(network).to("pretend"), images, targets)
        assert seen.seeded  # it draws on the device, so its generator is seeded
        assert torch.pretend.get_rng_state().equal(before)


def test_the_pretended_device_finds_faults(network):
    """Each fault that it is there for is found, also where the library gets over the error."""

    class Elsewhere(nn.Module):
        def forward(self, images):
            return images.flatten(1)[:, :2] + torch.ones(2)  # on the CPU

    images, _, targets = samples(2)
    with pytest.raises(ValueError, match="on the same device"), pretended():
        xb.explain("saliency", Elsewhere(), images, targets, device="pretend")
    there = functools.partial(torch.ones, 2, device="pretend")
    for fault in (
        lambda: there() + torch.ones(2),
        lambda: torch.ones(2)[there().long()],
        lambda: torch.rand(2, device="pretend").uniform_(generator=torch.Generator()),
    ):
        with pytest.raises(WrongPlaceError), pretended(), contextlib.suppress(WrongPlaceError):
            fault()
    with pretended() as seen:
        float(there().sum())
        there().cpu()
        there()[there() > 0]
        assert seen.synchronizations == 3
        torch.manual_seed(0)
        assert seen.seeded == [0]
