"""The networks of the suite parts."""

import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.explainers.shared.tokens import token_layout
from xaibench.models import build
from xaibench.network.outputs import ImageShapeError


def network(name):
    return build(name, (3, 96, 96), 8, seed=1).eval()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("parts_cnn", (16 * 3 * 25 + 16) + (32 * 16 * 9 + 32) + (48 * 32 * 9 + 48) + (48 * 48 * 9 + 48) + (8 * 48 + 8)),
        (
            "parts_vit",
            # the stem, patches and positions; two blocks of two norms, attention and an MLP; the last norm and the head
            (16 * 3 * 25 + 16)
            + (32 * 16 * 9 + 32)
            + (32 * 32 * 4 + 32 + 36 * 32)
            + 2 * (4 * 32 + 4 * (32 * 32 + 32) + 32 * 64 + 64 + 64 * 32 + 32)
            + 2 * 32
            + 8 * 32
            + 8,
        ),
    ],
)
def test_weights_are_as_many_as_stated(name, count):
    assert sum(weight.numel() for weight in network(name).parameters()) == count < 100_000


def test_the_transformer_looks_at_patches_of_sixteen_pixels():
    layout = token_layout("test", network("parts_vit"), torch.zeros(1, 3, 96, 96))
    assert [(tokens.grid, tokens.extra) for tokens in layout.layers] == [((6, 6), 0)] * 2
    assert layout.reads_patches


def test_no_layer_of_the_cnn_is_used_twice():
    calls: list[nn.Module] = []
    model = network("parts_cnn")
    for layer in model.children():
        layer.register_forward_hook(lambda module, args, out: calls.append(module))
    model(torch.zeros(2, 3, 96, 96))
    assert calls == list(model.children())


@pytest.mark.parametrize(("name", "shape"), [("parts_cnn", (3, 7, 96)), ("parts_vit", (3, 96, 90))])
def test_images_that_do_not_fit_are_refused(name, shape):
    refused(ImageShapeError, "sides", lambda: build(name, shape, 8))
