"""Tensors as files: safetensors, with a sealed header that holds the checksum of every tensor.

So a single tensor can be read and trusted without the rest: the layout is eight bytes of length, a JSON header, the
bodies of the tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xaibench.runner.store.seals import BLANK, is_whole, sealed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Bytes that are read first: the header, and all of a small file.
_FIRST = 1 << 16

#: A header longer than this is none.
_LONGEST_HEADER = 1 << 26

#: Gives the bytes of the file from the first number to before the second (None = the end), fewer where it ends.
Read = Callable[[int, int | None], bytes]


def to_safetensors(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """Named tensors, and anything that JSON can hold, as the bytes of a file."""
    from safetensors.torch import save

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    digests = {name: _digest(tensor) for name, tensor in kept.items()}
    data: bytes = save(kept, metadata={"meta": json.dumps(meta), "sha256": json.dumps(digests), "seal": BLANK})
    return sealed(data, _body(data))


def read_meta(read: Read) -> dict[str, Any]:
    """What lies beside the tensors; raises as :func:`read_tensors` does."""
    return _read_header(read).meta


def read_tensors(read: Read, prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors whose names begin with ``prefix``, and what lies beside them; no other tensor is read.

    Raises:
        ValueError: If what is read is not what was written.
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
            raise ValueError(f"it ends before {name}")
        shape, dtype = entry["shape"], _dtype(entry["dtype"])
        tensor = torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        if _digest(tensor) != header.digests[name]:
            raise ValueError(f"its checksum does not match ({name})")
        tensors[name] = tensor
    return tensors, header.meta


@dataclass(frozen=True)
class _Header:
    """What is where, what it must hash to, the values beside the tensors, and the bytes that are read already."""

    entries: dict[str, dict[str, Any]]
    digests: dict[str, str]
    meta: dict[str, Any]
    body: int
    head: bytes


def _read_header(read: Read) -> _Header:
    head = read(0, _FIRST)
    body = _body(head)
    if len(head) < 8 or body > _LONGEST_HEADER:
        raise ValueError("it is no tensor file")
    if body > len(head):
        head += read(len(head), body)
    if len(head) < body or not is_whole(head[:body]):
        raise ValueError("its checksum does not match")
    entries = json.loads(head[8:body])
    own = entries.pop("__metadata__")
    return _Header(entries, json.loads(own["sha256"]), json.loads(own["meta"]), body, head)


def _body(head: bytes) -> int:
    """Where the header ends."""
    return 8 + int.from_bytes(head[:8], "little")


def _dtype(name: str) -> torch.dtype:
    """The torch type behind the format's name for it: F64, BF16, I8, U8, BOOL, ..."""
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
