"""Networks of torchvision and timm, the small ones of each family or made smaller, with random weights."""

import functools

import torch
import torchvision.models as tv
from torch import nn
from zoo.idioms import Entry, seeded

TORCHVISION = {
    "VGG": (lambda: small_vgg(False), 32, True),
    "VGG, batch norm": (lambda: small_vgg(True), 32, True),
    "ResNet, basic blocks": (lambda: tv.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1], num_classes=4), 32, True),
    "ResNet, bottlenecks": (
        lambda: tv.ResNet(tv.resnet.Bottleneck, [1, 1, 1, 1], num_classes=4, width_per_group=8),
        32,
        True,
    ),
    "ResNeXt": (
        lambda: tv.ResNet(tv.resnet.Bottleneck, [1, 1, 1, 1], num_classes=4, groups=4, width_per_group=4),
        32,
        True,
    ),
    "DenseNet": (
        lambda: tv.DenseNet(growth_rate=8, block_config=(2, 2), num_init_features=8, num_classes=4),
        32,
        False,
    ),
    "DenseNet, checkpointed": (
        lambda: tv.DenseNet(8, (2, 2), 8, num_classes=4, memory_efficient=True),
        32,
        False,
    ),
    "SqueezeNet": (lambda: tv.SqueezeNet("1_1", num_classes=4), 32, True),
    "MobileNetV2": (lambda: tv.MobileNetV2(num_classes=4, width_mult=0.35), 32, True),
    "MobileNetV3": (lambda: tv.mobilenet_v3_small(num_classes=4, width_mult=0.35), 32, False),
    "MNASNet": (lambda: tv.MNASNet(0.35, num_classes=4), 32, True),
    "ShuffleNetV2": (lambda: tv.ShuffleNetV2([1, 1, 1], [8, 16, 24, 32, 64], num_classes=4), 32, True),
    "EfficientNet": (lambda: small_efficientnet(), 32, False),
    "RegNet X": (lambda: small_regnet(None), 32, True),
    "RegNet Y": (lambda: small_regnet(0.25), 32, False),
    "ConvNeXt": (lambda: small_convnext(), 32, False),
    "ViT": (
        lambda: tv.VisionTransformer(32, 8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=4),
        32,
        False,
    ),
    "Swin": (lambda: tv.SwinTransformer([4, 4], 8, [2, 2], [2, 2], [4, 4], num_classes=4), 32, False),
    "Swin V2": (
        lambda: tv.SwinTransformer(
            [4, 4],
            8,
            [2, 2],
            [2, 2],
            [4, 4],
            num_classes=4,
            block=tv.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=tv.swin_transformer.PatchMergingV2,
        ),
        32,
        False,
    ),
    "MaxViT": (lambda: tv.MaxVit((64, 64), 8, 2, [8, 16], [1, 1], 8, 0.0, num_classes=4), 64, False),
}

#: Networks of timm as they are, which take seconds.
LARGE = (
    *("mobilenetv3_small_050", "mobilenetv4_conv_small_035", "lcnet_035"),
    *("ghostnet_050", "skresnet18", "mobilevit_xxs"),
)

