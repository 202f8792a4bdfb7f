"""Open networks by reference: registered names, Python files, torchvision, timm and transformers."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from xaibench.core.messages import did_you_mean, first_line, listed, warn_caller
from xaibench.models.building import make_own
from xaibench.models.networks.efficientnet_lite import EfficientNetLite
from xaibench.models.networks.imagenet import Torchvision
from xaibench.models.networks.pretrained import Classifier
from xaibench.models.networks.pretrained_weights import WeightsNotFoundError
from xaibench.models.networks.timm_networks import Timm, import_timm
from xaibench.models.registered import MODELS
from xaibench.registry.info import ModelInfo

if TYPE_CHECKING:
    from torch import nn


#: Interpolations by their numbers in Pillow.
_INTERPOLATIONS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


@dataclass(frozen=True)
class Request:
    """Settings of a network that a user gives with its reference.

    Attributes:
        num_classes: Number of classes; None if not given.
        size: Height and width, or slices, rows and columns; None if not given.
        pretrained: Whether the network gets its pretrained weights rather than random ones.
    """

    num_classes: int | None
    size: tuple[int, ...] | None
    pretrained: bool


@dataclass(frozen=True)
class Source:
    """A network as its source gives it.

    Attributes:
        module: The network.
        channels: Number of channels; None if not known.
        preprocessing: None if not known.
        classes: Names of the classes; None if not known.
        hint: What else helps if the network accepts no images.
    """

    module: nn.Module
    channels: int | None = None
    preprocessing: Preprocessing | None = None
    classes: tuple[str, ...] | None = None
    hint: str = ""


def open_registered(name: str, request: Request) -> Source:
    """Build a network of :data:`xaibench.models.MODELS`, with its 1,000 ImageNet classes if it is pretrained.

    Raises:
        ValueError: If number of classes and size are needed and not given.
    """
    part = MODELS.resolve(name)
    if isinstance(part, Torchvision):
        return open_torchvision(part.name, request)
    if isinstance(part, EfficientNetLite):
        weights = "pretrained" if request.pretrained else None
        height, width = request.size or (224, 224)
        return Source(part((3, height, width), 1000, weights=weights, head="pretrained"), 3)
    if request.num_classes is None or request.size is None:
        raise ValueError(
            f"{name} is an architecture without weights of its own; give classes= and size=, or a reference to a "
            "trained network, such as 'package.module:name' or 'file.py:name'."
        )
    return Source(part((1, *request.size), request.num_classes), 1)


def open_python(reference: str, request: Request) -> Source:
    """Return the module that ``"package.module:name"`` or ``"file.py:name"`` is, or that the function returns.

    Raises:
        ValueError: If the file does not exist or has no such name.
        TypeError: If it is no module and no factory of one.
    """
    place, _, attribute = reference.rpartition(":")
    part = _attribute_of_file(Path(place), attribute) if place.endswith(".py") else MODELS.resolve(reference)
    size = request.size or (224, 224)
    shape: Any = (3 if len(size) == 2 else 1, *size)  # scans have one channel
    is_factory = callable(part) and not isinstance(part, nn.Module)
    stated = inspect.signature(part).parameters.get("num_classes") if is_factory else None
    count = request.num_classes
    if stated is not None and count is None:
        if stated.default is stated.empty:
            raise ValueError(f"{reference} takes num_classes, got none; give the number or the names as classes=.")
        count = stated.default
    return Source(make_own(part, reference, shape, count or 0, {}))


def _attribute_of_file(file: Path, attribute: str) -> Any:
    if not file.is_file():
        raise ValueError(f"{file}: there is no such file.")
    module = _import_file(file)
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise ValueError(f"{file} has no {attribute!r}{did_you_mean(attribute, names)}")
    return getattr(module, attribute)


def _import_file(file: Path) -> ModuleType:
    """Import a Python file under a name of its own; its folder can be imported from, as in ``python file.py``."""
    name = f"_xaibench_opened_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes of the file can be pickled and copied
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def open_torchvision(name: str, request: Request) -> Source:
    """Build a classifier of torchvision with its weights for ImageNet, or random ones.

    Raises:
        ValueError: If torchvision has no such classifier.
        WeightsNotFoundError: If the weights are not here and cannot be downloaded.
    """
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise ValueError(f"The library torchvision has no classifier {name!r}{did_you_mean(name, known)}")
    table = models.get_model_weights(name)
    entry = getattr(table, "IMAGENET1K_V1", None) or table.DEFAULT
    preset = entry.transforms()
    size = request.size or (preset.crop_size[0],) * 2
    part = MODELS.resolve(name) if name in MODELS else Torchvision(name, ModelInfo(name))
    names = tuple(entry.meta["categories"])
    count = len(names) if request.pretrained else request.num_classes or len(names)
    module = part(
        (3, *size),
        count,
        weights=entry.name if request.pretrained else None,
        head="pretrained" if count == len(names) else "new",
    )
    preprocessing = Preprocessing(
        size=size,
        resize=preset.resize_size[0],
        interpolation=str(preset.interpolation.value),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
    )
    return Source(module, 3, preprocessing, names if request.pretrained else None)


def open_timm(name: str, request: Request) -> Source:
    """Build a network of timm with its pretrained weights, or random ones.

    Raises:
        ModuleNotFoundError: If timm is not installed; names the command.
        ValueError: If timm has no such network.
        WeightsNotFoundError: If the weights are not here and cannot be downloaded.
    """
    part = Timm(name)
    config = part.config()
    channels, *side = config["input_size"]
    size = request.size or (side[0], side[1])
    count = int(config["num_classes"]) if request.pretrained else request.num_classes or int(config["num_classes"])
    module = part(
        (channels, *size),
        count,
        weights="pretrained" if request.pretrained else None,
        head="pretrained" if request.pretrained else "new",
    )
    preprocessing = Preprocessing(
        size=size,
        resize=int(size[0] / config.get("crop_pct", 1.0)),
        interpolation=str(config.get("interpolation", "bicubic")),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
    return Source(module, channels, preprocessing, _timm_classes(config) if request.pretrained else None)


def _timm_classes(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the classes that timm knows: those in the configuration, or ImageNet's."""
    if config.get("label_names"):
        return tuple(config["label_names"])
    timm = import_timm()
    subset = timm.data.infer_imagenet_subset({"num_classes": config["num_classes"], **config})
    if subset is None:
        return None
    info = timm.data.ImageNetInfo(subset)
    return tuple(info.index_to_description(index) for index in range(info.num_classes()))


