"""Networks pretrained on ImageNet: what they are made of, where weights come from, and what explains them."""

from __future__ import annotations

import functools
import urllib.error

import pytest
import torch
from part_cases import ModelCase
from refusals import refused
from safetensors.torch import save_file

import xaibench as xb
from xaibench.explainers import UnsupportedModelError
from xaibench.explainers.shared.layers import find_layer
from xaibench.models import FOLDS, Folded, WeightsNotFoundError, build
from xaibench.models.networks.pretrained import Normalize, last_linear

SHAPE = (3, 64, 64)
HEADS = {
    "resnet18": "fc",
    "resnet50": "fc",
    "vgg16": "classifier.6",
    "vgg19": "classifier.6",
    "densenet121": "classifier",
    "efficientnet_b0": "classifier.1",
    "vit_b_16": "heads.head",
    "efficientnet_lite0": "_fc",
}
LAYERS = {
    "resnet18": "network.layer4",
    "resnet50": "network.layer4",
    "vgg16": "network.features.29",
    "densenet121": "network.features",
    "efficientnet_b0": "network.features",
    "vit_b_16": "network.encoder.layers.encoder_layer_11.ln_1",
    "efficientnet_lite0": "network._swish",
}
CASES = {name: ModelCase(big=True) for name in ("resnet50", "vgg16", "vgg19", "vit_b_16")}


@functools.cache
def network(name):
    """Made once for all tests that leave it as it is."""
    if name == "efficientnet_lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    return build(name, SHAPE, 2, weights=None)


def pictures(count=2, side=64):
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def offline(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no network here")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("torch.hub.urlopen", refuse)
    torch_home, _ = torch.hub.get_dir(), torch.hub.set_dir(tmp_path)
    yield tmp_path
    torch.hub.set_dir(torch_home)


@pytest.mark.parametrize("name", HEADS)
def test_the_last_layer_is_new(name):
    if name == "efficientnet_lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    with torch.device("meta"):
        model = build(name, SHAPE, 3, weights=None)
    found, layer = last_linear(model.network)
    assert (found, layer.out_features) == (HEADS[name], 3)
    assert model.explain_dtype == torch.float32
    assert not any(module.training for module in model.modules())


def test_the_normalization_is_inside():
    model, x = network("resnet18"), pictures()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        expected = model.network((x - mean[:, None, None]) / std[:, None, None])
        torch.testing.assert_close(model(x), expected)
    assert not any(key.startswith("normalize") for key in model.state_dict())


@pytest.mark.parametrize("name", LAYERS)
def test_gradcam_finds_its_layer(name):
    model, x = network(name), pictures(1)
    assert find_layer("gradcam", model, x).name == LAYERS[name]
    maps = xb.explain("gradcam", model, x, torch.tensor([0]), output="margin")
    assert (maps.shape, maps.dtype) == ((1, 64, 64), torch.float32)
    assert maps.abs().max() > 0


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "densenet121", "efficientnet_b0", "efficientnet_lite0"])
def test_gradcam_is_the_positive_part_of_cam(name):
    # So it must be after average pooling and one linear layer, up to the number of positions. In float64: the values
    # of untrained networks are so large that float32 rounds their means away.
    model, x, y = network(name), pictures(1), torch.tensor([1])
    part = {"dtype": torch.float64, "device": "cpu"}
    cam, gradcam = xb.explain("cam", model, x, y, **part), xb.explain("gradcam", model, x, y, **part)
    positive = cam[(cam > 0) & (gradcam > 0)] / gradcam[(cam > 0) & (gradcam > 0)]
    coarse = find_layer("cam", model, x)
    assert coarse.name == LAYERS[name]
    assert cam.abs().max() > 0
    assert positive.numel() > 0
    assert (positive.median() - 4).abs() < 0.5  # 2 x 2 positions


@pytest.mark.parametrize("name", ["vgg16", "vit_b_16"])
def test_cam_says_which_networks_it_cannot_explain(name):
    refused(UnsupportedModelError, "pooling", xb.explain, "cam", network(name), pictures(), torch.tensor([0, 1]))


def test_the_last_relu_of_densenet_is_a_layer_and_changes_nothing():
    from torchvision.models import densenet121

    model, x = network("densenet121"), pictures()
    plain = densenet121(weights=None, num_classes=2).eval()
    plain.load_state_dict(model.network.state_dict())
    with torch.no_grad():
        assert torch.equal(plain(x), model.network(x))


def test_weights_of_a_file(tmp_path):
    source = build("resnet18", SHAPE, 1000, weights=None, head="pretrained", seed=3)
    torch.save(source.network.state_dict(), tmp_path / "plain.pth")
    torch.save({"state_dict": source.state_dict()}, tmp_path / "nested.pth")
    save_file(source.state_dict(), tmp_path / "safe.safetensors")
    x = pictures()
    for file in ("plain.pth", "nested.pth", "safe.safetensors"):
        whole = build("resnet18", SHAPE, 1000, weights=tmp_path / file, head="pretrained")
        assert torch.equal(whole(x), source(x))
        new = build("resnet18", SHAPE, 4, weights=str(tmp_path / file), seed=1)
        assert torch.equal(new.network.conv1.weight, source.network.conv1.weight)
        assert new(x).shape == (2, 4)
    again = build("resnet18", SHAPE, 4, weights=tmp_path / "plain.pth", seed=1)
    assert torch.equal(again.network.fc.weight, new.network.fc.weight)
    folded = build("resnet18", SHAPE, 2, weights=tmp_path / "plain.pth", fold="pet", weighting="sum")
    torch.testing.assert_close(folded(x), Folded(source, FOLDS["pet"], "sum")(x))