#: timm's names with the parameters that make them small, and the size of the image.
TIMM = {
    **{
        f"test_{name}": ({}, 32) for name in ("convnext", "convnext2", "convnext3", "efficientnet", "efficientnet_evos")
    },
    **{f"test_{name}": ({}, 32) for name in ("efficientnet_gn", "efficientnet_ln", "mambaout", "nfnet", "resnet")},
    **{f"test_{name}": ({"img_size": 64}, 64) for name in ("byobnet", "coatnet", "maxvit")},
    **{f"test_{name}": ({"img_size": 64, "depth": 2}, 64) for name in ("vit", "vit2", "vit3", "vit4", "vit_relpos")},
    "deit_tiny_distilled_patch16_224": ({"img_size": 64, "depth": 2, "embed_dim": 24, "num_heads": 2}, 64),
    "eva02_tiny_patch14_224": ({"img_size": 56, "depth": 2, "embed_dim": 24, "num_heads": 2}, 56),
    "beit_base_patch16_224": ({"img_size": 64, "depth": 2, "embed_dim": 24, "num_heads": 2}, 64),
    "convit_tiny": ({"img_size": 64, "depth": 2, "embed_dim": 24, "num_heads": 2, "local_up_to_layer": 1}, 64),
    "cait_xxs24_224": ({"img_size": 64, "depth": 1, "embed_dim": 24, "num_heads": 2}, 64),
    "xcit_nano_12_p16_224": ({"img_size": 64, "depth": 1, "embed_dim": 32, "num_heads": 2}, 64),
    "visformer_tiny": ({"img_size": 64, "depth": 1, "embed_dim": 48, "num_heads": 2}, 64),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 32, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2), "window_size": 4},
        32,
    ),
    "swinv2_tiny_window8_256": (
        {"img_size": 32, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2), "window_size": 4},
        32,
    ),
    "pvt_v2_b0": ({"depths": (1, 1, 1, 1), "embed_dims": (8, 16, 16, 16), "num_heads": (1, 2, 2, 2)}, 32),
    "levit_128s": ({"img_size": 64, "embed_dim": (32, 32, 32), "depth": (1, 1, 1), "num_heads": (2, 2, 2)}, 64),
    "inception_next_atto": ({"depths": (1, 1, 1, 1), "dims": (16, 16, 24, 32)}, 32),
    "davit_tiny": ({"depths": (1, 1), "embed_dims": (8, 16), "num_heads": (2, 2)}, 32),
    "hiera_tiny_224": ({"img_size": 64, "embed_dim": 16, "num_heads": 1, "stages": (1, 1, 1, 1)}, 64),
    "edgenext_xx_small": ({"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}, 32),
    "fasternet_t0": ({"depths": (1, 1, 1, 1), "embed_dim": 16}, 32),
    "resnet10t": ({"channels": (8, 16, 16, 16), "stem_width": 8}, 32),
    "resnetv2_50": ({"layers": (1, 1, 1, 1), "channels": (16, 16, 16, 32), "stem_chs": 8}, 32),
    **{name: ({}, 32) for name in LARGE},
}


def small_vgg(batch_norm):
    network = tv.VGG(tv.vgg.make_layers([8, "M", 16, "M", 16, "M"], batch_norm=batch_norm), init_weights=False)
    network.classifier = nn.Sequential(nn.Linear(784, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 4))
    return network


def small_efficientnet():
    settings = [
        tv.efficientnet.MBConvConfig(1, 3, 1, 8, 8, 1),
        tv.efficientnet.MBConvConfig(4, 3, 2, 8, 16, 2),
        tv.efficientnet.FusedMBConvConfig(4, 3, 2, 16, 24, 1),
    ]
    return tv.EfficientNet(settings, 0.2, num_classes=4)


def small_regnet(se_ratio):
    block = tv.regnet.BlockParams([1, 1, 1, 1], [8, 16, 16, 24], [8, 8, 8, 8], [1.0] * 4, [2] * 4, se_ratio)
    return tv.RegNet(block, num_classes=4, stem_width=8)


def small_convnext():
    settings = [tv.convnext.CNBlockConfig(8, 16, 1), tv.convnext.CNBlockConfig(16, None, 1)]
    return tv.ConvNeXt(settings, num_classes=4)


def timm_classes():
    """Return builders of networks whose registered names take no sizes."""
    from timm.layers import GatedMlp
    from timm.models import focalnet, metaformer, mlp_mixer

    sizes = {"num_classes": 4, "depths": (1, 1, 1, 1), "dims": (8, 16, 16, 16)}
    former = {
        "dims": (32, 32, 32, 32),
        "token_mixers": [metaformer.SepConv] * 2 + [metaformer.Attention] * 2,
        "norm_layers": [metaformer.LayerNorm2dNoBias] * 2 + [metaformer.LayerNormNoBias] * 2,
    }
    mixer = functools.partial(mlp_mixer.MlpMixer, num_classes=4, img_size=32, patch_size=8, num_blocks=2, embed_dim=16)
    return {
        "MlpMixer": mixer,
        "ResMLP": lambda: mixer(block_layer=mlp_mixer.ResBlock, norm_layer=mlp_mixer.Affine, mlp_ratio=2),
        "gMLP": lambda: mixer(block_layer=mlp_mixer.SpatialGatingBlock, mlp_layer=GatedMlp, mlp_ratio=2),
        "PoolFormer": lambda: metaformer.MetaFormer(token_mixers=metaformer.Pooling, **sizes),
        "CAFormer": lambda: metaformer.MetaFormer(**(sizes | former)),
        "FocalNet": lambda: focalnet.FocalNet(num_classes=4, embed_dim=8, depths=(1, 1)),
    }


def timm_network(name, keywords):
    import timm

    return timm.create_model(name, num_classes=4, **keywords)


def overwriting(network):
    """Return the modules that work in place."""
    return [module for module in network.modules() if getattr(module, "inplace", False) is True]


def without_overwriting(build):
    """Return the network without modules that work in place."""
    network = build()
    for module in overwriting(network):
        module.inplace = False
    return network


def published(build, side, relu):
    def network():
        return calibrated(seeded(build), side)

    return Entry(network, shape=(3, side, side), relu=relu)


def calibrated(network, side):
    """Scale the last layer, so that the softmax of random weights is neither flat nor one-hot."""
    with torch.no_grad():
        last = [m for m in network.modules() if getattr(m, "out_features", getattr(m, "out_channels", 0)) == 4][-1]
        if not last.weight.any():
            last.weight.copy_(torch.randn(last.weight.shape, generator=torch.Generator().manual_seed(4)))
        images = torch.rand(8, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        result = network(images)
        last.weight.mul_(0.3 / getattr(result, "logits", result).std(0).mean())
    return network


PUBLISHED = {
    **{f"torchvision {name}": published(*row) for name, row in TORCHVISION.items()},
    **{
        f"timm {name}": published(functools.partial(timm_network, name, keywords), side, False)
        for name, (keywords, side) in TIMM.items()
    },
    **{f"timm {name}": published(build, 32, False) for name, build in timm_classes().items()},
}

#: Those that take less than a second per explainer.
SMALL = [name for name in PUBLISHED if name.removeprefix("timm ") not in LARGE]
