"""Unpickling what is not trusted: dicts, tuples, the authors' record, arrays and tensors of numbers, nothing else.

A pickle is a programme for a small machine. Here it can neither name anything but what stands in for those few types,
nor set an attribute of what it is given, nor make room for more than the file holds.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import re
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]

#: What torch writes before a storage, and the version of that layout.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001

#: The storages that torch names, as numpy types.
_STORAGES = {
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


class RefusedError(pickle.UnpicklingError):
    """The file names or builds what is not admitted."""


def load_plain(path: str | os.PathLike[str], record: type) -> Any:
    """What a pickle file holds, with every array and tensor as a :class:`PlainArray`.

    Args:
        path: The file; nothing in it is executed.
        record: The named tuple that it may build, under the name ``common.DataRecord``.

    Raises:
        RefusedError: If it names, builds or changes anything else; says what.
        Exception: Whatever a damaged file leads to.
        OSError: If it cannot be read.
    """
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise EOFError("it is empty")
        # Of a memory map, a read gives what is there and makes no room for what a file only claims to hold.
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Unpickler(content, _ADMITTED | {("common", "DataRecord"): record}).load()


class PlainArray:
    """Stands in for a numpy array while it is unpickled: bytes, a shape and a type of plain numbers, nothing more."""

    def __init__(self, *_: Any) -> None:
        self.values: Numbers = np.empty(0)

    def fill(self, raw: Any, dtype: Any, shape: tuple[int, ...], order: str) -> PlainArray:
        """Take the numbers; they stay where they were read."""
        if not isinstance(dtype, _Type) or not isinstance(raw, bytes | bytearray):
            raise RefusedError("an array does not hold plain numbers")
        self.values = np.frombuffer(raw, dtype.resolved()).reshape(shape, order="F" if order == "F" else "C")
        return self

    def build(self, state: Any) -> None:
        """What numpy's own ``__setstate__`` takes."""
        _, shape, dtype, fortran, raw = state
        self.fill(raw, dtype, shape, "F" if fortran else "C")


class _Type:
    """Stands in for a numpy type: a letter, a width and a byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not re.fullmatch(r"[biuf]\d{1,2}", str(code)):
            raise RefusedError(f"refused an array of type {code!r}; only plain numbers are admitted")
        self.code, self.order = code, "="

    def build(self, state: Any) -> None:
        """What numpy's own ``__setstate__`` takes, of which the byte order counts."""
        self.order = ">" if state[1] == ">" else "="

    def resolved(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.order + self.code)
        return dtype


class _StorageType:
    """Stands in for one of torch's classes of storages."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype("<" + _STORAGES[name])


def _load_storage(raw: Any) -> Numbers:
    """The numbers of a tensor's storage, from the layout that torch nests in a pickle.

    Four pickles (a magic number, a version, the machine, the storage by reference), the list of references, then for
    each eight bytes with the count and the numbers themselves.
    """
    if not isinstance(raw, bytes | bytearray):
        raise RefusedError("a tensor's storage is no bytes")
    if raw[:2] == b"PK":
        raise RefusedError("refused an archive inside a tensor's storage; torch's own pickles hold none")
    stream = io.BytesIO(raw)
    try:
        magic, version, machine, found, keys = (_Unpickler(stream, _STORAGE_NAMES).load() for _ in range(5))
    except RefusedError as error:
        name = str(error).partition(":")[0].removeprefix("refused ")
        raise RefusedError(f"refused {name} inside a tensor's storage") from None
    if magic != _MAGIC or version != _VERSION or not machine.get("little_endian") or len(keys) != 1:
        raise RefusedError("a tensor's storage is not in the layout of torch's own pickles")
    _, kind, _, _, stated, *_ = found
    if not isinstance(kind, _StorageType):
        raise RefusedError("a tensor's storage does not hold plain numbers")
    (count,) = struct.unpack("<q", stream.read(8))
    numbers = np.frombuffer(raw, kind.dtype, offset=stream.tell()) if count else np.empty(0, kind.dtype)
    if count != stated or count != len(numbers):
        raise RefusedError(f"a tensor's storage claims {stated} numbers and holds {len(numbers)}")
    return numbers


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> PlainArray:
    if not isinstance(storage, np.ndarray):
        raise RefusedError("a tensor is not built from a tensor's storage")
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if min(offset, *size, *stride, 0) < 0 or (0 not in size and last >= len(storage)):
        raise RefusedError("a tensor reaches beyond its storage")
    if math.prod(size) > len(storage):
        raise RefusedError("a tensor has more numbers than its storage")
    array = PlainArray()
    steps = [step * storage.itemsize for step in stride]
    array.values = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
    return array


class _Call:
    """A function that can be called and nothing else."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def _from_buffer(raw: Any, dtype: Any, shape: tuple[int, ...], order: str) -> PlainArray:
    """What protocol 5 calls instead of setting a state."""
    return PlainArray().fill(raw, dtype, shape, order)


#: Every name that a file may use, and what stands in for it. ``numpy.core`` is what NumPy 1 called ``numpy._core``.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Call(PlainArray),
    ("numpy", "dtype"): _Call(_Type),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Call(PlainArray) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Call(_from_buffer) for core in ("core", "_core")},
    ("torch._utils", "_rebuild_tensor_v2"): _Call(_rebuild_tensor),
    ("torch.storage", "_load_from_bytes"): _Call(_load_storage),
    ("collections", "OrderedDict"): OrderedDict,
}
_STORAGE_NAMES: dict[tuple[str, str], Any] = {("torch", name): _StorageType(name) for name in _STORAGES}


class _Unpickler(pickle._Unpickler):
    """The machine in Python, since that of C makes room for what a file claims before it looks whether it is there."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    read: Callable[[int], bytes]
    append: Callable[[Any], None]

    def __init__(self, stream: Any, admitted: dict[tuple[str, str], Any]) -> None:
        super().__init__(stream)
        self._admitted = admitted

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return self._admitted[module_name, global_name]
        except KeyError:
            raise RefusedError(
                f"refused {module_name}.{global_name}: only the authors' DataRecord, numpy arrays and torch tensors "
                "are admitted"
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        """A storage by reference; there is but one, behind the pickles."""
        return pid

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], PlainArray | _Type):
            raise RefusedError("refused to change what is no array; only the authors' DataRecord is admitted")
        self.stack[-1].build(state)

    dispatch[pickle.BUILD[0]] = load_build

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(length)))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
