"""Transformers of two layers with random weights, for images of 32 by 32: torchvision's, timm's, and written out."""

import torch
from torch import nn
from torchvision.models import SwinTransformer, VisionTransformer

SIDE = 32


def _timm(module, name, **options):
    models = __import__("timm.models", fromlist=[module])
    return getattr(getattr(models, module), name)(img_size=SIDE, num_classes=3, **options)


def _vit(name="VisionTransformer", module="vision_transformer", **options):
    return _timm(module, name, patch_size=8, embed_dim=16, depth=2, num_heads=2, **options)


def _timm_swin():
    return _timm(
        "swin_transformer",
        "SwinTransformer",
        patch_size=2,
        window_size=4,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(2, 2),
    )


#: What each is made by, the rows and columns of its first patches, and tokens before them.
TRANSFORMERS = {
    "torchvision vit": (lambda: VisionTransformer(SIDE, 8, 2, 2, 16, 32, num_classes=3), 4, 1),
    "torchvision swin": (lambda: SwinTransformer([2, 2], 16, [2, 2], [2, 2], [4, 4], num_classes=3), 16, 0),
    "timm vit": (_vit, 4, 1),
    "timm vit of averaged patches": (lambda: _vit(class_token=False, global_pool="avg"), 4, 0),
    "timm vit with registers": (lambda: _vit(reg_tokens=3), 4, 4),
    "timm deit, distilled": (lambda: _vit("VisionTransformerDistilled", "deit"), 4, 2),
    "timm swin": (_timm_swin, 16, 0),
}


def transformer(name):
    """One of them, the same each time, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TRANSFORMERS[name][0]().eval()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.2)
    return model


def noise(rows=2, seed=0):
    return torch.randn(rows, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
