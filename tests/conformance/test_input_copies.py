"""A network that writes into its input gets the maps and scores of its twin that does not, and the images stay."""

import functools
import itertools

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.explainers import EXPLAINERS, UnsupportedModelError, explain
from xaibench.metrics import METRICS
from xaibench.models import accuracy

SIDE, COUNT = 8, 3


class Network(nn.Module):
    """A small CNN behind a normalization, which is done in place or not."""

    def __init__(self, in_place):
        super().__init__()
        torch.manual_seed(0)
        self.in_place = in_place
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    def forward(self, images):
        images = images.sub_(0.5).div_(0.25) if self.in_place else images.sub(0.5).div(0.25)
        return self.head(self.features(images))


@pytest.fixture(scope="module")
def networks():
    with torch.random.fork_rng():
        return Network(True), Network(False)


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(COUNT, 1, SIDE, SIDE, generator=generator)
    masks = torch.zeros(COUNT, SIDE, SIDE, dtype=torch.bool)
    masks[:, 2:5, 2:5] = True
    return images, masks, torch.tensor([0, 1, 2])


def maps_or_refusal(name, network, images, targets):
    explainer = EXPLAINERS.resolve(name)
    few = {"n_samples": 20, "n_steps": 4, "segmentation_size": 16}
    parameters = {key: few[key] for key in few.keys() & getattr(explainer, "__dataclass_fields__", {}).keys()}
    try:
        part = explainer(**parameters)
        if hasattr(part, "fit"):
            part = part.fit(network, [(images.clone(), images[:, 0] > 0.5, targets)])
        return explain(part, network, images, targets)
    except (UnsupportedModelError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("name", EXPLAINERS)
def test_maps(name, networks, samples):
    images, _, targets = samples
    before = images.clone()
    writing, twin = (maps_or_refusal(name, network, images, targets) for network in networks)
    assert torch.equal(images, before), "the user's images"
    if isinstance(twin, torch.Tensor):
        torch.testing.assert_close(writing, twin, rtol=1e-5, atol=1e-7)
    else:
        assert writing == twin


@pytest.mark.parametrize(
    "name", [name for name in METRICS if METRICS.resolve(name).info.kind in ("model", "explainer")]
)
def test_scores(name, networks, samples):
    images, _, targets = samples
    metric, before = METRICS.resolve(name), images.clone()
    maps = torch.rand(COUNT, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    scores = []
    for network in networks:
        if metric.info.kind == "model":
            scores.append(metric(network, images, maps, targets, reduction="none"))
        else:
            asked = functools.partial(explain, "saliency")
            scores.append(metric(asked, network, images, targets, reduction="none"))
        assert torch.equal(images, before), "the user's images"
    np.testing.assert_allclose(np.asarray(scores[0]), np.asarray(scores[1]), rtol=1e-5, atol=1e-7)


def test_accuracy(networks, samples):
    images, _, targets = samples
    before = images.clone()
    data = torch.utils.data.TensorDataset(images, targets)
    assert accuracy(networks[0], data) == accuracy(networks[1], data)
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", ["saliency", "integrated_gradients", "gradcam", "deeplift", "smoothgrad"])
def test_a_network_without_a_gradient_is_refused_with_one_error(name, samples):
    images, _, targets = samples

    class Cut(Network):
        def forward(self, images):
            return super().forward(images.detach()) if name != "gradcam" else super().forward(images).detach()

    with pytest.raises(UnsupportedModelError, match="gradient"):
        explain(name, Cut(False), images, targets)


@pytest.mark.parametrize("what", ["masked", "long double"])
def test_arrays_that_hold_more_than_numbers(what, networks, samples):
    images, masks, targets = (part.numpy() for part in samples)
    maps = images[:, 0]
    if what == "masked":
        odd = np.ma.masked_greater(maps, 0.5)
        with pytest.raises(TypeError, match="maps: got a masked array"):
            METRICS.resolve("mass_accuracy")(odd, masks)
        with pytest.raises(TypeError, match="maps: got a masked array"):
            METRICS.resolve("deletion")(networks[1], images, odd, targets)
        with pytest.raises(TypeError, match="images: got a masked array"):
            explain("saliency", networks[1], odd[:, None], targets)
        return
    odd = maps.astype(np.longdouble)
    assert METRICS.resolve("mass_accuracy")(odd, masks) == METRICS.resolve("mass_accuracy")(maps.astype(float), masks)
    assert METRICS.resolve("deletion")(networks[1], images, odd, targets) == METRICS.resolve("deletion")(
        networks[1], images, maps.astype(float), targets
    )
    if np.finfo(np.longdouble).max > np.finfo(float).max:
        with pytest.raises(ValueError, match="beyond the range of float64"):
            METRICS.resolve("mass_accuracy")(odd * np.longdouble(10) ** 4000, masks)


#: Tensors without real values one after another in memory.
ODD = {
    "complex": lambda tensor: torch.complex(tensor.float(), tensor.float()),
    "meta": lambda tensor: tensor.to("meta"),
    "sparse": lambda tensor: tensor.to_sparse(),
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8),
}


@pytest.mark.parametrize("name", METRICS)
def test_tensors_without_values_are_refused_by_metrics(name, networks, samples):
    images, masks, targets = samples
    metric, network = METRICS.resolve(name), networks[1]
    maps = images[:, 0].clone()
    arguments = {
        "ground-truth": {"maps": maps, "masks": masks},
        "map": {"maps": maps},
        "model": {"model": network, "images": images, "maps": maps, "targets": targets},
        "explainer": {
            "explainer": functools.partial(explain, "saliency"), "model": network, "images": images, "targets": targets
        },
    }[metric.info.kind]  # fmt: skip
    for argument, odd in itertools.product(arguments.keys() & {"images", "maps", "targets"}, ODD.values()):
        refused(TypeError, argument, metric, *(arguments | {argument: odd(arguments[argument])}).values())


@pytest.mark.parametrize("name", ["saliency", "occlusion", "lime", "sobel", "uniform"])
def test_tensors_without_values_are_refused_by_explainers(name, networks, samples):
    images, _, targets = samples
    for odd in ODD.values():
        refused(TypeError, "images", explain, name, networks[1], odd(images), targets)
        refused(TypeError, "targets", explain, name, networks[1], images, odd(targets))
