"""Small transformers with random weights, of torchvision and timm, and one in which a single token alone decides."""

import pytest
import torch
from torch import nn
from torchvision.models import SwinTransformer, VisionTransformer

#: Side of the patches of :func:`planted`, in rows and columns of four, and the one that decides.
SIDE, DECIDES = 4, (2, 1)


def seeded(build, std=0.4, seed=0):
    """Built with random weights, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=std)
        return model.double().eval()


def of_torchvision():
    """Two layers of two heads over a class token and 2×2 patches of images [3, 16, 16]."""
    return seeded(lambda: VisionTransformer(16, 8, 2, 2, 8, 12, num_classes=3))


def of_timm(name="vit_tiny_patch16_224"):
    """The same of timm."""
    timm = pytest.importorskip("timm")

    return seeded(
        lambda: timm.create_model(
            name, img_size=16, patch_size=8, embed_dim=8, depth=2, num_heads=2, mlp_ratio=1.5, num_classes=3
        )
    )


def swin_of_torchvision():
    """Two stages of windows of 4×4 patches; images [3, 32, 32]."""
    return seeded(lambda: SwinTransformer([4, 4], 8, [2, 2], [2, 2], [4, 4], num_classes=3))


def swin_of_timm():
    """The same of timm."""
    Swin = pytest.importorskip("timm.models.swin_transformer").SwinTransformer  # noqa: N806

    return seeded(lambda: Swin(32, 4, 3, 3, embed_dim=8, depths=(2, 2), num_heads=(2, 2), window_size=4))


def batch(side=16, n=3):
    """Images ``[n, 3, side, side]`` and targets."""
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, side, side, generator=rng, dtype=torch.float64), torch.arange(n) % 3


def planted(layers=2):
    """A ViT of torchvision over 4×4 patches of images [3, 16, 16], all tokens of which attend to one patch alone.

    That patch has a mark in feature 0, by its position; all keys are that mark, and no layer writes there. Feature 1 is
    large in every token, so that the normalization leaves what else there is in proportion. Values read neither.
    """
    model = seeded(lambda: VisionTransformer(16, SIDE, layers, 2, 16, 24, num_classes=3))
    place = 1 + DECIDES[0] * (16 // SIDE) + DECIDES[1]
    with torch.no_grad():
        model.conv_proj.weight[:2] = 0
        model.conv_proj.bias.zero_()
        model.class_token.zero_()
        model.encoder.pos_embedding.zero_()
        model.encoder.pos_embedding[0, :, 1] = 8
        model.encoder.pos_embedding[0, place, 0] = 8
        for layer in model.encoder.layers:
            layer.ln_1.weight.fill_(1)
            layer.ln_1.bias.zero_()
            attention = layer.self_attention
            queries, keys, values = attention.in_proj_weight.chunk(3)
            queries.zero_()
            keys.zero_()
            keys[:, 0] = 20
            values[:, :2] = 0
            values[:, 2:] -= values[:, 2:].mean(1, keepdim=True)
            attention.in_proj_bias.zero_()
            attention.in_proj_bias[:16] = 20
            for last in (attention.out_proj, layer.mlp[3]):
                last.weight[:2] = last.bias[:2] = 0
    return model


def share_of_the_patch(maps):
    """How much of the magnitude of maps ``[N, 16, 16]`` lies in the patch that decides."""
    rows, columns = (slice(at * SIDE, (at + 1) * SIDE) for at in DECIDES)
    return maps[:, rows, columns].abs().sum((1, 2)) / maps.abs().sum((1, 2))
