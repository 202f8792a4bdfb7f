"""Reading and writing the pickle files of the XAI-TRIS authors, without executing code from them.

A file contains a dict ``{key: DataRecord}``. The key has the form ``SCENARIO_JdKp_alpha_BACKGROUND``, such as
``linear_1d1p_0.18_white``. The record is a named tuple of flattened images (``[N, D]`` torch float16), classes ``[N]``
and masks (``[N, D]`` numpy floats: the smoothed pattern) for train, validation and test.

A pickle is a program for a small virtual machine. Here it can only name stand-ins for the record, arrays and tensors of
numbers, and cannot allocate more memory than the file has bytes.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
import re
import struct
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.patterns import XOR_CLASSES, support
from xaibench.benchmarks.xai_tris.published_accuracy import CITATION
from xaibench.benchmarks.xai_tris.shapes import SHAPE_NAMES
from xaibench.core.files import atomic_file
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.file_readers import BoundedFile
from xaibench.registry.info import DatasetInfo

_SCENARIOS = {"lin": "linear", "mult": "multiplicative", "rigid": "translations_rotations", "xor": "xor"}
_BACKGROUNDS = {"white": "white", "corr": "correlated", "imagenet": "imagenet"}
_KEY = re.compile(rf"({'|'.join(_SCENARIOS.values())})_\d+d\d+p_([\d.e-]+)_({'|'.join(_BACKGROUNDS.values())})")
_SPLITS = ("train", "val", "test")

#: Magic number and version that torch writes before a storage.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
#: Storage classes of torch, and the numpy types of their numbers.
_STORAGES = {
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "CharStorage": "<i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}


class DataRecord(NamedTuple):
    """The record type of the authors, with the fields in their order."""

    x_train: Any
    y_train: Any
    x_val: Any
    y_val: Any
    x_test: Any
    y_test: Any
    masks_train: Any
    masks_val: Any
    masks_test: Any


# The class of the authors is in their module `common`, and pickle files refer to it by this name.
DataRecord.__module__ = "common"


def read_released(path: str | os.PathLike[str]) -> dict[str, Dataset]:
    """Read a file of the XAI-TRIS authors.

    Images are converted to float32 ``[N, 1, S, S]``. Masks are converted to bool: the pixels at which the stored
    pattern exceeds 5 % of its largest absolute value.

    Args:
        path: A pickle file. Nothing in it is executed.

    Returns:
        Key in the file to data set.

    Raises:
        ValueError: If the file refers to anything other than the record type, numpy arrays and torch tensors, is not a
            pickle file, or contains other values than such records.
    """
    try:
        with BoundedFile(path) as stream:
            content = _load(stream, stream.size, _allowed_names())
            if not isinstance(content, dict) or not all(
                isinstance(key, str) and isinstance(value, DataRecord) for key, value in content.items()
            ):
                raise _ContentError("expected a dict of DataRecord, as the XAI-TRIS authors release it.")
            records = {key: dict(zip(DataRecord._fields, value, strict=True)) for key, value in content.items()}
            arrays = [value for record in records.values() for value in record.values() if isinstance(value, _Array)]
            numbers = sum(array.values.size for array in arrays)
            if numbers > stream.size:  # an array is repeated many times
                raise _ContentError(f"it has {stream.size:,} bytes but {numbers:,} numbers.")
        return {key: _from_record(key, record) for key, record in records.items()}
    except (_UnsafePickleError, _ContentError) as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        reason = str(error) or type(error).__name__
        raise ValueError(f"{os.fspath(path)} is damaged or not a pickle file ({reason}).") from error


def write_released(path: str | os.PathLike[str], datasets: Mapping[str, Dataset]) -> None:
    """Write data sets in the format of the XAI-TRIS authors; :func:`released_key` returns their keys.

    Images are rounded to float16, as in the files of the authors. Masks are written as 0 and 1 instead of the smoothed
    pattern, with the same support. The file is written atomically.

    Args:
        path: The file to write.
        datasets: Key to data set; images must have one channel.

    Raises:
        ValueError: If a data set has more than one channel.
        OSError: If the file cannot be written.
    """
    records = {key: _to_record(key, dataset) for key, dataset in datasets.items()}
    with atomic_file(path) as stream, _fake_module():
        pickle.dump(records, stream, protocol=4)


def released_key(scenario: str, background: str, size: int, alpha: float) -> str:
    """Return the key of a data set in the files of the authors.

    Example:
        >>> released_key("rigid", "corr", 64, 0.375)
        'translations_rotations_8d4p_0.375_correlated'
    """
    block = 1 if size == 8 else 4 if scenario == "rigid" else 8
    return f"{_SCENARIOS[scenario]}_{size // 8}d{block}p_{alpha:g}_{_BACKGROUNDS[background]}"


@contextmanager
def _fake_module() -> Iterator[None]:
    """Let pickle find the record type in a module named as that of the authors, while a file is written."""
    module = types.ModuleType("common")
    module.DataRecord = DataRecord  # type: ignore[attr-defined]
    before = sys.modules.get("common")
    sys.modules["common"] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules["common"]
        else:
            sys.modules["common"] = before


class _ContentError(ValueError):
    """The file contains other values than records of the authors."""


class _UnsafePickleError(pickle.UnpicklingError):
    """The file names or builds something that is not allowed."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], allowed: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(stream)
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return self._allowed[module_name, global_name]
        except KeyError:
            raise _UnsafePickleError(
                f"refused {module_name}.{global_name}: only the authors' DataRecord, numpy arrays and torch tensors "
                "are allowed. Get the file again, from its authors."
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        """Return the reference to a storage; the only storage follows after the pickles."""
        return pid


def _load(stream: IO[bytes], size: int, allowed: Mapping[tuple[str, str], Any]) -> Any:
    """Load a pickle from a stream of ``size`` bytes, after checking the lengths that it states."""
    start = stream.tell()
    for opcode, argument, _ in pickletools.genops(stream):  # raises ValueError if a length exceeds the stream
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > size:
            raise _UnsafePickleError("it numbers more objects than it has bytes")
    stream.seek(start)
    return _Unpickler(stream, allowed).load()


class _Array:
    """Stand-in for a numpy array: bytes, a shape and a type of plain numbers."""

    def __init__(self, values: NDArray[Any] | None = None) -> None:
        self.values = np.empty(0) if values is None else values

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self.values = _from_buffer(raw, dtype, shape, "F" if fortran else "C").values


class _Type:
    """Stand-in for a numpy dtype: a letter, a width and a byte order."""

    def __init__(self, code: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[biuf]\d{1,2}", code):
            raise _UnsafePickleError("refused an array of other values; only plain numbers are allowed")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if state[1] == ">" else "="


def _from_buffer(raw: Any, dtype: Any, shape: tuple[int, ...], order: str) -> _Array:
    if not isinstance(dtype, _Type) or not isinstance(raw, bytes | bytearray):
        raise _UnsafePickleError("refused an array of other values; only plain numbers are allowed")
    values = np.frombuffer(raw, np.dtype(dtype.order + dtype.code))
    return _Array(values.reshape(shape, order="F" if order == "F" else "C"))


def _load_storage(raw: Any) -> NDArray[Any]:
    """Read the numbers of a tensor's storage in the format that torch nests in a pickle.

    The format has four pickles (a magic number, a version, the system, the storage by reference) and the list of
    references, followed by an eight-byte count and the numbers for each reference.
    """
    if not isinstance(raw, bytes | bytearray) or raw[:2] == b"PK":  # an archive, which pickles of torch do not have
        raise _UnsafePickleError("refused a tensor's storage that is not in the format of torch's pickles")
    stream = io.BytesIO(raw)
    kinds = {("torch", name): name for name in _STORAGES}
    magic, version, machine, storage, keys = (_load(stream, len(raw), kinds) for _ in range(5))
    _, kind, _, _, stated, *_ = storage
    if (magic, version) != (_MAGIC, _VERSION) or not machine.get("little_endian") or len(keys) != 1:
        raise _UnsafePickleError("refused a tensor's storage that is not in the format of torch's pickles")
    (count,) = struct.unpack("<q", stream.read(8))
    numbers = np.frombuffer(raw[stream.tell() :], _STORAGES[kind])
    if not count == stated == len(numbers):
        raise _UnsafePickleError(f"a tensor's storage states {stated} numbers but has {len(numbers)}")
    return numbers


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> _Array:
    if not isinstance(storage, np.ndarray):
        raise _UnsafePickleError("a tensor is not built from a tensor's storage")
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if min(offset, *size, *stride, 0) < 0 or (0 not in size and last >= len(storage)):
        raise _UnsafePickleError("a tensor reaches beyond its storage")
    if math.prod(size) > len(storage):
        raise _UnsafePickleError("a tensor has more numbers than its storage")
    steps = [step * storage.itemsize for step in stride]
    return _Array(np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False))


def _allowed_names() -> dict[tuple[str, str], Any]:
    """Return the names that a file may use, and their stand-ins: new objects, since a pickle may set their attributes.

    NumPy 1 has ``numpy.core`` instead of ``numpy._core``.
    """
    return {
        ("common", "DataRecord"): type("DataRecord", (DataRecord,), {}),
        ("numpy", "ndarray"): lambda *_: _Array(),
        ("numpy", "dtype"): lambda code, *_: _Type(code),
        **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: _Array() for core in ("core", "_core")},
        **{(f"numpy.{core}.numeric", "_frombuffer"): lambda *a: _from_buffer(*a) for core in ("core", "_core")},
        ("torch._utils", "_rebuild_tensor_v2"): lambda *a: _rebuild_tensor(*a),
        ("torch.storage", "_load_from_bytes"): lambda raw: _load_storage(raw),
        ("collections", "OrderedDict"): OrderedDict,
    }


