"""Reading of pretrained weights from a file, or by a name that torchvision can download."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.messages import first_line, unknown

_SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")


class WeightsNotFoundError(ValueError):
    """Weights are not on this machine and cannot be downloaded; the message names the file and where to put it."""


def is_file(weights: object) -> bool:
    """Return whether ``weights`` is a path rather than a name.

    Example:
        >>> is_file("IMAGENET1K_V1"), is_file("mine.pth"), is_file("folder/mine")
        (False, True, True)
    """
    if isinstance(weights, os.PathLike):
        return True
    return isinstance(weights, str) and (weights.endswith(_SUFFIXES) or os.sep in weights or "/" in weights)


def read_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors`` file, or of a ``.pth``, ``.pt`` or ``.bin`` file of ``torch.save``.

    A pickle is read with ``weights_only=True``: it cannot run code. ``{"state_dict": ...}`` and ``{"model": ...}``, as
    training scripts save them, are unpacked.

    Raises:
        WeightsNotFoundError: If the file does not exist.
        ValueError: If it contains anything other than tensors by name.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise WeightsNotFoundError(f"weights={str(path)!r}: there is no such file; give the path of one, or a name.")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and safetensors raise different errors
        # For a refused pickle, torch's message explains how to allow it to run code.
        reason = "" if isinstance(error, pickle.UnpicklingError) else f": {first_line(error)}"
        raise ValueError(
            f"weights={str(path)!r} cannot be read as tensors ({type(error).__name__}{reason}). Expected "
            "a .safetensors file or torch.save(model.state_dict(), file); a pickled module is refused, as it could "
            "run any code."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(
            f"weights={str(path)!r}: expected tensors by name, as in torch.save(model.state_dict(), file)."
        )
    return state


def named_weights(name: str, weights: str) -> Any:
    """Return the entry of torchvision's table of weights: its ``url``, ``transforms`` and ``meta``.

    Raises:
        ValueError: If torchvision has no such weights; suggests the nearest name.
    """
    from torchvision.models import get_model_weights

    table = get_model_weights(name)
    if weights not in table.__members__:
        raise ValueError(unknown_weights(name, weights, table.__members__))
    return table[weights]


def unknown_weights(name: str, weights: object, known: Iterable[str]) -> str:
    """Return the error message for weights that are neither a known name nor a file."""
    return (
        f"{unknown(f'{name} has no weights', weights, known)} The path of a file (.pth, .safetensors) is also "
        "accepted, and None for random weights."
    )


def download_weights(name: str, entry: Any) -> dict[str, Tensor]:
    """Return the weights of an entry of torchvision's table, from torch's cache or downloaded.

    Raises:
        WeightsNotFoundError: If they are not in the cache and cannot be downloaded.
    """
    file = entry.url.rsplit("/", 1)[-1]
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    try:
        state: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            entry.url, map_location="cpu", check_hash=True, progress=False, weights_only=True
        )
    except (OSError, RuntimeError) as error:  # no network, no space, no such address; another hash
        raise WeightsNotFoundError(
            f"{name}: the weights {entry.name} are not on this machine and cannot be downloaded "
            f"({type(error).__name__}: {first_line(error)}). Fetch {entry.url} and put it into {folder}, or pass "
            f"weights='/path/to/{file}'. weights=None builds the network with random weights."
        ) from error
    return state


def weights_checksum(network: nn.Module) -> str:
    """Return the SHA-256 of all parameters and persistent buffers, by name.

    It does not depend on the machine, the device, the library versions, or the file that the weights come from.

    Args:
        network: Any network.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, 2.0]])), layer.bias.data.zero_()
        >>> weights_checksum(layer)[:12]
        '0e00732975d5'
    """
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        if isinstance(value, Tensor):
            update_digest(digest, name, value)
    return digest.hexdigest()


def update_digest(digest: hashlib._Hash, name: str, value: Tensor) -> None:
    """Add name, data type, shape and values of a tensor to a digest."""
    digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
    digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
