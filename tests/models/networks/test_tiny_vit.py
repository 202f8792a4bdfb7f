"""The small vision transformer: the paper's equations, what is seen of its attention, and what explains it."""

from __future__ import annotations

import copy

import pytest
import torch
from part_cases import ExplainerCase, ModelCase, case
from refusals import refused
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.explainers import build as build_explainer
from xaibench.explainers.api import explain
from xaibench.explainers.shared.tokens import token_layout
from xaibench.models import MODELS, build, fit, fit_many
from xaibench.runner import load_suite

CASES = {"vit": ModelCase(shapes=((1, 8, 8), (1, 64, 64)))}
#: What explains no transformer by its definition, and why it says so.
REFUSED = {
    "lrp": "LayerNorm",  # Captum's; lrp_epsilon has
    "pattern_net": "ReLU",
    "pattern_attribution": "ReLU",
    "cam": "pooling",
    "fullgrad": "convolutions",
}


def vit(side=8, seed=0):
    return build("vit", (1, side, side), 2, seed=seed).double().eval()


def pictures(count, side=8):
    return torch.randn(count, 1, side, side, generator=torch.Generator().manual_seed(1)).double().clamp(-1, 1)


def literally(model, image, patch, heads):
    """Equations 1 to 4 for one image, with every sum of the attention written out."""
    weights = dict(model.named_parameters())
    side = image.shape[-1] // patch
    cut = [image[0, r * patch : (r + 1) * patch, c * patch : (c + 1) * patch] for r in range(side) for c in range(side)]
    embedding = weights["patches.weight"].flatten(1)
    rows = [embedding @ each.flatten() + weights["patches.bias"] for each in cut]
    tokens = torch.stack([weights["class_token"][0, 0], *rows]) + weights["positions"][0]
    width = tokens.shape[1]

    def normed(x, name):
        centered = x - x.mean(1, keepdim=True)
        scaled = centered / (centered.square().mean(1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    for block in ("blocks.0", "blocks.1"):
        x = normed(tokens, f"{block}.norm_1")
        in_bias = weights[f"{block}.attention.in_proj_bias"]
        q, k, v = (x @ weights[f"{block}.attention.in_proj_weight"].T + in_bias).chunk(3, 1)
        mixed = torch.zeros_like(x)
        for own in torch.arange(width).chunk(heads):
            for t in range(len(x)):
                scores = torch.stack([q[t, own] @ k[s, own] for s in range(len(x))]) / len(own) ** 0.5
                share = scores.exp() / scores.exp().sum()
                mixed[t, own] = sum(share[s] * v[s, own] for s in range(len(x)))
        out = weights[f"{block}.attention.out_proj.weight"], weights[f"{block}.attention.out_proj.bias"]
        tokens = tokens + mixed @ out[0].T + out[1]
        x = normed(tokens, f"{block}.norm_2") @ weights[f"{block}.mlp.0.weight"].T + weights[f"{block}.mlp.0.bias"]
        x = x * (1 + torch.erf(x / 2**0.5)) / 2
        tokens = tokens + x @ weights[f"{block}.mlp.2.weight"].T + weights[f"{block}.mlp.2.bias"]
    return normed(tokens, "norm")[0] @ weights["head.weight"].T + weights["head.bias"]


def test_the_logits_are_those_of_the_equations():
    model, images = vit(), pictures(1)
    with torch.no_grad():
        expected = torch.stack([literally(model, image, patch=2, heads=2) for image in images])
        torch.testing.assert_close(model(images), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("side", "grid", "count"), [(8, 4, 4882), (64, 4, 26018)])
def test_its_tokens_and_weights_are_as_many_as_it_says(side, grid, count):
    model = vit(side)
    assert sum(weight.numel() for weight in model.parameters()) == count
    layout = token_layout("legrad", model, pictures(1, side))
    assert [(tokens.grid, tokens.extra) for tokens in layout.layers] == [((grid, grid), 1)] * 2
    assert layout.read.nonzero().flatten().tolist() == [0], "the head reads the class token alone"
    refused(ValueError, "ViT:", lambda: MODELS.resolve("vit")((1, 16, 16)))


def test_where_a_patch_lies_counts():
    model, image = vit(), pictures(1)
    moved = image.roll(2, dims=3)
    with torch.no_grad():
        assert not torch.allclose(model(image), model(moved), atol=1e-4)
        model.positions.zero_()
        torch.testing.assert_close(model(image), model(moved), rtol=1e-9, atol=1e-12)


def maps_of(name, model, images, targets):
    part = build_explainer(name, **case(EXPLAINERS, name, ExplainerCase()).parameters)
    if hasattr(part, "fit"):
        training = pictures(20)
        part = part.fit(model, [(training, training[:, 0] > 0, torch.zeros(20, dtype=torch.long))])
    return explain(part, model, images, targets, device="cpu")


@pytest.fixture(scope="module")
def column():
    """What the built-in suite explains it by."""
    suite, _ = load_suite("xai-tris-8x8")
    return {part.use for part in (*suite.explainers, *suite.optional.explainers)}


@pytest.mark.parametrize("name", [name for name in EXPLAINERS if name not in REFUSED])
def test_it_is_explained(name, column):
    model, images, targets = vit(), pictures(4), torch.tensor([0, 1, 0, 1])
    settings = case(EXPLAINERS, name, ExplainerCase()).sample_by_sample
    try:
        maps = maps_of(name, model, images, targets)
    except UnsupportedModelError:
        if name in column:
            raise
        return
    assert maps.shape == (4, 8, 8)
    assert maps.isfinite().all()
    assert (maps != 0).any()
    if not settings and name not in ("pfi", "uniform"):  # those are about the samples beside each other
        torch.testing.assert_close(maps_of(name, model, images[:2], targets[:2]), maps[:2], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_transformer_has_is_refused(name):
    refused(UnsupportedModelError, REFUSED[name], maps_of, name, vit(), pictures(2), torch.tensor([0, 1]))


def test_it_trains_in_a_stack_as_alone():
    images = torch.randn(96, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    data = TensorDataset(images, (images[:, 0, 2, 2] > 0).long())
    together = [build("vit", (1, 8, 8), 2, seed=seed) for seed in (0, 1)]
    alone = copy.deepcopy(together)
    how = {"epochs": 3, "lr": 0.003, "batch_size": 32, "device": "cpu", "progress": False}
    results = fit_many(together, [data] * 2, [data] * 2, seeds=[0, 1], **how)
    assert results == [fit(model, data, data, seed=seed, **how) for seed, model in enumerate(alone)]
    for one, other in zip(together, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert results[0].train_loss[-1] < results[0].train_loss[0]
    assert not torch.equal(F.softmax(alone[0](images), 1), F.softmax(alone[1](images), 1))