def _from_record(key: str, record: Mapping[str, Any]) -> Dataset:
    fields: dict[str, NDArray[Any]] = {}
    for name, value in record.items():
        if not isinstance(value, _Array):
            raise _ContentError(f"{key}, {name}: expected a numpy array or a torch tensor, got {type(value).__name__}.")
        fields[name] = value.values
    splits = {}
    for name in _SPLITS:
        images, targets, masks = fields[f"x_{name}"], fields[f"y_{name}"], fields[f"masks_{name}"]
        count, side = len(targets), round(images.shape[-1] ** 0.5)
        if images.shape != (count, side * side) or masks.shape != images.shape or targets.shape != (count,):
            raise _ContentError(
                f"{key}, {name}: expected images and masks [N, D] of square images and classes [N]; got "
                f"{list(images.shape)}, {list(masks.shape)} and {list(targets.shape)}."
            )
        true = support(masks.reshape(count, side, side))
        pixels = images.astype(np.float32).reshape(count, 1, side, side)
        splits[name] = Split(
            torch.from_numpy(pixels), torch.from_numpy(true), torch.from_numpy(targets.astype(np.int64))
        )
    named = _KEY.fullmatch(key)
    info = DatasetInfo(
        name=key,
        classes=XOR_CLASSES if named and named[1] == "xor" else SHAPE_NAMES[2],
        image_shape=(1, side, side),
        citation=CITATION,
        license="the license of the file's authors; XAI-TRIS is released under the GPL",
        truth="data",
    )
    parameters = {"alpha": float(named[2])} if named else {}
    return Dataset(splits["train"], splits["val"], splits["test"], info=info, parameters=parameters, batch_size=512)


def _to_record(key: str, dataset: Dataset) -> DataRecord:
    fields: dict[str, Any] = {}
    for name in _SPLITS:
        split: Split = getattr(dataset, name)
        if split.images.shape[1] != 1:
            raise ValueError(f"{key}: images have {split.images.shape[1]} channels, but the format only allows one.")
        fields[f"x_{name}"] = split.images.flatten(1).to(torch.float16)
        fields[f"y_{name}"] = split.targets.numpy().copy()
        fields[f"masks_{name}"] = split.masks.flatten(1).numpy().astype(np.float64)
    return DataRecord(**fields)
