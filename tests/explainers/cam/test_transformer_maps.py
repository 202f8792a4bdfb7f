"""Class activation maps of transformers: they lie where the one patch is that decides."""

import functools

import pytest
import torch
from generators.transformers import TRANSFORMERS, noise, transformer

from xaibench.explainers import explain

#: The patch of 8 by 8 pixels that decides: row and column.
ROW, COLUMN = 2, 1
NEWER = ("hirescam", "xgradcam", "ablationcam", "finercam", "shapleycam", "kpcacam")


@functools.cache
def planted(name):
    """A transformer for which images of a single patch that is not zero are decided by it.

    All biases, positions and class tokens are zero, so that an empty patch makes a token of zeros, which stays one: no
    attention hands anything on, but the last where a class token has to read the patches.
    """
    model, (_, _, extra) = transformer(name), TRANSFORMERS[name]
    products = [p for n, p in model.named_parameters() if n.endswith(("attn.proj.weight", "out_proj.weight"))]
    with torch.no_grad():
        for parameter in products[: -1 if extra else None]:
            parameter.zero_()
        for n, parameter in model.named_parameters():
            if n.endswith("bias") or "token" in n or "pos_embed" in n:
                parameter.zero_()
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[8 * ROW : 8 * ROW + 8, 8 * COLUMN : 8 * COLUMN + 8] = True
    return model, noise(3) * inside, inside


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("explainer", ["gradcam", "gradcam++", "layercam", "scorecam", "eigencam", "cam", *NEWER])
def test_the_map_lies_on_the_patch_that_decides(name, explainer):
    if name.startswith("timm"):
        pytest.importorskip("timm")
    model, images, inside = planted(name)
    if explainer == "cam" and "swin" not in name:
        pytest.skip("its head is no linear layer of averaged patches")
    classes = torch.arange(3).repeat_interleave(3)
    found = explain(explainer, model, images.repeat(3, 1, 1, 1), classes, device="cpu", resize="nearest")
    found = [each for each in found if each.any()]
    assert found, "not even one class that the patch speaks for"
    for each in found:
        assert inside.flatten()[each.abs().argmax()]
        if explainer not in ("eigencam", "kpcacam", "scorecam"):  # two take the mean off, one counts what is constant
            assert each[inside].abs().sum() / each.abs().sum() > 0.999


def test_a_map_of_channels_last_can_be_named():
    maps = [
        explain("gradcam", transformer("torchvision swin"), noise(1), torch.tensor([0]), layer=layer, device="cpu")
        for layer in ("norm", "permute")
    ]
    assert maps[0].equal(maps[1])
    assert maps[0].any()
