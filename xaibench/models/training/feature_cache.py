"""A file that keeps the features of a frozen trunk."""

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

from xaibench.core.atomic_files import whole_path
from xaibench.models.training.split_reading import Samples

_LOGGER = logging.getLogger("xaibench")

#: Says in a file that it is one of these.
_FORMAT = "xaibench features 1"

#: Images of each split that a fingerprint looks at.
_LOOKS = 8


def cached(
    path: str | os.PathLike[str] | None, key: Callable[[], str], compute: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Tensors from the file at ``path`` if it was written with this key, else computed and written there.

    The file appears whole or not at all: it is written beside, and then moved into place.

    Args:
        path: The file; None: compute.
        key: What the tensors depend on.
        compute: The tensors.

    Raises:
        ValueError: If there is another file at ``path``, which is left alone.
    """
    if path is None:
        return compute()
    file, present = Path(path).expanduser(), key()
    found = _read(file, present) if file.exists() else None
    if found is not None:
        return found
    tensors = compute()
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: value.contiguous() for name, value in tensors.items()}
    try:
        with whole_path(file) as beside:
            save_file(kept, beside, {"format": _FORMAT, "key": present})
    except SafetensorError as error:  # its own kind even for a full disk
        raise OSError(f"cache={str(file)!r} cannot be written: {error}. Free space, or name another file.") from error
    return tensors


def _read(file: Path, key: str) -> dict[str, Tensor] | None:
    try:
        with safe_open(str(file), "pt") as opened:
            notes = opened.metadata() or {}
            if notes.get("format") == _FORMAT:
                if notes.get("key") == key:
                    return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
                _LOGGER.warning("%s holds the features of another network or set; they are computed anew", file)
                return None
    except (SafetensorError, OSError):
        pass
    raise ValueError(f"cache={str(file)!r} is no file of features, and is left as it is. Name another file.")


def fingerprint(model: nn.Module, left_out: str, splits: Mapping[str, Samples]) -> str:
    """What features depend on, as one hash: weights, buffers and structure of the trunk, and the samples.

    Of each split, the number, all targets and 8 images are looked at; reading all images would take longer than the
    features of many a network.

    Args:
        model: The network.
        left_out: Name of the head, which features do not depend on.
        splits: The samples.
    """
    digest = hashlib.sha256(str(model).encode())
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if not name.startswith(f"{left_out}."):
            _add(digest, name, value)
    for name, split in splits.items():
        _add(digest, name, split.targets)
        places = torch.linspace(0, len(split) - 1, min(_LOOKS, len(split))).long().tolist()
        _add(digest, f"{name} images", split[places][0])
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, value: Tensor) -> None:
    digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
    digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