def open_hugging_face(name: str, request: Request) -> Source:
    """Load an image classifier of transformers from a folder or the hub, with its processor's normalization.

    Raises:
        ModuleNotFoundError: If transformers is not installed; names the command.
        ValueError: If it is no image classifier.
        WeightsNotFoundError: If it is not here and cannot be downloaded.
    """
    transformers = import_extra("transformers", "transformers", "Networks 'hf:OWNER/NAME'")
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        kind = transformers.AutoModelForImageClassification
        missing: Sequence[str] = ()
        if request.pretrained:
            network, loaded = kind.from_pretrained(name, output_loading_info=True)
            missing = sorted(loaded["missing_keys"])
        else:
            network = kind.from_config(config)
    except OSError as error:
        raise WeightsNotFoundError(
            f"hf:{name}: neither a folder with config.json and the weights, nor on this machine, and it cannot be "
            f"downloaded ({first_line(error)}). Where there is a network, run `hf download {name}`, and bring the "
            "folder along."
        ) from error
    except ValueError as error:
        raise ValueError(f"hf:{name} is no image classifier of transformers ({first_line(error)}).") from error
    if missing:
        raise ValueError(
            f"hf:{name}: its file of weights lacks {listed(missing, 5)}, which would be random numbers. Save the whole "
            "classifier (network.save_pretrained), or take the one that was trained for your classes."
        )
    names = [str(config.id2label[index]) for index in sorted(config.id2label)]
    generic = all(label == f"LABEL_{index}" for index, label in enumerate(names))
    processor = _read_processor(name)
    side = getattr(config, "image_size", None) or _processor_side(processor)
    size = request.size or ((side, side) if isinstance(side, int) else (int(side[0]), int(side[1])))
    preprocessing = _describe_processor(processor, size)
    channels = int(getattr(config, "num_channels", 3))
    mean, std = preprocessing.mean or (0.0,) * channels, preprocessing.std or (1.0,) * channels
    module = _TransformersClassifier(network, mean, std).eval()
    return Source(module, channels, preprocessing, None if generic else tuple(names))


class _TransformersClassifier(Classifier):
    """An image classifier of transformers together with its normalization."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits ``[N, K]`` of images ``[N, C, H, W]`` in [0, 1]."""
        logits: Tensor = self.network(self.normalize(images)).logits
        return logits


