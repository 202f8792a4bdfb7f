"""Evaluations of volumes, with the spacing that the data set gives."""

import numpy as np
import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.evaluation import read_maps, write_template
from xaibench.evaluation.apply import AppliedMetric, decode_maps, encode_maps
from xaibench.evaluation.protocol import PROTOCOLS, scaled
from xaibench.metrics import METRICS, chance_level

COUNT, SHAPE = 8, (5, 6, 7)
OF_DISTANCE = [name for name in METRICS if "spacing" in METRICS.resolve(name).info.sample_inputs]
#: Under which a pointing game has distances.
PARAMETERS = {name: {"tolerance": 2.0} if name == "hit" else {} for name in OF_DISTANCE}
SPACING = np.random.default_rng(1).uniform(0.5, 3, (COUNT, 3))


class Scans(xb.data.Split):
    """Volumes with a voxel spacing per sample."""

    def metric_inputs(self, index):
        return {"spacing": SPACING[index]}


@pytest.fixture
def scans():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(COUNT, 1, *SHAPE, generator=generator)
    masks = torch.rand(COUNT, *SHAPE, generator=generator) < 0.2
    return Scans(images, masks, torch.arange(COUNT) % 2)


@pytest.fixture
def maps():
    return torch.randn(COUNT, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 5 * 6 * 7, 2)).eval()


def gradient(model, images, targets):
    x = images.detach().requires_grad_()
    return torch.autograd.grad(model(x).gather(1, targets[:, None]).sum(), x)[0].sum(1)


def batch_of(split):
    return split.images, split.masks, split.targets


def test_evaluate_takes_volumes(scans, maps, network):
    found = xb.evaluate(
        {"gradient": gradient, "given": maps}, scans, network, controls=False, scored="all", progress=False
    )
    table = found.scores
    assert set(table["method"]) == {"gradient", "given"}
    assert len(table) == 2 * COUNT * 9
    assert table["value"].notna().all()
    given = table[(table["method"] == "given") & (table["metric"] == "iou")]["value"]
    expected = xb.iou(maps.abs().numpy(), scans.masks.numpy(), threshold="area", reduction="none")
    np.testing.assert_array_equal(given, expected)


def test_evaluate_takes_metrics_that_call_the_explainer(scans, network):
    found = xb.evaluate(
        gradient, scans, network, ["sensitivity_max"], controls=False, scored="all", samples=2, progress=False
    )
    assert found.scores["value"].between(0, np.inf, inclusive="left").all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_metric_of_distance_gets_the_spacing_of_the_samples(scans, maps, protocol):
    found = xb.evaluate(
        maps, scans, metrics=PARAMETERS, controls=False, batch_size=3, protocol=protocol, progress=False
    ).scores
    for name, parameters in PARAMETERS.items():
        function, masks = METRICS.resolve(name), scans.masks.numpy()
        expected = function(maps.abs().numpy(), masks, spacing=SPACING, reduction="none", **parameters)
        np.testing.assert_allclose(found[found["metric"] == name]["value"], expected, rtol=1e-9)
        plain = function(maps.abs().numpy(), masks, reduction="none", **parameters)
        assert not np.allclose(expected, plain)


@pytest.mark.parametrize("name", OF_DISTANCE)
def test_a_spacing_that_is_set_takes_precedence(name, scans, maps):
    metric = AppliedMetric(name, PARAMETERS[name] | {"spacing": None}, protocol="published")
    found = metric(maps, batch_of(scans), sample_inputs=scans.metric_inputs(slice(None)))["value"]
    expected = METRICS.resolve(name)(maps.numpy(), scans.masks.numpy(), reduction="none", **PARAMETERS[name])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", OF_DISTANCE)
def test_a_map_scored_as_chance_has_the_chance_level_of_its_spacing(name, scans, maps):
    maps[[2, 5]] = 0
    metric = AppliedMetric(name, PARAMETERS[name], protocol="published")
    found = metric(maps, batch_of(scans), sample_inputs=scans.metric_inputs(slice(None)))["value"][[2, 5]]
    if metric.info.skill_of:
        assert found.tolist() == [0.0, 0.0]
        return
    parameters = PARAMETERS[name] | {"spacing": SPACING[[2, 5]]}
    np.testing.assert_array_equal(found, chance_level(name, scans.masks[[2, 5]].numpy(), parameters))


def test_skills_follow_from_stored_scores_and_the_spacing(scans, maps):
    metric, more = AppliedMetric("emd_skill", protocol="published"), scans.metric_inputs(slice(None))
    raw = metric.raw(maps, batch_of(scans), sample_inputs=more)
    expected = metric(maps, batch_of(scans), sample_inputs=more)["value"]
    np.testing.assert_array_equal(metric.against_chance(raw, scans.masks, more)["value"], expected)
    assert not np.allclose(metric.against_chance(raw, scans.masks)["value"], expected)


def test_stored_maps_of_volumes_are_read_as_they_were():
    maps = torch.randn(3, *SHAPE, dtype=torch.float64) * torch.tensor([1e-60, 1.0, 1e30]).reshape(3, 1, 1, 1)
    encoded = encode_maps(maps)
    assert encoded["maps"].shape == maps.shape
    assert encoded["powers"].shape == (3,)
    torch.testing.assert_close(decode_maps(encoded), maps, rtol=1e-7, atol=0)
    flat = decode_maps(encode_maps(maps.flatten(2)))
    assert torch.equal(decode_maps(encoded), flat.reshape(maps.shape))


def test_maps_of_volumes_are_scaled_one_by_one(maps):
    found = scaled(maps.numpy())
    np.testing.assert_array_equal(found, scaled(maps.flatten(2).numpy()).reshape(found.shape))
    assert found.min() == 0
    assert found.max() == 1


def test_files_hold_maps_of_volumes(tmp_path, scans, maps):
    write_template(tmp_path / "maps.npz", scans)
    with np.load(tmp_path / "maps.npz") as template:
        assert template["maps"].shape == maps.shape
        np.savez(tmp_path / "maps.npz", ids=template["ids"], maps=maps.numpy())
    np.testing.assert_array_equal(read_maps(tmp_path / "maps.npz", scans.ids), maps.numpy())
