"""Cache file for the features of a frozen trunk."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from xaibench.core.files import atomic_path
from xaibench.models.training.split_reading import IndexedSplit
from xaibench.models.weights_checksum import update_digest

_LOGGER = logging.getLogger("xaibench")

#: Format name in the file's metadata.
_FORMAT = "xaibench features 1"

#: Number of images of each split that are hashed.
_HASHED_IMAGES = 8


def cached(
    path: str | os.PathLike[str] | None, key: Callable[[], str], compute: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return tensors from the file at ``path`` if it was written with this key; otherwise compute and write them.

    The file is written atomically.

    Args:
        path: The file; None = no cache.
        key: Returns a text that changes whenever the tensors do.
        compute: Returns the tensors.

    Raises:
        ValueError: If ``path`` is another kind of file, which is not changed.
    """
    if path is None:
        return compute()
    file, present = Path(path).expanduser(), key()
    found = _read_cache(file, present) if file.exists() else None
    if found is not None:
        return found
    tensors = compute()
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: value.contiguous() for name, value in tensors.items()}
    try:
        with atomic_path(file) as beside:
            save_file(kept, beside, {"format": _FORMAT, "key": present})
    except SafetensorError as error:  # also raised if the disk is full
        raise OSError(f"cache={str(file)!r} cannot be written: {error}. Free space, or name another file.") from error
    return tensors


def _read_cache(file: Path, key: str) -> dict[str, Tensor] | None:
    try:
        with safe_open(str(file), "pt") as opened:
            notes = opened.metadata() or {}
            if notes.get("format") == _FORMAT:
                if notes.get("key") == key:
                    return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
                _LOGGER.warning("%s holds the features of another network or data set; they are computed again.", file)
                return None
    except (SafetensorError, OSError):
        pass
    raise ValueError(f"cache={str(file)!r} is not a file of features and is not changed. Name another file.")


def hash_feature_inputs(model: nn.Module, left_out: str, splits: Mapping[str, IndexedSplit]) -> str:
    """Hash everything that features depend on: weights, buffers and structure of the trunk, and the samples.

    Of each split, the number of samples, all targets and 8 images are hashed. Reading all images would take longer than
    computing the features of many networks.

    Args:
        model: The network.
        left_out: Name of the head, which features do not depend on.
        splits: The samples.
    """
    digest = hashlib.sha256(str(model).encode())
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if not name.startswith(f"{left_out}."):
            update_digest(digest, name, value)
    for name, split in splits.items():
        update_digest(digest, name, split.targets)
        places = torch.linspace(0, len(split) - 1, min(_HASHED_IMAGES, len(split))).long().tolist()
        update_digest(digest, f"{name} images", split[places][0])
    return digest.hexdigest()