def _read_processor(name: str) -> dict[str, Any]:
    """Read the settings of the image processor of a model; empty if it has none."""
    cached_file = importlib.import_module("transformers.utils").cached_file
    try:
        settings_file = cached_file(name, "preprocessor_config.json")
        settings: dict[str, Any] = json.loads(Path(settings_file).read_text(encoding="utf-8"))
    except OSError:
        warn_caller(
            f"hf:{name} has no preprocessor_config.json, so its normalization is not known, and the network gets "
            "pixels in [0, 1] as they are. Save the processor next to the network (processor.save_pretrained)."
        )
        return {}
    return settings


def _processor_side(processor: Mapping[str, Any]) -> int:
    """Return the side of the images after cropping or scaling; 224 if it is not known."""
    for edge in (processor.get("crop_size"), processor.get("size")):
        if isinstance(edge, int):
            return edge
        if isinstance(edge, Mapping) and edge:
            return int(edge.get("height") or edge.get("shortest_edge") or 224)
    return 224


def _describe_processor(processor: Mapping[str, Any], size: tuple[int, ...]) -> Preprocessing:
    """Return the record of a processor, whose pixels in [0, 255] are multiplied by a factor and normalized."""
    if not processor:
        return Preprocessing(size=size)
    scale = 255 * float(processor.get("rescale_factor", 1 / 255)) if processor.get("do_rescale", True) else 255.0
    mean: Sequence[float] = processor.get("image_mean") or (0.0,) * 3
    std: Sequence[float] = processor.get("image_std") or (1.0,) * 3
    if not processor.get("do_normalize", True):
        mean, std = (0.0,) * len(mean), (1.0,) * len(std)
    edge = processor.get("size")
    shorter = edge.get("shortest_edge") if isinstance(edge, Mapping) else None
    return Preprocessing(
        size=size,
        resize=int(shorter) if shorter else None,
        interpolation=_INTERPOLATIONS.get(processor.get("resample", 2), "bilinear"),
        mean=tuple(value / scale for value in mean),
        std=tuple(value / scale for value in std),
    )


def import_extra(library: str, extra: str, what: str) -> Any:
    """Import an optional library, or raise an error with the command that installs it."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ModuleNotFoundError(f'{what} need {library}: pip install "xaibench[{extra}]".', name=library) from error


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Operations on an image before a network gets it; numbers only.

    Pixels in [0, 1] are resized and cropped by whoever reads the images. The module of an :class:`OpenedNetwork` then
    normalizes them itself.

    Attributes:
        size: Height and width that the network is called with; for volumes slices, rows and columns.
        resize: Length of the shorter side to which images are scaled before the center of ``size`` is cropped; None if
            they are scaled to ``size`` directly.
        interpolation: Interpolation of the scaling.
        mean: Subtracted from each channel of pixels in [0, 1]; None if not known, so that the network gets the pixels.
        std: Divides each channel afterwards; None with ``mean``.
    """

    size: tuple[int, ...]
    resize: int | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def pixels(self) -> str:
        """Description of the network's input for pixels in [0, 1]."""
        if self.mean is None or self.std is None:
            return "in [0, 1] as they are"
        low, high = self.input_range
        return f"in [0, 1], normalized inside to {low:.3g} to {high:.3g}"

    @property
    def input_range(self) -> tuple[float, float]:
        """Smallest and largest value that the network itself gets for pixels in [0, 1]."""
        if self.mean is None or self.std is None:
            return 0.0, 1.0
        ends = [(pixel - m) / s for pixel in (0.0, 1.0) for m, s in zip(self.mean, self.std, strict=True)]
        return min(ends), max(ends)


@dataclass(frozen=True, kw_only=True)
class OpenedNetwork:
    """A network that was opened by :func:`xaibench.models.open_network`.

    Attributes:
        reference: The reference, as given.
        name: A short name for tables.
        source: ``"python"``, ``"registered"``, ``"timm"``, ``"torchvision"``, ``"hf"``, ``"torchscript"`` or
            ``"onnx"``.
        module: The network on the CPU, in evaluation mode: images ``[N, C, H, W]`` in [0, 1] to logits ``[N, K]``, or
            to something that contains them (:func:`xaibench.explain`).
        num_classes: Number of outputs K.
        classes: Names of the classes; None if not known.
        in_shape: ``(C, H, W)`` of the images, or ``(C, D, H, W)`` of volumes.
        preprocessing: What is done to an image; ``size`` is that of ``in_shape``.
        sha256: Checksum of the weights, the same on all machines.
    """

    reference: str
    name: str
    source: str
    module: nn.Module = field(repr=False)
    num_classes: int
    classes: tuple[str, ...] | None = field(repr=False)
    in_shape: tuple[int, ...]
    preprocessing: Preprocessing
    sha256: str
