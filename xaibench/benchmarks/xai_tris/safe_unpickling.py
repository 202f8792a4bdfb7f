"""Safe unpickling of untrusted files: dicts, tuples, a given record type, numpy arrays and torch tensors of numbers.

A pickle is a program for a small virtual machine. Here, the program can only name stand-ins for these types, cannot set
attributes of objects, and cannot allocate more memory than the file has bytes.
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

_Numbers = NDArray[Any]

#: Magic number and version that torch writes before a storage.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001

#: Storage classes of torch, and the numpy types of their numbers.
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


class UnsafePickleError(pickle.UnpicklingError):
    """The file refers to a name or builds an object that is not allowed."""


def load_plain(path: str | os.PathLike[str], record: type) -> Any:
    """Load a pickle file, with every array and tensor as a :class:`PlainArray`.

    Args:
        path: The file; nothing in it is executed.
        record: The named tuple type that the file may build as ``common.DataRecord``.

    Raises:
        UnsafePickleError: If the file names, builds or changes anything else; the message says what.
        Exception: Any exception, if the file is damaged.
        OSError: If the file cannot be read.
    """
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise EOFError("it is empty")
        # A read from a memory map only allocates the bytes that exist, not the length that the file states.
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Unpickler(content, _ALLOWED | {("common", "DataRecord"): record}).load()


class PlainArray:
    """Stand-in for a numpy array: bytes, a shape and a type of plain numbers."""

    def __init__(self, *_: Any) -> None:
        self.values: _Numbers = np.empty(0)

    def fill(self, raw: Any, dtype: Any, shape: tuple[int, ...], order: str) -> PlainArray:
        """Set the values from a buffer, without a copy."""
        if not isinstance(dtype, _Type) or not isinstance(raw, bytes | bytearray):
            raise UnsafePickleError("an array does not contain plain numbers")
        self.values = np.frombuffer(raw, dtype.resolved()).reshape(shape, order="F" if order == "F" else "C")
        return self

    def build(self, state: Any) -> None:
        """Set the values from the state that numpy's ``__setstate__`` takes."""
        _, shape, dtype, fortran, raw = state
        self.fill(raw, dtype, shape, "F" if fortran else "C")


class _Type:
    """Stand-in for a numpy dtype: a letter, a width and a byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not re.fullmatch(r"[biuf]\d{1,2}", str(code)):
            raise UnsafePickleError(f"refused an array of type {code!r}; only plain numbers are allowed")
        self.code, self.order = code, "="

    def build(self, state: Any) -> None:
        """Set the byte order from the state that numpy's ``__setstate__`` takes."""
        self.order = ">" if state[1] == ">" else "="

    def resolved(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.order + self.code)
        return dtype


class _StorageType:
    """Stand-in for a storage class of torch."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype("<" + _STORAGES[name])


def _load_storage(raw: Any) -> _Numbers:
    """Read the numbers of a tensor's storage in the format that torch nests in a pickle.

    The format has four pickles (a magic number, a version, the system, the storage by reference) and the list of
    references, followed by an eight-byte count and the numbers for each reference.
    """
    if not isinstance(raw, bytes | bytearray):
        raise UnsafePickleError("a tensor's storage is not bytes")
    if raw[:2] == b"PK":
        raise UnsafePickleError("refused an archive inside a tensor's storage, which pickles of torch do not have")
    stream = io.BytesIO(raw)
    try:
        magic, version, machine, found, keys = (_Unpickler(stream, _STORAGE_NAMES).load() for _ in range(5))
    except UnsafePickleError as error:
        name = str(error).partition(":")[0].removeprefix("refused ")
        raise UnsafePickleError(f"refused {name} inside a tensor's storage") from None
    if magic != _MAGIC or version != _VERSION or not machine.get("little_endian") or len(keys) != 1:
        raise UnsafePickleError("a tensor's storage is not in the format of torch's pickles")
    _, kind, _, _, stated, *_ = found
    if not isinstance(kind, _StorageType):
        raise UnsafePickleError("a tensor's storage does not contain plain numbers")
    (count,) = struct.unpack("<q", stream.read(8))
    numbers = np.frombuffer(raw, kind.dtype, offset=stream.tell()) if count else np.empty(0, kind.dtype)
    if count != stated or count != len(numbers):
        raise UnsafePickleError(f"a tensor's storage states {stated} numbers but has {len(numbers)}")
    return numbers


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> PlainArray:
    if not isinstance(storage, np.ndarray):
        raise UnsafePickleError("a tensor is not built from a tensor's storage")
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if min(offset, *size, *stride, 0) < 0 or (0 not in size and last >= len(storage)):
        raise UnsafePickleError("a tensor reaches beyond its storage")
    if math.prod(size) > len(storage):
        raise UnsafePickleError("a tensor has more numbers than its storage")
    array = PlainArray()
    steps = [step * storage.itemsize for step in stride]
    array.values = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
    return array


class _Call:
    """A wrapper that only allows a function to be called."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def _from_buffer(raw: Any, dtype: Any, shape: tuple[int, ...], order: str) -> PlainArray:
    """Build an array as pickle protocol 5 does."""
    return PlainArray().fill(raw, dtype, shape, order)


#: Names that a file may use, and their stand-ins. NumPy 1 has ``numpy.core`` instead of ``numpy._core``.
_ALLOWED: dict[tuple[str, str], Any] = {
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
    """The Python implementation, because the C one allocates the lengths that a file states before it reads."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    read: Callable[[int], bytes]
    append: Callable[[Any], None]

    def __init__(self, stream: Any, allowed: dict[tuple[str, str], Any]) -> None:
        super().__init__(stream)
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return self._allowed[module_name, global_name]
        except KeyError:
            raise UnsafePickleError(
                f"refused {module_name}.{global_name}: only the authors' DataRecord, numpy arrays and torch tensors "
                "are allowed"
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        """Return the reference to a storage; the only storage follows after the pickles."""
        return pid

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], PlainArray | _Type):
            raise UnsafePickleError("refused to set the state of an object other than an array or its type")
        self.stack[-1].build(state)

    dispatch[pickle.BUILD[0]] = load_build

    def load_bytearray8(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(length)))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
