"""Safetensors files with checksums: one per tensor, stored in the header, and one of the header itself.

A single tensor can thus be read and verified without the others. The file layout is eight bytes with the header's
length, the JSON header, and the data of the tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xaibench.runner.store.checksums import PLACEHOLDER, has_valid_checksum, insert_checksum

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Number of bytes read first: usually the whole header, and all of a small file.
_FIRST_READ = 1 << 16

#: Longest possible header in bytes; a larger length means that the file is damaged.
_MAX_HEADER = 1 << 26

#: Function ``(start, stop) -> bytes`` that reads a part of the file. ``stop`` None reads to the end.
Read = Callable[[int, int | None], bytes]


def to_safetensors(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """Serialize named tensors and JSON-serializable metadata as a safetensors file with checksums."""
    from safetensors.torch import save

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    digests = {name: _digest(tensor) for name, tensor in kept.items()}
    data: bytes = save(kept, metadata={"meta": json.dumps(meta), "sha256": json.dumps(digests), "seal": PLACEHOLDER})
    return insert_checksum(data, _body_offset(data))


def read_meta(read: Read) -> dict[str, Any]:
    """Read the metadata. Raises the same errors as :func:`read_tensors`."""
    return _read_header(read).meta


def read_tensors(read: Read, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors whose names begin with ``prefix``, and the metadata; other tensors are not read.

    Raises:
        ValueError: If the bytes that are read have changed.
    """
    import torch

    header = _read_header(read)
    tensors = {}
    for name, entry in header.entries.items():
        if not name.startswith(prefix):
            continue
        start, stop = (header.body + offset for offset in entry["data_offsets"])
        data = bytearray(header.head[start:stop] if stop <= len(header.head) else read(start, stop))
        if len(data) != stop - start:
            raise ValueError(f"the file ends before {name}")
        shape, dtype = entry["shape"], _dtype(entry["dtype"])
        tensor = torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        if _digest(tensor) != header.digests[name]:
            raise ValueError(f"the checksum of {name} does not match")
        tensors[name] = tensor
    return tensors, header.meta


@dataclass(frozen=True)
class _Header:
    """Header of a file.

    Attributes:
        entries: Type, shape and offsets per tensor.
        digests: SHA-256 per tensor.
        meta: The metadata.
        body: Offset of the tensor data.
        head: The bytes that have been read already.
    """

    entries: dict[str, dict[str, Any]]
    digests: dict[str, str]
    meta: dict[str, Any]
    body: int
    head: bytes


def _read_header(read: Read) -> _Header:
    head = read(0, _FIRST_READ)
    body = _body_offset(head)
    if len(head) < 8 or body > _MAX_HEADER:
        raise ValueError("it is not a tensor file")
    if body > len(head):
        head += read(len(head), body)
    if len(head) < body or not has_valid_checksum(head[:body]):
        raise ValueError("the checksum of the header does not match")
    entries = json.loads(head[8:body])
    metadata = entries.pop("__metadata__")
    return _Header(entries, json.loads(metadata["sha256"]), json.loads(metadata["meta"]), body, head)


def _body_offset(head: bytes) -> int:
    return 8 + int.from_bytes(head[:8], "little")


def _dtype(name: str) -> torch.dtype:
    """Return the torch dtype for a safetensors dtype name: F64, BF16, I8, U8, BOOL, ..."""
    import torch

    words = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint"}
    letters = name.rstrip("0123456789")
    found: torch.dtype = torch.bool if name == "BOOL" else getattr(torch, words[letters] + name[len(letters) :])
    return found


def _digest(tensor: Tensor) -> str:
    import torch

    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    if tensor.numel():
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)  # its bytes, without a copy
    return digest.hexdigest()
