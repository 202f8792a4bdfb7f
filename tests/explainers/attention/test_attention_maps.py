import math

import pytest
import torch
from generators.planted_transformer import batch, of_torchvision, seeded, swin_of_timm, swin_of_torchvision
from part_cases import ExplainerCase
from torch import nn
from torchvision.models import VisionTransformer

from xaibench.explainers import UnsupportedModelError, explain
from xaibench.explainers.attention.attention_maps import AttentionRollout
from xaibench.explainers.shared.tokens import record_attention
from xaibench.models import Wrapped


class Small(nn.Module):
    """Two attentions over patches, written out; with or without a class token."""

    def __init__(self, class_token=True, batch_first=True):
        super().__init__()
        self.class_token, self.batch_first = class_token, batch_first
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.attentions = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=batch_first) for _ in range(2))
        self.head = nn.Linear(8, 2)

    def tokens(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([torch.ones_like(x[:, :1]), x], 1) if self.class_token else x

    def forward(self, x):
        x = self.tokens(x)
        for attention in self.attentions:
            y = x if self.batch_first else x.transpose(0, 1)
            # need_weights by position and by name
            out = attention(y, y, y, None, False)[0] if self.class_token else attention(y, y, y, need_weights=False)[0]
            x = x + (out if self.batch_first else out.transpose(0, 1))
        return self.head(x[:, 0] if self.class_token else x.mean(1))


def normal_weights(build):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
        return model.double().eval()


def color_batch(n=3):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, 8, 12, generator=rng, dtype=torch.float64), torch.arange(n) % 2


def attention_by_hand(module, x):
    """softmax(q k / sqrt d) of the tokens ``[T, D]``, head by head, averaged."""
    q, k, _ = (x @ module.in_proj_weight.T + module.in_proj_bias).chunk(3, 1)
    size = module.head_dim
    heads = [
        torch.softmax(q[:, h : h + size] @ k[:, h : h + size].T / math.sqrt(size), 1)
        for h in range(0, q.shape[1], size)
    ]
    return torch.stack(heads).mean(0)


@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_oracle(class_token, batch_first):
    model = normal_weights(lambda: Small(class_token, batch_first))
    images, targets = color_batch()
    maps = AttentionRollout(resize=None)(model, images, targets)
    assert maps.shape == (3, 2, 3)
    for found, image in zip(maps, images, strict=True):
        x = model.tokens(image[None])[0].detach()
        rollout = torch.eye(len(x), dtype=x.dtype)
        for module in model.attentions:
            attention = attention_by_hand(module, x).detach()
            rollout = (0.5 * attention + 0.5 * torch.eye(len(x), dtype=x.dtype)) @ rollout
            y = x[None] if batch_first else x[:, None]
            x = x + module(y, y, y)[0].detach().reshape(x.shape)
        row = rollout[0, 1:] if class_token else rollout.mean(0)
        torch.testing.assert_close(found.flatten(), row)


def test_vision_transformer_of_torchvision():
    model = normal_weights(lambda: VisionTransformer(16, 4, 2, 2, 8, 16, num_classes=3))
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([0, 2])
    small = AttentionRollout(resize=None)(model, images, targets)
    assert small.shape == (2, 4, 4)
    assert (small > 0).all()
    # the rows of the rollout sum to one; the class token keeps the rest, at least a quarter in two layers
    assert (small.sum((1, 2)) < 0.75).all()
    large = AttentionRollout(resize="nearest")(model, images, targets)
    torch.testing.assert_close(large, small.repeat_interleave(4, 1).repeat_interleave(4, 2))
    assert AttentionRollout()(model, images, targets.flip(0)).equal(AttentionRollout()(model, images, targets))


def test_the_built_in_encoder_is_seen_too():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 8, 4, 4)
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))

    images, targets = color_batch()
    assert AttentionRollout(resize=None)(normal_weights(Encoder), images, targets).std() > 0


