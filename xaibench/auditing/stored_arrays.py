"""Arrays that an audit keeps in its folder, so that it continues where it was stopped."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.files import atomic_file
from xaibench.data.disk.file_readers import DAMAGED_FILE_ERRORS
from xaibench.models.networks.pretrained_weights import update_digest


@dataclass(frozen=True)
class StoredArrays:
    """Arrays in files whose names contain a checksum of their inputs.

    Attributes:
        folder: Where the files are; None: nothing is stored.
        context: What all arrays depend on, such as the network and versions.
        checksums: Of networks that were inputs.
    """

    folder: Path | None = None
    context: str = ""
    checksums: WeakKeyDictionary[nn.Module, str] = field(default_factory=WeakKeyDictionary, repr=False)

    def get(
        self, name: str, inputs: Sequence[Any], compute: Callable[[], Mapping[str, NDArray[Any]]]
    ) -> Mapping[str, NDArray[Any]]:
        """Return stored arrays, or compute and store them.

        Args:
            name: Name of the file without suffix; may contain folders.
            inputs: What else the arrays depend on: tensors, copies of the network of the context, and values that their
                text identifies.
            compute: Returns the arrays by name.
        """
        if self.folder is None:
            return compute()
        digest = hashlib.sha256(self.context.encode())
        for one in inputs:
            digest.update(self._encode(one))
        path = self.folder / f"{name}-{digest.hexdigest()[:16]}.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
        except DAMAGED_FILE_ERRORS:
            pass
        arrays = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, durable=False) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        return arrays

    def remove(self, *, keep: str) -> None:
        """Remove the files, except those whose name begins with ``keep``."""
        for path in [] if self.folder is None else self.folder.rglob("*.npz"):
            if not path.name.startswith(keep):
                path.unlink()

    def _encode(self, one: Any) -> bytes:
        if isinstance(one, Tensor):
            return f"{one.dtype} {tuple(one.shape)} ".encode() + one.contiguous().numpy().tobytes()
        if not isinstance(one, nn.Module):
            return repr(one).encode()
        if one not in self.checksums:
            digest = hashlib.sha256()
            # Also buffers that are not in the state dictionary: a blinded copy has its visible pixels there.
            for name, value in itertools.chain(one.named_parameters(), one.named_buffers()):
                update_digest(digest, name, value)
            self.checksums[one] = digest.hexdigest()
        return self.checksums[one].encode()
