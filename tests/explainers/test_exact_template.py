"""Methods written to EXACT's template are explainers as they are."""

import pytest
import torch
from captum.attr import LRP, GradientShap

import xaibench as xb
from xaibench.explainers.exact_template import ExactMethod
from xaibench.models import build


def XAI_Method(data: torch.Tensor, target: torch.Tensor, model: torch.nn.Module) -> torch.tensor:  # noqa: N802
    return LRP(model).attribute(data, target=target)


def XAI_Method_with_more(data, target, model, n_samples=5):  # noqa: N802
    return GradientShap(model).attribute(data, torch.zeros_like(data), n_samples, target=target)


@pytest.fixture(scope="module")
def batch():
    data = xb.load("xai-tris/lin-white-8x8", n_samples=100, seed=0)
    return data.test[:4]


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_its_maps_are_those_of_the_function_on_flat_images(batch, name):
    images, _, targets = batch
    network = build(name, (1, 8, 8), 2, seed=0)

    maps = xb.explain(XAI_Method, network, images, targets, output="logit")

    expected = LRP(network.double()).attribute(images.double(), target=targets).sum(1)
    torch.testing.assert_close(maps.double(), expected.detach())


def test_it_is_named_by_its_module_and_takes_its_own_parameters(batch):
    images, _, targets = batch
    network = build("mlp", (1, 8, 8), 2, seed=0)

    few, many = (
        xb.explain(f"{__name__}:XAI_Method_with_more", network, images, targets, n_samples=count) for count in (1, 200)
    )

    assert few.shape == (4, 8, 8)
    assert not torch.allclose(few, many)
    again = xb.explain(XAI_Method_with_more, network, images, targets, n_samples=1)
    assert torch.equal(few, again)  # it draws from torch's and NumPy's own generators
    assert xb.explainers.build(XAI_Method).__name__ == "XAI_Method"
    assert xb.explainers.build(XAI_Method_with_more, n_samples=2).__name__ == "XAI_Method_with_more"
    with pytest.raises(TypeError, match="n_sample"):
        xb.explainers.build(XAI_Method_with_more, n_sample=2)


def test_it_is_scored_like_any_other():
    data = xb.load("xai-tris/lin-white-8x8", n_samples=100, seed=0)
    network = build("mlp", (1, 8, 8), 2, seed=0)

    result = xb.evaluate(XAI_Method, data, network, metrics="hit", scored="all", controls=False, progress=False)

    assert result.summary()["method"].tolist() == ["XAI_Method"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [(lambda data: None, "NoneType"), (lambda data: data[:, :5], r"\[4, 5\], expected .* \[4, 64\]")],
)
def test_what_is_no_map_is_refused_in_words(batch, returned, message):
    images, _, targets = batch

    def method(data, target, model):
        return returned(data)

    with pytest.raises(ValueError, match=message):
        ExactMethod(method)(build("mlp", (1, 8, 8), 2, seed=0), images, targets)
