"""Networks are opened by reference: what they compute, what is known of them, and what is refused."""

import json
import sys
import textwrap

import pytest
import torch
from fresh_process import run_fresh
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.models import Preprocessing, WeightsNotFoundError, open_network
from xaibench.models.networks.pretrained_weights import weights_checksum
from xaibench.registry.table import UnknownNameError


def small(channels=1, side=16, classes=3):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * side**2, classes)]
        return nn.Sequential(*layers).eval()


NETWORK = small()
VOLUMES = nn.Sequential(nn.Conv3d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
CUBES = nn.Sequential(nn.Conv3d(2, 1, 3, padding=1), nn.Flatten(), nn.Linear(64**3, 2))
ODD = nn.Sequential(nn.Conv3d(1, 1, 3, padding=1), nn.Flatten(), nn.Linear(7**3, 2))
FLAT = nn.Sequential(nn.Flatten(), nn.Linear(4 * 5 * 6, 2))


def factory(in_shape, num_classes):
    return small(in_shape[0], in_shape[1], num_classes)


def images(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def net_file(tmp_path):
    (tmp_path / "parts.py").write_text("SIDE = 28\n")
    file = tmp_path / "my_net.py"
    file.write_text(
        textwrap.dedent(
            """
            import torch
            from parts import SIDE
            from torch import nn

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(SIDE * SIDE, 4)

                def forward(self, x):
                    return {"logits": self.layer(x.flatten(1))}

            def trained():
                torch.manual_seed(3)
                return Net()

            def sized(num_classes=7):
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))

            def asks(num_classes):
                return sized(num_classes)

            NOTHING = 3
            """
        )
    )
    return file


def test_a_module_of_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "references_of_a_test", sys.modules[__name__])
    opened = open_network("references_of_a_test:NETWORK", size=16)
    assert (opened.name, opened.source, opened.in_shape, opened.num_classes) == ("NETWORK", "python", (1, 16, 16), 3)
    assert opened.preprocessing == Preprocessing(size=(16, 16))
    assert opened.preprocessing.input_range == (0, 1)
    assert opened.module is not NETWORK
    x = images(2, 1, 16, 16)
    assert torch.equal(opened.module(x), NETWORK(x))
    made = open_network("references_of_a_test:factory", classes=("a", "b"), size=(16, 16))
    assert (made.num_classes, made.classes, made.in_shape) == (2, ("a", "b"), (3, 16, 16))
    refused(ValueError, "classes=", lambda: open_network("references_of_a_test:NETWORK", classes=5, size=16))
    refused(UnknownNameError, "'NETWORKS'", lambda: open_network("references_of_a_test:NETWORKS"))


def test_a_function_of_a_file(net_file):
    opened = open_network(f"{net_file}:trained")
    assert (opened.name, opened.in_shape, opened.num_classes, opened.classes) == ("trained", (1, 28, 28), 4, None)
    assert xb.explain("saliency", opened.module, images(2, 1, 28, 28), [0, 3]).abs().max() > 0
    assert open_network(f"{net_file}:sized").num_classes == 7
    assert open_network(f"{net_file}:asks", classes=5).num_classes == 5
    refused(ValueError, "num_classes", open_network, f"{net_file}:asks")
    refused(ValueError, "'trained'", open_network, f"{net_file}:train")
    refused(TypeError, "int", open_network, f"{net_file}:NOTHING")
    refused(ValueError, "no such file", lambda: open_network("nowhere.py:net"))


def test_the_normalization_of_a_network_is_stated(monkeypatch):
    monkeypatch.setitem(sys.modules, "references_of_a_test", sys.modules[__name__])
    assert open_network("references_of_a_test:NETWORK", size=16).preprocessing.pixels == "in [0, 1] as they are"
    monkeypatch.setattr(sys.modules[__name__], "NETWORK", xb.models.Classifier(NETWORK, [0.5], [0.25]))
    opened = open_network("references_of_a_test:NETWORK", size=16).preprocessing
    assert (opened.mean, opened.std, opened.pixels) == ((0.5,), (0.25,), "in [0, 1], normalized inside to -2 to 2")


def test_the_checksum_is_that_of_the_weights(net_file, tmp_path):
    opened = open_network(f"{net_file}:trained")
    code = f"from xaibench.models import open_network; print(open_network({f'{net_file}:trained'!r}).sha256)"
    assert run_fresh(code).stdout.strip() == opened.sha256
    changed = open_network(f"{net_file}:trained").module
    changed.layer.bias.data[0] += 1
    torch.jit.trace(NETWORK, images(2, 1, 16, 16)).save(tmp_path / "same.pt")
    assert open_network(str(tmp_path / "same.pt"), size=16).sha256 == weights_checksum(NETWORK)
    assert weights_checksum(changed) != opened.sha256


def test_a_torchscript_file(tmp_path):
    file = tmp_path / "saved.ts"
    torch.jit.trace(NETWORK, images(2, 1, 16, 16)).save(file)
    opened = open_network(str(file))
    assert (opened.name, opened.source, opened.in_shape, opened.num_classes) == ("saved", "torchscript", (1, 16, 16), 3)
    x = images(2, 1, 16, 16)
    assert torch.equal(opened.module(x), NETWORK(x))
    expected = xb.explain("saliency", NETWORK, x, [0, 1])
    torch.testing.assert_close(xb.explain("saliency", opened.module, x, [0, 1]), expected)


class Dangerous:
    def __reduce__(self):
        return exec, ("raise SystemError('code of a pickle was run')",)


@pytest.mark.parametrize("content", [NETWORK, NETWORK.state_dict(), Dangerous()], ids=["module", "weights", "code"])
def test_no_pickle_is_read(tmp_path, content):
    file = tmp_path / "saved.pth"
    torch.save(content, file)
    refused(ValueError, "net.py", lambda: open_network(str(file)))


def test_torchvision():
    opened = open_network("torchvision:resnet18", pretrained=False, size=64, seed=1)
    assert (opened.source, opened.in_shape, opened.num_classes) == ("torchvision", (3, 64, 64), 1000)
    assert opened.classes is None
    assert opened.preprocessing.resize == 256
    assert opened.preprocessing.input_range == pytest.approx((-2.1179, 2.64), abs=1e-3)
    mean, std = (torch.tensor(x)[:, None, None] for x in (opened.preprocessing.mean, opened.preprocessing.std))
    x = images(2, 3, 64, 64)
    torch.testing.assert_close(opened.module(x), opened.module.network((x - mean) / std))
    assert open_network("resnet18", pretrained=False, size=64, seed=1).sha256 == opened.sha256
    assert open_network("resnet18", pretrained=False, size=64, seed=2).sha256 != opened.sha256
    few = open_network("torchvision:mobilenet_v3_small", pretrained=False, classes=("cat", "dog"), size=32)
    assert (few.num_classes, few.classes) == (2, ("cat", "dog"))
    refused(ValueError, "resnet81", lambda: open_network("torchvision:resnet81"))


def test_registered_architectures_need_classes_and_size():
    assert open_network("cnn", classes=2, size=8).in_shape == (1, 8, 8)
    refused(ValueError, "classes=", lambda: open_network("cnn"))


def test_timm():
    pytest.importorskip("timm")
    opened = open_network("timm:resnet10t", pretrained=False)
    assert (opened.source, opened.in_shape, opened.num_classes) == ("timm", (3, 176, 176), 1000)
    assert (opened.preprocessing.resize, opened.preprocessing.interpolation) == (201, "bicubic")
    assert open_network("resnet10t", pretrained=False).sha256 == opened.sha256
    assert open_network("timm:vit_tiny_patch16_224", pretrained=False, classes=5, size=32).num_classes == 5
    refused(ValueError, "'torchvision:resnet34'", lambda: open_network("resnet34", pretrained=False))


PROCESSOR = {"do_rescale": True, "rescale_factor": 1 / 255, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.2]}