def test_batch_size_does_not_matter_and_the_model_is_unharmed():
    model = normal_weights(Small).train()
    images, targets = color_batch()
    here = "xaibench.explainers.attention.attention_maps:AttentionRollout"
    expected = explain(here, model, images, targets)
    torch.testing.assert_close(explain(here, model, images, targets, batch_size=1), expected)
    assert all(
        module.training and not module._forward_hooks and not module._forward_pre_hooks for module in model.modules()
    )


class Pooled(Small):
    def forward(self, x):
        x = self.tokens(x)
        x = self.attentions[0](x, x, x)[0][:, ::2]
        return self.head(self.attentions[1](x, x, x)[0].mean(1))


class Cut(Small):
    def tokens(self, x):
        return super().tokens(x)[:, :4]


@pytest.mark.parametrize(("build", "layer"), [(Pooled, "attentions.1"), (Cut, "attentions.0")])
def test_attention_over_other_tokens_than_positions_is_an_error(build, layer):
    with pytest.raises(UnsupportedModelError, match=layer):
        AttentionRollout()(normal_weights(build), *color_batch())


@pytest.mark.parametrize("build", [swin_of_torchvision, swin_of_timm])
def test_what_lies_in_windows_is_put_where_it_lies(build):
    """The sum over the map is that over all windows, and a patch's value moves with the patch's own window."""
    model, (images, targets) = build(), batch(32)
    maps = explain("attention_x_gradient", model, images, targets, device="cpu", resize=None)
    with record_attention(model) as seen:
        logits = model(images).gather(1, targets[:, None])
    weights = seen[-1].weights
    (gradient,) = torch.autograd.grad(logits.sum(), weights)
    product = (weights * gradient).detach().mean(1).sum(1).reshape(len(images), -1)
    assert maps.shape == (3, 4, 4)
    assert maps.abs().max() > 1e-6
    torch.testing.assert_close(maps.sum((1, 2)), product.sum(1))
    torch.testing.assert_close(maps.flatten(1).sort(1).values, product.sort(1).values)


def test_the_last_layers_alone():
    model, (images, targets) = of_torchvision(), batch(n=2)
    both, last, all_ = (
        explain("legrad", model, images, targets, device="cpu", resize=None, n_layers=layers) for layers in (2, 1, None)
    )
    assert torch.equal(both, all_)
    assert (last <= both).all()
    assert not torch.allclose(last, both)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_agrees_with_the_authors_package(layers, capsys):
    legrad, open_clip = pytest.importorskip("legrad"), pytest.importorskip("open_clip")
    vision = {"image_size": 16, "layers": 3, "width": 16, "head_width": 8, "patch_size": 4}
    text = {"context_length": 4, "vocab_size": 8, "width": 16, "heads": 2, "layers": 1}
    model = seeded(lambda: open_clip.model.CLIP(12, vision, text)).float()
    images = batch()[0].float()
    texts = nn.functional.normalize(torch.randn(3, 12, generator=torch.Generator().manual_seed(0)), dim=-1)
    # How like an image is to each text is what the authors' package explains of a CLIP.
    retrieval = Wrapped(model.visual, lambda visual, x: nn.functional.normalize(visual(x), dim=-1) @ texts.T)
    maps = explain("legrad", retrieval, images, torch.arange(3), device="cpu", n_layers=layers)
    for block in model.visual.transformer.resblocks:
        block.attn.batch_first = False  # the package hands on tokens as [T, N, D], which open_clip once did too
    wrapped = legrad.LeWrapper(model, layer_index=-layers)
    for found, image, one in zip(maps, images, texts, strict=True):
        expected = wrapped.compute_legrad_clip(one[None], image[None]).reshape(found.shape)
        scaled = (found - found.min()) / (found.max() - found.min())
        torch.testing.assert_close(scaled, expected.detach(), rtol=0, atol=1e-4)


CASES = {
    "attention_rollout": ExplainerCase(network="generators.networks:Attending"),
    "attention_x_gradient": ExplainerCase(network="generators.networks:Attending"),
    "legrad": ExplainerCase(network="generators.networks:Attending"),
}