def test_weights_that_were_trained_here_come_back(tmp_path):
    trained = build("resnet18", SHAPE, 5, weights=None, seed=3)
    torch.save(trained.state_dict(), tmp_path / "mine.pth")
    back = build("resnet18", SHAPE, 5, weights=tmp_path / "mine.pth", head="pretrained")
    assert torch.equal(back(pictures()), trained(pictures()))


def test_old_densenet_files_have_other_names(tmp_path):
    source = network("densenet121").network.state_dict()
    old = {}
    for key, value in source.items():
        part = key.split(".")
        if len(part) == 5 and part[2].startswith("denselayer"):
            part[3] = f"{part[3][:-1]}.{part[3][-1]}"
        if not key.endswith("num_batches_tracked"):  # these came later
            old[".".join(part)] = value
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, tmp_path / "old.pth")
    model = build("densenet121", SHAPE, 2, weights=tmp_path / "old.pth", head="pretrained")
    assert torch.equal(model(pictures()), network("densenet121")(pictures()))


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_offline_the_error_says_what_goes_where(offline, name):
    from torchvision.models import get_model_weights

    url = get_model_weights(name).IMAGENET1K_V1.url
    for said in (name, url, str(offline / "checkpoints"), "weights=None", "no network here"):
        refused(WeightsNotFoundError, said, build, name, (3, 224, 224), 2)


def test_weights_in_the_cache_folder_need_no_network(offline, monkeypatch):
    from torchvision.models import get_model_weights

    source = build("resnet18", SHAPE, 1000, weights=None, head="pretrained", seed=3)
    folder = offline / "checkpoints"
    folder.mkdir()
    torch.save(source.network.state_dict(), folder / get_model_weights("resnet18").IMAGENET1K_V1.url.rsplit("/", 1)[1])
    model = build("resnet18", SHAPE, 1000, head="pretrained")
    assert torch.equal(model(pictures()), source(pictures()))


class Evil:
    def __reduce__(self):
        return (print, ("this code was run",))


def test_a_pickle_that_runs_code_is_refused(tmp_path, capsys):
    torch.save({"fc.weight": Evil()}, tmp_path / "evil.pth")
    refused(ValueError, "pickled", lambda: build("resnet18", SHAPE, 2, weights=tmp_path / "evil.pth"))
    assert capsys.readouterr().out == ""


def altered(change):
    state = network("resnet18").network.state_dict()
    change(state)
    return state


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda s: s.pop("conv1.weight"), "conv1.weight"),
        (lambda s: s.update(extra=torch.zeros(1)), "extra"),
        (lambda s: s.update({"bn1.bias": torch.zeros(3)}), "shape: bn1.bias"),
        (lambda s: s.update({"bn1.bias": torch.full((64,), torch.nan)}), "weights in bn1.bias"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, state, message):
    torch.save(altered(state), tmp_path / "bad.pth")
    refused(ValueError, message, lambda: build("resnet18", SHAPE, 2, weights=tmp_path / "bad.pth"))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters", "message"),
    [
        ("resnet18", (1, 64, 64), 2, {}, "in_shape"),
        ("vgg16", (3, 16, 16), 2, {}, "32 pixels"),
        ("vit_b_16", (3, 60, 60), 2, {}, "multiples of 16"),
        ("vit_b_16", (3, 64, 32), 2, {"weights": None}, "square"),
        ("vit_b_16", (3, 64, 64), 2, {}, "224 x 224"),
        ("resnet18", SHAPE, 1, {}, "num_classes"),
        ("resnet18", SHAPE, 2, {"head": "old"}, "head="),
        ("resnet18", SHAPE, 2, {"weights": None, "head": "pretrained"}, "1000 outputs"),
        ("resnet18", SHAPE, 3, {"weights": None, "fold": "pet"}, "fold"),
        ("resnet18", SHAPE, 2, {"weights": None, "fold": "zoo"}, "fold="),
        ("resnet18", SHAPE, 2, {"weights": "IMAGENET1K"}, "'IMAGENET1K'"),
        ("efficientnet_lite0", SHAPE, 2, {"weights": "IMAGENET1K_V1"}, "lite0"),
        ("resnet18", SHAPE, 2, {"weights": "none.pth"}, "weights='none.pth'"),
    ],
)
def test_bad_requests_are_refused(offline, name, shape, classes, parameters, message):
    refused(ValueError, message, lambda: build(name, shape, classes, **parameters))


def test_what_is_no_classifier_is_refused():
    refused(ValueError, "Conv2d", lambda: last_linear(torch.nn.Conv2d(1, 1, 1)))
    refused(ValueError, "mean=", lambda: Normalize([0.5], [0.0]))