@pytest.fixture
def transformer(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label={0: "ape", 1: "bee", 2: "cat"},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = transformers.ViTForImageClassification(config).eval()
    network.save_pretrained(tmp_path / "vit")
    return network, tmp_path / "vit"


@pytest.mark.parametrize(
    ("change", "mean", "std"),
    [
        ({}, (0.5, 0.4, 0.3), (0.5, 0.5, 0.2)),
        ({"do_normalize": False}, (0, 0, 0), (1, 1, 1)),
        ({"do_rescale": False}, (0.5 / 255, 0.4 / 255, 0.3 / 255), (0.5 / 255, 0.5 / 255, 0.2 / 255)),
    ],
)
def test_transformers(transformer, change, mean, std):
    network, folder = transformer
    processor = PROCESSOR | {"resample": 3, "size": {"shortest_edge": 36}} | change
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    opened = open_network(str(folder))
    assert (opened.source, opened.classes, opened.in_shape) == ("hf", ("ape", "bee", "cat"), (3, 32, 32))
    assert opened.preprocessing.mean == pytest.approx(mean)
    assert opened.preprocessing.std == pytest.approx(std)
    assert (opened.preprocessing.resize, opened.preprocessing.interpolation) == (36, "bicubic")
    x = images(2, 3, 32, 32)
    pixels = x if processor.get("do_rescale") else 255 * x
    shift, scale = (torch.tensor(processor[key])[:, None, None] for key in ("image_mean", "image_std"))
    given = (pixels - shift) / scale if processor.get("do_normalize", True) else pixels
    torch.testing.assert_close(opened.module(x), network(given).logits, rtol=1e-4, atol=1e-5)
    assert open_network(f"hf:{folder}", pretrained=False, seed=1).sha256 != opened.sha256


def test_transformers_are_explained_as_they_are(transformer):
    network, folder = transformer
    x = images(2, 3, 32, 32)
    logits = xb.models.Wrapped(network, lambda network, x: network(x).logits)
    for name in ("saliency", "lrp_epsilon", "gradcam", "attnlrp", "attention_rollout", "legrad"):
        expected = xb.explain(name, logits, x, [0, 2])
        torch.testing.assert_close(xb.explain(name, network, x, [0, 2]), expected)
        assert expected.abs().max() > 0
    with pytest.warns(UserWarning, match="no preprocessor_config.json"):
        assert open_network(str(folder)).preprocessing.mean is None


def test_weights_that_lack_the_classifier_are_refused_instead_of_drawn_at_random(transformer):
    network, folder = transformer
    network.vit.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(network.config.to_dict()))
    refused(ValueError, "classifier.weight", lambda: open_network(str(folder)))


