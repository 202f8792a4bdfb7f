"""ONNX files are opened with the layout, the type and the layers that other frameworks give them."""

import warnings

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.models import open_network
from xaibench.models.opening import exported_files

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx2torch")
helper = pytest.importorskip("onnx.helper")
FLOAT = onnx.TensorProto.FLOAT


class Twin(nn.Module):
    """The network of :func:`save` as torch writes it; its dense layer gets the features with channels last."""

    def __init__(self, channels=3, axes=2):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = (nn.Conv3d if axes == 3 else nn.Conv2d)(channels, 4, 3, padding=1)
            self.dense, self.end = nn.Linear(4 * 6**axes, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = self.conv(x).relu().movedim(1, -1).flatten(1)
        return self.end(self.dense(x).relu())


def images(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def save(file, twin, *, shape=None, kind=FLOAT, dtype=np.float32, opset=11, ends="Softmax", batch="n", first=None):
    """Write the network as tf2onnx does: channels last, transposes around a convolution, products and additions."""
    axes = twin.conv.weight.ndim - 2
    weights = {name: value.detach().numpy().astype(dtype) for name, value in twin.state_dict().items()}
    constants = {
        **{"conv.weight": weights["conv.weight"], "conv.bias": weights["conv.bias"]},
        **{f"{name}.weight": weights[f"{name}.weight"].T for name in ("dense", "end")},
        **{"dense.bias": weights["dense.bias"], "end.bias": weights["end.bias"][None]},
        "flat": np.array([-1 if batch == "n" else batch, twin.dense.in_features]),
    }
    order = [0, *range(2, axes + 2), 1]
    nodes = [
        helper.make_node("Transpose", ["x0"], ["x1"], perm=[0, axes + 1, *range(1, axes + 1)]),
        helper.make_node("Conv", ["x1", "conv.weight", "conv.bias"], ["x2"], pads=[1] * 2 * axes),
        helper.make_node("Relu", ["x2"], ["x3"]),
        helper.make_node("Transpose", ["x3"], ["x4"], perm=order),
        helper.make_node("Reshape", ["x4", "flat"], ["x5"]),
        helper.make_node("MatMul", ["x5", "dense.weight"], ["x6"]),
        helper.make_node("Add", ["x6", "dense.bias"], ["x7"]),
        helper.make_node("Relu", ["x7"], ["x8"]),
        helper.make_node("MatMul", ["x8", "end.weight"], ["x9"]),
        helper.make_node("Add", ["x9", "end.bias"], ["logits"]),
    ]
    if first is not None:
        nodes[0].input[0] = "cast"
        nodes.insert(0, helper.make_node(*first, ["x0"], ["cast"], to=FLOAT))
    if ends:
        nodes.append(helper.make_node(ends, ["logits"], ["answer"]))
    shape = shape or (batch, *[6] * axes, twin.conv.in_channels)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x0", kind, shape)],
        [helper.make_tensor_value_info("answer" if ends else "logits", kind if dtype != np.float32 else FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), file)
    return str(file)


@pytest.mark.parametrize("opset", [11, 13])
def test_a_network_with_channels_last_is_the_network_that_torch_would_write(tmp_path, opset):
    twin = Twin().eval()
    opened = open_network(save(tmp_path / "net.onnx", twin, opset=opset))
    assert (opened.in_shape, opened.num_classes, opened.preprocessing.mean) == ((3, 6, 6), 3, None)
    x, targets = images(2, 3, 6, 6), [0, 2]
    torch.testing.assert_close(opened.module(x), twin(x).softmax(1))
    for name in ("saliency", "ig", "gradcam", "lrp", "lrp_epsilon", "lrp_gamma", "lrp_alpha_beta", "deeplift"):
        with pytest.warns(UserWarning, match="ends in a softmax") as shown:
            maps = xb.explain(name, opened.module, x, targets)
        assert sum("ends in a softmax" in str(each.message) for each in shown) == 1  # onnx2torch 1.5 warns, too
        torch.testing.assert_close(maps, xb.explain(name, twin, x, targets), rtol=1e-4, atol=1e-7)
    assert sum(isinstance(layer, nn.Linear) for layer in opened.module.modules()) == 2
    assert not list(opened.module.buffers())


def test_volumes_and_gray_images(tmp_path):
    twin = Twin(1, 3)
    opened = open_network(save(tmp_path / "volumes.onnx", twin, ends=None), size=6)
    assert opened.in_shape == (1, 6, 6, 6)
    x = images(2, 1, 6, 6, 6)
    torch.testing.assert_close(opened.module(x), twin(x))
    gray = open_network(save(tmp_path / "gray.onnx", Twin(1), ends=None))
    assert gray.in_shape == (1, 6, 6)


def test_an_input_without_channels(tmp_path):
    """Keras' first tutorial: Flatten(input_shape=(28, 28))."""
    weight = images(42, 2)
    nodes = [helper.make_node("Flatten", ["x"], ["y"]), helper.make_node("MatMul", ["y", "w"], ["z"])]
    value = [helper.make_tensor_value_info("x", FLOAT, ("n", 6, 7))], [helper.make_tensor_value_info("z", FLOAT, None)]
    graph = helper.make_graph(nodes, "net", *value, [onnx.numpy_helper.from_array(weight.numpy(), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), tmp_path / "a.onnx")
    opened = open_network(str(tmp_path / "a.onnx"))
    assert opened.in_shape == (1, 6, 7)
    x = images(2, 1, 6, 7)
    torch.testing.assert_close(opened.module(x), x.flatten(1) @ weight)


@pytest.mark.parametrize("shape", [("n", "h", "w", 3), ("n", 6, 6, "c"), (None, None, None, None)])
def test_the_order_is_known_from_the_graph_if_lengths_are_not_stated(tmp_path, shape):
    twin = Twin()
    opened = open_network(save(tmp_path / "net.onnx", twin, shape=shape, ends=None), size=6)
    assert opened.in_shape == (3, 6, 6)
    torch.testing.assert_close(opened.module(images(2, 3, 6, 6)), twin(images(2, 3, 6, 6)))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_graph_for_one_batch_takes_any_number_of_images(tmp_path, batch):
    twin = Twin()
    opened = open_network(save(tmp_path / "net.onnx", twin, ends=None, batch=batch))
    for count in (1, 3):
        torch.testing.assert_close(opened.module(images(count, 3, 6, 6)), twin(images(count, 3, 6, 6)))


@pytest.mark.parametrize(("kind", "dtype"), [("FLOAT16", np.float16), ("DOUBLE", np.float64)])
def test_other_floating_types(tmp_path, kind, dtype):
    twin = Twin()
    file = save(tmp_path / "net.onnx", twin, kind=getattr(onnx.TensorProto, kind), dtype=dtype, ends=None)
    opened = open_network(file)
    expected = torch.float64 if kind == "DOUBLE" else torch.float32
    assert {value.dtype for value in opened.module.parameters()} == {expected}
    x = images(2, 3, 6, 6).to(expected)
    torch.testing.assert_close(opened.module(x), twin.to(expected)(x), rtol=1e-2, atol=1e-3)
    assert xb.explain("lrp_epsilon", opened.module, x.float(), [0, 1]).isfinite().all()


def test_integers_from_0_to_255(tmp_path):
    twin = Twin()
    opened = open_network(save(tmp_path / "net.onnx", twin, kind=onnx.TensorProto.UINT8, first=("Cast",), ends=None))
    assert opened.preprocessing.input_range == pytest.approx((0, 255))
    x = images(2, 3, 6, 6)
    torch.testing.assert_close(opened.module(x), twin(255 * x))


def test_what_is_no_network_of_images_is_refused(tmp_path):
    twin, file = Twin(), tmp_path / "net.onnx"
    refused(ValueError, "size", lambda: open_network(save(file, twin), size=8))
    refused(ValueError, "bool", lambda: open_network(save(file, twin, kind=onnx.TensorProto.BOOL)))
    refused(ValueError, "[any, 108]", lambda: open_network(save(file, twin, shape=("n", 108))))
    file.write_bytes(b"nothing")
    refused(ValueError, str(file), lambda: open_network(str(file)))


pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Writes(nn.Module):
    """Write a file when it is called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 3)

    def forward(self, x):
        written = torch.from_file("written", True, 8, dtype=torch.uint8)
        return self.layer(x.flatten(1)) + written.sum() * 0


class WritesWhenLoaded(nn.Module):
    """Restore the state of a part, which runs before any pass."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(192, 3)

    def forward(self, x):
        return self.layer(x.flatten(1))

    @torch.jit.export
    def __getstate__(self):
        return (self.layer.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        written = torch.from_file("written", True, 8, dtype=torch.uint8)
        self.layer.weight = state[0] + written.sum() * 0
        self.training = state[1]


class Saves(Writes):
    def forward(self, x):
        torch.save(x, "written")
        return self.layer(x.flatten(1))


@pytest.mark.parametrize("kind", [Writes, WritesWhenLoaded, Saves])
def test_a_program_that_writes_files_is_not_opened(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    torch.jit.script(kind()).save("net.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        refused(ValueError, "save" if kind is Saves else "from_file", lambda: open_network("net.pt", size=8))
        refused(ValueError, "net.py", lambda: open_network("net.pt", size=8))
    assert [file.name for file in tmp_path.iterdir()] == ["net.pt"]


@pytest.mark.parametrize(
    ("program", "unsafe"),
    [
        ("x = torch.from_file(name)", "from_file"),
        ("t = torch\nt . # a comment\n save(x)", "save"),
        ("x = ops.image.read_file(name)", "ops.image.read_file"),
        ("o = ops\nx = o.image.read_file(name)", "ops"),
        ("x = rpc_sync(name)", "rpc_sync"),
        ("_0 : __torch__.torch.classes.dist_c10d.Store", "torch.classes.dist_c10d.Store"),
        ("x = ops.torchvision.nms(boxes) + ops.quantized.linear(x)", None),
        ("x = torch.conv2d(x, self.saved, None)\ny = (self.ops.layer).forward(x)", None),
        ("packed : __torch__.torch.classes.quantized.Conv2dPackedParamsBase", None),
    ],
)
def test_names_that_do_more_than_compute_are_found(program, unsafe):
    found = exported_files._UNSAFE.search(program)
    assert (found is None) == (unsafe is None)
    assert unsafe is None or unsafe in found.group()


def test_what_only_computes_is_opened_with_a_warning(tmp_path):
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(4, 2)).eval()
    for index, module in enumerate((torch.jit.script(network), torch.jit.trace(network, torch.rand(2, 3, 8, 8)))):
        file = tmp_path / f"net{index}.pt"
        module.save(file)
        with pytest.warns(UserWarning, match="runs when it is opened") as shown:
            opened = open_network(str(file), size=8)
        assert shown[0].filename == __file__
        torch.testing.assert_close(opened.module(torch.ones(1, 3, 8, 8)), network(torch.ones(1, 3, 8, 8)))
