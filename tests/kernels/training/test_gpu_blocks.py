"""The Triton kernels compute what torch's layers do; run by Triton's interpreter, which needs no GPU."""

import importlib
import logging
import sys

import pytest
import torch
from torch import nn

from xaibench.kernels.training import convolution_blocks, gpu_blocks
from xaibench.kernels.training.gpu_blocks import GpuBlock
from xaibench.models import build
from xaibench.models.training import network_stack
from xaibench.models.training.network_stack import Adam, Stack

LOOPS = "xaibench.kernels.training.gpu_loops"
CASES = {
    "the paper's": (nn.Conv2d(1, 4, 2, padding=1), nn.MaxPool2d(2), (1, 4, 4)),
    "on many channels": (nn.Conv2d(3, 8, 2, padding=1), nn.MaxPool2d(2), (3, 3, 3)),
    "oblong, without bias": (nn.Conv2d(2, 3, (1, 3), padding=(2, 1), bias=False), nn.MaxPool2d((3, 2)), (2, 5, 7)),
}


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels, interpreted on the CPU in place of a GPU."""
    pytest.importorskip("triton", minversion="3.6")  # interpreters of earlier versions lack parts
    language = importlib.import_module("triton.language")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    # Functions of Triton that are kernels themselves are interpreted only if Triton was imported with the variable set.
    add = language.standard._sum_combine
    monkeypatch.setattr(language, "sum", lambda values, axis: language.reduce(values, axis, add))
    monkeypatch.delitem(sys.modules, LOOPS, raising=False)
    for module in (gpu_blocks, network_stack):
        monkeypatch.setattr(module, "has_triton", lambda device: True)
    yield importlib.import_module(LOOPS)
    sys.modules.pop(LOOPS)


@pytest.mark.parametrize("name", CASES)
def test_a_block_equals_its_layers(name, interpreted):
    conv, pool, shape = CASES[name]
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, *shape, generator=generator).requires_grad_()
    weight = torch.randn(2, *conv.weight.shape, generator=generator).requires_grad_()
    bias = None if conv.bias is None else torch.randn(2, conv.out_channels, generator=generator).requires_grad_()
    block = GpuBlock.of([conv, nn.ReLU(), pool], shape, torch.zeros(()))
    found = block(images, weight, bias)
    sums = [
        nn.functional.conv2d(x, w, None if bias is None else bias[m], padding=conv.padding)
        for m, (x, w) in enumerate(zip(images, weight, strict=True))
    ]
    expected = torch.stack([pool(one.relu()) for one in sums])
    torch.testing.assert_close(found, expected)
    given = [images, weight] if bias is None else [images, weight, bias]
    upstream = torch.randn(expected.shape, generator=generator)
    torch.testing.assert_close(
        torch.autograd.grad(found, given, upstream), torch.autograd.grad(expected, given, upstream)
    )


SIZES = {"C": 1, "F": 4, "KH": 2, "KW": 2, "VH": 2, "VW": 2, "FILTERS": 4, "TAPS": 2, "CHANNELS": 1, "UNROLL": 4}


@pytest.mark.parametrize("name", ["forward", "weight_gradient", "input_gradient", "adam"])
def test_the_kernels_compile(name, monkeypatch, tmp_path):
    """To code for an H100, which needs none; what Triton interprets it may refuse to compile."""
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delitem(sys.modules, LOOPS, raising=False)
    kernel = getattr(importlib.import_module(LOOPS), name)
    constants = {key: value for key, value in (SIZES | {"BLOCK": 128, "DEAD": 255}).items() if key in kernel.arg_names}
    kinds = {"chosen": "*u8"} | dict.fromkeys(
        ("count", "chunk", "height", "width", "out_height", "out_width", "pad_y", "pad_x"), "i32"
    )
    signature = {key: "constexpr" if key in constants else kinds.get(key, "*fp32") for key in kernel.arg_names}
    made = compiler.compile(compiler.ASTSource(kernel, signature, constants), target=target)
    assert "fma.rn.f32" in made.asm["ptx"]


def test_adam_equals_the_plain_one(interpreted):
    generator = torch.Generator().manual_seed(0)
    weights, lr = torch.randn(2, 37, generator=generator), torch.tensor([[0.1], [0.02]])
    plain, one = Adam(weights.double(), lr.double()), weights.clone()
    mean, square = torch.zeros_like(one), torch.zeros_like(one)
    for step in (1, 2):
        gradient = torch.randn(2, 37, generator=generator)
        plain.step(gradient.double())
        first, second = torch.tensor(1 - 0.9**step), torch.tensor(1 - 0.999**step)
        gpu_blocks.adam_step(one, gradient, mean, square, lr, first, second)
        torch.testing.assert_close(one, plain.weights.float())


def test_a_stack_uses_the_blocks(interpreted, monkeypatch):
    networks = [build("cnn", (1, 8, 8), 2, seed=seed) for seed in range(2)]
    images = torch.randn(2, 3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    stack = stack_of(networks)
    expected = stack.logits(images, True)
    # In place of the loops for CPUs.
    monkeypatch.setattr(convolution_blocks.Convolutions, "of", lambda *_: None)
    used, forward = [], GpuBlock.forward
    monkeypatch.setattr(GpuBlock, "forward", lambda block, *given: used.append(block) or forward(block, *given))
    stack = stack_of(networks)
    found = stack.logits(stack.prepare(images), True)
    assert [block.out_shape for block in used] == [(4, 4, 4), (4, 2, 2), (4, 1, 1), (4, 1, 1)]
    torch.testing.assert_close(found, expected)


def stack_of(networks):
    return Stack(networks, (1, 8, 8), [0.01, 0.01], [0, 1], torch.device("cpu"))


def test_without_a_gpu_there_is_no_block():
    conv, pool, shape = CASES["the paper's"]
    assert GpuBlock.of([conv, nn.ReLU(), pool], shape, torch.zeros(())) is None


@pytest.mark.parametrize(
    ("conv", "pool", "shape"),
    [
        (nn.Conv2d(64, 4, 2), nn.MaxPool2d(2), (64, 5, 5)),
        (nn.Conv2d(1, 64, 2), nn.MaxPool2d(2), (1, 5, 5)),
        (nn.Conv2d(1, 4, 7), nn.MaxPool2d(2), (1, 9, 9)),
        (nn.Conv2d(1, 4, 2), nn.MaxPool2d(2), (1, 2, 2)),
    ],
)
def test_large_layers_and_empty_outputs_take_no_block(conv, pool, shape, monkeypatch):
    monkeypatch.setattr(gpu_blocks, "has_triton", lambda device: True)
    assert GpuBlock.of([conv, nn.ReLU(), pool], shape, torch.zeros(())) is None


def test_where_triton_fails_training_goes_on_without_it(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no compiler\nand more")

    monkeypatch.setattr(gpu_blocks, "adam_step", fail)
    monkeypatch.setattr(torch, "zeros", lambda *size, device: torch.ones(*size))
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert not gpu_blocks.has_triton.__wrapped__(torch.device("cuda"))
    assert "Triton does not work here (no compiler); networks are trained with slower kernels." in caplog.text