def test_what_is_no_image_classifier_of_transformers_is_refused(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    refused(ValueError, "transformers", lambda: open_network(str(tmp_path)))
    refused(WeightsNotFoundError, "config.json", lambda: open_network(f"hf:{tmp_path / 'missing'}"))


def test_onnx(tmp_path):
    pytest.importorskip("onnx2torch")
    file = tmp_path / "saved.onnx"
    named = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    torch.onnx.export(NETWORK, (images(2, 1, 16, 16),), file, dynamo=False, **named)
    opened = open_network(str(file))
    assert (opened.source, opened.in_shape, opened.num_classes) == ("onnx", (1, 16, 16), 3)
    x = images(2, 1, 16, 16)
    torch.testing.assert_close(opened.module(x), NETWORK(x))
    for name in ("saliency", "gradcam", "lrp_epsilon"):
        torch.testing.assert_close(xb.explain(name, opened.module, x, [0, 1]), xb.explain(name, NETWORK, x, [0, 1]))


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [("timm", "timm:net", "timm"), ("transformers", "hf:a/b", "transformers"), ("onnx2torch", "net.onnx", "onnx")],
)
def test_a_missing_library_names_its_extra(monkeypatch, tmp_path, library, name, extra):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"")
    refused(ModuleNotFoundError, f"xaibench[{extra}]", open_network, name)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "text"),
        (None, "text"),
        ("missing.pt", "missing.pt"),
        ("./folder/without", "./folder/without"),
        ("resnet_18000", "resnet_18000"),
        ("nowhere.at_all:net", "'nowhere'"),
    ],
)
def test_other_references_are_refused(reference, message):
    refused(ValueError, message, lambda: open_network(reference))


def test_a_network_that_accepts_no_usual_size_asks_for_it(net_file):
    net_file.write_text(
        "from torch import nn\nnet = nn.Sequential(nn.Conv2d(2, 1, 1), nn.Flatten(), nn.Linear(17 * 19, 2))\n"
    )
    refused(ValueError, "size=", lambda: open_network(f"{net_file}:net"))
    assert open_network(f"{net_file}:net", size=(17, 19)).in_shape == (2, 17, 19)


@pytest.mark.parametrize(
    ("name", "size", "in_shape"),
    [
        ("VOLUMES", None, (1, 32, 32, 32)),
        ("VOLUMES", 10, (1, 10, 10, 10)),
        ("VOLUMES", (8, 10, 12), (1, 8, 10, 12)),
        ("CUBES", None, (2, 64, 64, 64)),
        ("FLAT", (4, 5, 6), (1, 4, 5, 6)),  # without a convolution, the size says that it takes volumes
    ],
)
def test_a_network_with_a_3d_convolution_gets_volumes(name, size, in_shape):
    opened = open_network(f"{__name__}:{name}", size=size)
    assert opened.in_shape == in_shape
    assert opened.preprocessing.size == in_shape[1:]


def test_a_network_that_takes_no_volume_of_a_usual_size_is_refused():
    refused(ValueError, "8 to 96", lambda: open_network(f"{__name__}:ODD"))
