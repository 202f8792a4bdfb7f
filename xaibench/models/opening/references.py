"""Open a network by its reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from xaibench.core.messages import first_line
from xaibench.models.networks.pretrained import find_normalization
from xaibench.models.networks.pretrained_weights import WeightsNotFoundError, weights_checksum
from xaibench.models.opening.exported_files import open_onnx, open_torchscript
from xaibench.models.opening.sources import (
    OpenedNetwork,
    Preprocessing,
    Request,
    Source,
    open_hugging_face,
    open_python,
    open_registered,
    open_timm,
    open_torchvision,
)
from xaibench.models.registered import MODELS
from xaibench.network.lending import set_evaluation
from xaibench.network.outputs import probe
from xaibench.registry.table import UnknownNameError
from xaibench.tensors.random_numbers import isolated_rng

#: Suffixes of files that contain a network.
_FILES = (".pt", ".pth", ".ts", ".jit", ".pt2", ".pkl", ".onnx")

#: Sides of images that are tried on a network of unknown size.
_SIDES = (224, 32, 64, 28, 96, 128, 8, 299, 256, 384, 512, 48, 16)
_VOLUME_SIDES = (32, 16, 64, 28, 96, 8)

_EXPECTED = (
    "Expected 'package.module:name', 'file.py:name', a file .pt, .pth, .ts (TorchScript) or .onnx, 'timm:NAME', "
    "'torchvision:NAME', 'hf:OWNER/NAME', or a folder with config.json."
)


def open_network(
    reference: str,
    *,
    classes: int | Sequence[str] | None = None,
    size: int | tuple[int, ...] | None = None,
    pretrained: bool = True,
    seed: int = 0,
) -> OpenedNetwork:
    """Open a network as users have it.

    Args:
        reference: One of:

            - ``"package.module:name"`` or ``"path/file.py:name"``: a module, or a class or function that returns one,
              without arguments or as ``(in_shape, num_classes)``.
            - A TorchScript file (``.pt``, ``.pth``, ``.ts``). It is a program that runs when it is opened; operators
              that can do more than compute are refused. Its layers are hidden, so explainers that propagate through
              layers do not support it. Pickled modules are refused.
            - An ONNX file; its operations become layers with gradients (extra ``onnx``). Size, type and order of the
              axes are read from the file; a network with channels last takes ``[N, C, H, W]``.
            - ``"torchvision:NAME"``, ``"timm:NAME"`` (extra ``timm``): with the pretrained weights.
            - ``"hf:OWNER/NAME"`` or a folder with ``config.json``: an image classifier of transformers (extra
              ``transformers``), with the normalization of its processor.
            - A name without prefix, if it is registered (:data:`xaibench.models.MODELS`), or if only one of
              torchvision and timm has it.
        classes: Number or names of the classes. Needed by factories with a parameter ``num_classes``; otherwise it is
            compared with the outputs of the network.
        size: Side, or height and width, of the images, or slices, rows and columns of volumes; None: that of the
            network, if it is known, otherwise the first of some usual sides that the network accepts. Networks with a
            3-D convolution get volumes.
        pretrained: False: random weights, for networks of torchvision, timm and transformers.
        seed: Seed of random weights.

    Returns:
        The network with what is known of it. Networks of torchvision, timm and transformers take pixels in [0, 1] and
        normalize them inside; the others get the pixels as they are (:class:`xaibench.models.Classifier` normalizes).

    Raises:
        ValueError: If the reference is of no known kind, the file cannot be read safely, or the network does not accept
            the images or has another number of classes.
        UnknownNameError: If a module, an attribute or a name does not exist; names the nearest.
        ModuleNotFoundError: If an optional library is missing; names the command that installs it.
        WeightsNotFoundError: If weights are neither here nor downloadable; says where to put them.
        TypeError: If the Python object is no module and no factory of one.

    Warns:
        UserWarning: If a TorchScript file is opened.

    Example:
        >>> opened = open_network("torchvision:resnet18", pretrained=False, size=64)
        >>> opened.in_shape, opened.num_classes, opened.preprocessing.mean
        ((3, 64, 64), 1000, (0.485, 0.456, 0.406))
    """
    if not isinstance(reference, str) or not reference:
        raise ValueError(f"reference={reference!r}: expected a text. {_EXPECTED}")
    sides = (size, size) if isinstance(size, int) else size
    count = classes if classes is None or isinstance(classes, int) else len(classes)
    with isolated_rng(seed):
        kind, source = _open(reference, Request(count, sides, pretrained))
    module = set_evaluation(source.module)
    in_shape, outputs = _probe_shape(reference, module, source, size)
    if count is not None and count != outputs and not (outputs == 1 and count == 2):
        raise ValueError(f"{reference} returns {outputs} outputs, got classes={classes!r}, which are {count}.")
    given = None if classes is None or isinstance(classes, int) else tuple(classes)
    return OpenedNetwork(
        reference=reference,
        name=_short_name(reference),
        source=kind,
        module=module,
        num_classes=outputs,
        classes=given or (source.classes if source.classes and len(source.classes) == outputs else None),
        in_shape=in_shape,
        preprocessing=_preprocessing(module, source, in_shape),
        sha256=weights_checksum(module),
    )


def _preprocessing(module: nn.Module, source: Source, in_shape: tuple[int, ...]) -> Preprocessing:
    """Return the preprocessing of an image, with the normalization that the source states or the network contains."""
    known = replace(source.preprocessing or Preprocessing(size=()), size=in_shape[1:])
    inside = find_normalization(module) if known.mean is None else None
    return replace(known, mean=inside[0], std=inside[1]) if inside else known


def _open(reference: str, request: Request) -> tuple[str, Source]:
    prefix, _, name = reference.partition(":")
    named = {"timm": open_timm, "torchvision": open_torchvision, "hf": open_hugging_face}
    path = Path(reference).expanduser()
    if prefix in named and name:
        with _errors_with(name):
            return prefix, named[prefix](name, request)
    if path.suffix in _FILES:
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file.")
        with _errors_with(str(path)):
            if path.suffix == ".onnx":
                return "onnx", open_onnx(path, request)
            return "torchscript", open_torchscript(path)
    if (path / "config.json").is_file():
        with _errors_with(str(path)):
            return "hf", open_hugging_face(str(path), request)
    if ":" in reference and MODELS.target(reference) == reference:
        return "python", open_python(reference, request)
    if MODELS.canonical(reference) in MODELS:
        return "registered", open_registered(reference, request)
    if not set(reference) & set(":/\\") and not path.exists():
        return _open_bare(reference, request)
    raise ValueError(f"{reference!r} is no reference of a network. {_EXPECTED}")


@contextmanager
def _errors_with(name: str) -> Iterator[None]:
    """Turn errors of libraries about a damaged file into a ``ValueError`` with its name; ours have it already."""
    try:
        yield
    except (ModuleNotFoundError, UnknownNameError, WeightsNotFoundError):
        raise
    except Exception as error:
        if name in str(error):
            raise
        raise ValueError(
            f"{name} cannot be opened ({type(error).__name__}: {first_line(error)}). If it is damaged, get it again."
        ) from error


def _open_bare(name: str, request: Request) -> tuple[str, Source]:
    """Open a name without prefix that only one library has."""
    from importlib.util import find_spec

    from torchvision import models

    has = {"torchvision": name in models.list_models(module=models), "timm": False}
    if find_spec("timm"):
        import timm

        has["timm"] = timm.is_model(name)
    found = [library for library, known in has.items() if known]
    if len(found) == 2:
        raise ValueError(f"{name!r} is in torchvision and in timm; write 'torchvision:{name}' or 'timm:{name}'.")
    if not found:
        raise UnknownNameError(f"{name!r} is no network of xaibench, torchvision or timm. {_EXPECTED}")
    return found[0], (open_timm if found[0] == "timm" else open_torchvision)(name, request)


def _short_name(reference: str) -> str:
    """Return the last part of a reference.

    Example:
        >>> [_short_name(one) for one in ("timm:resnet18.a1_in1k", "models/net.py:small", "hf:org/vit", "a/b.pt")]
        ['resnet18.a1_in1k', 'small', 'vit', 'b']
    """
    last = reference.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return last.rpartition(".")[0] if last.endswith(_FILES) else last


def _probe_shape(
    reference: str, module: nn.Module, source: Source, size: int | tuple[int, ...] | None
) -> tuple[tuple[int, ...], int]:
    """Return the shape of the images that the network accepts, and its number of outputs."""
    error: ValueError | None = None
    known = size or (source.preprocessing.size if source.preprocessing else None)
    axes = 3 if any(isinstance(layer, nn.Conv3d) for layer in module.modules()) else 2
    tried: Sequence[int | tuple[int, ...]] = [known] if known else _SIDES if axes == 2 else _VOLUME_SIDES
    for channels in _channels(module, source):
        for side in tried:
            sides = (side,) * axes if isinstance(side, int) else side
            images = torch.rand(2, channels, *sides, generator=torch.Generator().manual_seed(0))
            try:
                outputs = probe(module, images, name=reference, what="random images in [0, 1]").shape[1]
            except ValueError as found:
                error = error or found
            else:
                return (channels, *sides), outputs
    assert error is not None
    ends = f"{min(_SIDES)} to {max(_SIDES)}" if axes == 2 else f"{min(_VOLUME_SIDES)} to {max(_VOLUME_SIDES)}"
    hint = "" if size else f" Sides from {ends} were tried; give the size of the images as size=."
    raise ValueError(f"{error}{hint}{source.hint}") from error


def _channels(module: nn.Module, source: Source) -> Iterator[int]:
    """Yield the numbers of channels to try: that of the first convolution, or RGB and gray."""
    if source.channels is not None:
        yield source.channels
        return
    first = next((layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Conv3d)), None)
    if first is not None:
        yield first.in_channels
    yield from (count for count in (3, 1) if first is None or count != first.in_channels)
