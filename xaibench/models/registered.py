"""Table of all models by name. To add a model, add its line."""

from __future__ import annotations

from xaibench.registry.table import Registry

_IMAGENET = (
    "resnet18",
    "resnet50",
    "vgg16",
    "vgg19",
    "densenet121",
    "efficientnet_b0",
    "vit_b_16",
)
_LITE = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")

#: Name -> factory ``(in_shape, num_classes, **parameters) -> nn.Module``. Schemes: ``"timm:<name>"`` is a network of
#: timm; ``"certified:<name>"``, such as ``"certified:and-mlp"``, a network whose use of the image is known exactly;
#: ``"blind:<name>"`` a network that reads only some pixels; ``"disconnected:<name>"`` one copy of a network per cell of
#: a mosaic.
MODELS = Registry(
    "model",
    {
        "llr": "xaibench.benchmarks.xai_tris.networks:LLR",
        "mlp": "xaibench.benchmarks.xai_tris.networks:MLP",
        "cnn": "xaibench.benchmarks.xai_tris.networks:CNN",
        "small_cnn": "xaibench.benchmarks.watermarks.regimes:SmallCNN",
        "vit": "xaibench.models.networks.tiny_vit:ViT",
        "parts_cnn": "xaibench.benchmarks.creatures.networks:PartsCNN",
        "parts_vit": "xaibench.benchmarks.creatures.networks:PartsViT",
        **{name: f"xaibench.models.networks.imagenet:{name}" for name in _IMAGENET},
        **{name: f"xaibench.models.networks.efficientnet_lite:{name}" for name in _LITE},
    },
    schemes={
        "timm": "xaibench.models.networks.timm_networks:Timm",
        "certified": "xaibench.benchmarks.certified.hand_set_networks:HandSet",
        "blind": "xaibench.benchmarks.certified.blind_networks:BlindNetwork",
        "disconnected": "xaibench.benchmarks.certified.disconnected_networks:DisconnectedCopies",
    },
    record="ModelInfo",
)
