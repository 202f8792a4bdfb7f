"""Networks of torchvision, pretrained on ImageNet.

All of them map images ``[N, 3, H, W]`` in [0, 1] to logits, are in evaluation mode, and are explained in float32. They
are made by :func:`xaibench.models.build`; worker processes receive name and parameters instead of the network.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from xaibench.models.networks.class_folding import Groups, Weighting
from xaibench.models.networks.pretrained import HeadChoice, check_request, finish_classifier
from xaibench.models.networks.pretrained_weights import download_weights, is_file, named_weights, read_weights
from xaibench.network.outputs import ImageShapeError
from xaibench.registry.info import ModelInfo

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_Weights = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Torchvision:
    """A network of torchvision, called as ``(in_shape, num_classes) -> nn.Module``.

    Attributes:
        name: Its name in torchvision.
        info: Metadata for tables.
        smallest: Smallest side of an image.
        patch: Side of a transformer's patch, which divides the sides of an image; 1 for other networks.
    """

    name: str
    info: ModelInfo
    smallest: int = 1
    patch: int = 1

    def __call__(
        self,
        in_shape: tuple[int, ...],
        num_classes: int,
        *,
        weights: _Weights = "IMAGENET1K_V1",
        head: HeadChoice = "new",
        fold: str | Groups | None = None,
        weighting: Weighting = "mean",
    ) -> nn.Module:
        """Build the network, in evaluation mode.

        Args:
            in_shape: ``(3, H, W)``.
            num_classes: Number of logits.
            weights: A name of torchvision's (from torch's cache or downloaded into it), the path of a file (``.pth``,
                ``.safetensors``), or None: random.
            head: The last layer: ``"new"``, random, for ``num_classes``, or ``"pretrained"``, that of the weights,
                which must have ``num_classes`` outputs (ImageNet's have 1000).
            fold: Group the classes of the pretrained head into ``num_classes`` classes, without training:
                ``{"cat": [281, ...], "dog": [151, ...]}``, or a name of :data:`xaibench.models.FOLDS`.
            weighting: Weighting of the groups, see :class:`xaibench.models.Folded`.

        Returns:
            From images ``[N, 3, H, W]`` in [0, 1] to logits ``[N, num_classes]``, on the CPU.

        Raises:
            WeightsNotFoundError: If the weights are not here and cannot be downloaded; names the file and where to put
                it.
            ValueError: If shapes, classes, weights or head do not fit each other.
        """
        check_request(self.name, in_shape, num_classes, head, smallest=self.smallest, multiple=self.patch)
        mean: Sequence[float] = _MEAN
        std: Sequence[float] = _STD
        state: Mapping[str, Tensor] | None = None
        if is_file(weights):
            assert weights is not None
            state = read_weights(weights)
        elif weights is not None:
            entry = named_weights(self.name, str(weights))
            self._check_size(in_shape, entry)
            preset = entry.transforms()
            mean, std = preset.mean, preset.std
            state = download_weights(self.name, entry)
        if state is not None:
            # Old files of DenseNet have dots in names, which are no longer allowed.
            dots = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")
            state = {dots.sub(r"\1\2.", key): value for key, value in state.items()}
        network = self._network(in_shape)
        return finish_classifier(self.name, network, state, weights, (mean, std), num_classes, head, fold, weighting)

    def _network(self, in_shape: tuple[int, ...]) -> nn.Module:
        from torchvision.models import get_model

        if self.patch > 1:
            if in_shape[1] != in_shape[2]:
                raise ValueError(f"{self.name}: in_shape is {in_shape}, expected square images.")
            network: nn.Module = get_model(self.name, weights=None, image_size=in_shape[1])
            return network
        network = get_model(self.name, weights=None)
        return _as_layers(network) if self.name.startswith("densenet") else network

    def _check_size(self, in_shape: tuple[int, ...], entry: Any) -> None:
        side = entry.meta["min_size"]
        if self.patch > 1 and tuple(in_shape[1:]) != tuple(side):
            raise ImageShapeError(
                f"{self.name}: in_shape is {in_shape}, but the weights {entry.name} are for images of "
                f"{side[0]} x {side[1]} pixels. Scale the images, or take weights=None."
            )


def _as_layers(densenet: nn.Module) -> nn.Module:
    """Return a DenseNet whose last ReLU and pooling are layers; torchvision's forward pass calls functions for them.

    Explainers can then see them: CAM needs the features that are averaged. Weight names and results are the same.
    """
    features = densenet.get_submodule("features")
    features.add_module("relu5", nn.ReLU())
    layers = [
        ("features", features),
        ("pool", nn.AdaptiveAvgPool2d(1)),
        ("flatten", nn.Flatten()),
        ("classifier", densenet.get_submodule("classifier")),
    ]
    return nn.Sequential(OrderedDict(layers))


_HE = "He et al.: Deep Residual Learning for Image Recognition. CVPR 2016."
_VGG = "Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition. ICLR 2015."

resnet18 = Torchvision("resnet18", ModelInfo("ResNet-18", citation=_HE))
resnet50 = Torchvision("resnet50", ModelInfo("ResNet-50", citation=_HE))
vgg16 = Torchvision("vgg16", ModelInfo("VGG-16", citation=_VGG), smallest=32)
vgg19 = Torchvision("vgg19", ModelInfo("VGG-19", citation=_VGG), smallest=32)
densenet121 = Torchvision(
    "densenet121",
    ModelInfo("DenseNet-121", citation="Huang et al.: Densely Connected Convolutional Networks. CVPR 2017."),
    smallest=32,
)
efficientnet_b0 = Torchvision(
    "efficientnet_b0",
    ModelInfo(
        "EfficientNet-B0",
        citation="Tan, Le: EfficientNet: Rethinking Model Scaling for Convolutional Networks. ICML 2019.",
    ),
)
vit_b_16 = Torchvision(
    "vit_b_16",
    ModelInfo("ViT-B/16", citation="Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021."),
    smallest=16,
    patch=16,
)
