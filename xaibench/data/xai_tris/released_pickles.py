"""The pickle files of the XAI-TRIS authors, read without trusting them, and written.

A file holds a dict ``{key: DataRecord}``. The key reads ``SCENARIO_JdKp_alpha_BACKGROUND``, such as
``linear_1d1p_0.18_white``; the record is a named tuple of flattened images (``[N, D]`` torch float16), classes ``[N]``
and masks (``[N, D]`` numpy floats: the smoothed pattern) for train, validation and test.

A pickle is a programme. This one may only build dicts, tuples, that named tuple, numpy arrays of plain numbers and
torch tensors; whatever else it names is refused by that name, before it is looked up.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.core.atomic_files import whole_file
from xaibench.core.part_info import DatasetInfo
from xaibench.data.dataset import Dataset, Split
from xaibench.data.xai_tris.paper_cells import CITATION
from xaibench.data.xai_tris.patterns import SHAPE_CLASSES, XOR_CLASSES, support

_SCENARIOS = {"lin": "linear", "mult": "multiplicative", "rigid": "translations_rotations", "xor": "xor"}
_BACKGROUNDS = {"white": "white", "corr": "correlated", "imagenet": "imagenet"}
_KEY = re.compile(rf"({'|'.join(_SCENARIOS.values())})_\d+d\d+p_([\d.e-]+)_({'|'.join(_BACKGROUNDS.values())})")
_PARTS = ("train", "val", "test")


class DataRecord(NamedTuple):
    """The authors' record; its fields in their order."""

    x_train: Any
    y_train: Any
    x_val: Any
    y_val: Any
    x_test: Any
    y_test: Any
    masks_train: Any
    masks_val: Any
    masks_test: Any


# The authors' class lives in a module of theirs; files name it so, and files that they shall read must too.
DataRecord.__module__ = "common"


def read_released(path: str | os.PathLike[str]) -> dict[str, Dataset]:
    """Read a file of the XAI-TRIS authors.

    Images become float32 ``[N, 1, S, S]``. Masks become bool: where the stored pattern exceeds 5 % of its own largest
    absolute value.

    Args:
        path: A pickle file. Nothing in it is executed.

    Returns:
        The sets under the file's own keys.

    Raises:
        ValueError: If the file names anything but the record, numpy arrays and torch tensors (says what), is no
            pickle, or holds something else than such records.
    """
    with open(path, "rb") as stream:
        try:
            content = _Unpickler(stream).load()
        except _RefusedError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None
        except (
            pickle.UnpicklingError,
            EOFError,
            AttributeError,
            TypeError,
            IndexError,
            KeyError,
            RuntimeError,
            UnicodeDecodeError,
        ) as error:
            raise ValueError(f"{os.fspath(path)} is damaged or no pickle file ({error}).") from error
    if not isinstance(content, dict) or not all(isinstance(value, DataRecord) for value in content.values()):
        raise ValueError(f"{os.fspath(path)}: expected a dict of DataRecord, as the XAI-TRIS authors release it.")
    return {str(key): _from_record(str(key), record) for key, record in content.items()}


def write_released(path: str | os.PathLike[str], datasets: Mapping[str, Dataset]) -> None:
    """Write sets as the XAI-TRIS authors do; :func:`released_key` makes the keys.

    Images are rounded to float16, as in their files. Masks are written as 0 and 1, where theirs hold the smoothed
    pattern: the support is the same. The file appears whole or not at all.

    Args:
        path: File to write.
        datasets: Sets of one channel under the keys they shall have.

    Raises:
        ValueError: If a set has more than one channel.
        OSError: If the file cannot be written.
    """
    records = {key: _to_record(key, dataset) for key, dataset in datasets.items()}
    with whole_file(path) as stream, _module_of_record():
        pickle.dump(records, stream, protocol=4)


def released_key(scenario: str, background: str, size: int, alpha: float) -> str:
    """The authors' name of a set.

    Example:
        >>> released_key("rigid", "corr", 64, 0.375)
        'translations_rotations_8d4p_0.375_correlated'
    """
    block = 1 if size == 8 else 4 if scenario == "rigid" else 8
    return f"{_SCENARIOS[scenario]}_{size // 8}d{block}p_{alpha:g}_{_BACKGROUNDS[background]}"


class _RefusedError(pickle.UnpicklingError):
    """The file names or builds what is not admitted."""


class _Array:
    """Stands in for a numpy array while it is unpickled: bytes, a shape and a type of plain numbers, nothing more."""

    def __init__(self, *_: Any) -> None:
        self.values: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Type, bool, bytes]) -> None:
        _, shape, dtype, fortran, raw = state
        self._set(raw, dtype, shape, "F" if fortran else "C")

    @classmethod
    def from_buffer(cls, raw: Any, dtype: _Type, shape: tuple[int, ...], order: str) -> _Array:
        """What protocol 5 calls instead of setting a state."""
        array = cls()
        array._set(raw, dtype, shape, order)
        return array

    def _set(self, raw: Any, dtype: _Type, shape: tuple[int, ...], order: str) -> None:
        if not isinstance(dtype, _Type) or not isinstance(raw, bytes | bytearray):
            raise _RefusedError("an array does not hold plain numbers.")
        self.values = np.frombuffer(raw, dtype.resolved()).reshape(shape, order="F" if order == "F" else "C")


class _Type:
    """Stands in for a numpy type: a letter, a width and a byte order."""

    def __init__(self, code: str, *_: Any) -> None:
        if not re.fullmatch(r"[biuf]\d{1,2}", str(code)):
            raise _RefusedError(f"refused an array of type {code!r}; only plain numbers are admitted.")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "="

    def resolved(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


def _load_storage(raw: bytes) -> Any:
    """The inner pickle of a tensor's storage, through torch's own restricted unpickler; stays on the CPU."""
    try:
        return torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's own text advises to switch the protection off; only the name it met is worth passing on.
        name = re.search(r"GLOBAL (\S+)", str(error))
        raise _RefusedError(f"refused {name[1] if name else 'what is'} inside a tensor's storage.") from None


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> torch.Tensor:
    if not isinstance(storage, torch.storage.TypedStorage):
        raise _RefusedError("a tensor is not built from a tensor's storage.")
    numbers, dtype = storage._untyped_storage, storage.dtype
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if min(offset, *size, *stride, 0) < 0 or (0 not in size and (last + 1) * dtype.itemsize > numbers.nbytes()):
        raise _RefusedError("a tensor reaches beyond its storage.")
    return torch.empty(0, dtype=dtype).set_(numbers, offset, size, stride)


#: Every name that a file may use, and what stands in for it. ``numpy.core`` is what NumPy 1 called ``numpy._core``.
_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("common", "DataRecord"): DataRecord,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Array.from_buffer for core in ("core", "_core")},
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch.storage", "_load_from_bytes"): _load_storage,
    ("collections", "OrderedDict"): OrderedDict,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise _RefusedError(
                f"refused {module_name}.{global_name}: only the authors' DataRecord, numpy arrays and torch tensors "
                "are admitted."
            ) from None


@contextmanager
def _module_of_record() -> Iterator[None]:
    """Let pickle find the record under the authors' module name while a file is written."""
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


def _from_record(key: str, record: DataRecord) -> Dataset:
    fields = {name: _plain(key, name, value) for name, value in record._asdict().items()}
    splits = {}
    for part in _PARTS:
        images, targets, masks = fields[f"x_{part}"], fields[f"y_{part}"], fields[f"masks_{part}"]
        count, side = len(targets), round(images.shape[-1] ** 0.5)
        if images.shape != (count, side * side) or masks.shape != images.shape or targets.shape != (count,):
            raise ValueError(
                f"{key}, {part}: expected images and masks [N, D] of square images and classes [N]; got "
                f"{list(images.shape)}, {list(masks.shape)} and {list(targets.shape)}."
            )
        true = support(masks.reshape(count, side, side))
        pixels = images.astype(np.float32).reshape(count, 1, side, side)
        splits[part] = Split(
            torch.from_numpy(pixels), torch.from_numpy(true), torch.from_numpy(targets.astype(np.int64))
        )
    named = _KEY.fullmatch(key)
    info = DatasetInfo(
        name=key,
        classes=XOR_CLASSES if named and named[1] == "xor" else SHAPE_CLASSES,
        image_shape=(1, side, side),
        citation=CITATION,
        licence="as the file's authors say; XAI-TRIS is released under the GPL",
    )
    parameters = {"alpha": float(named[2])} if named else {}
    return Dataset(**splits, info=info, parameters=parameters, batch_size=512)


def _plain(key: str, name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, _Array):
        return value.values
    if isinstance(value, torch.Tensor):
        return np.asarray(value.detach().numpy())
    raise ValueError(f"{key}, {name}: expected a numpy array or a torch tensor, got {type(value).__name__}.")


def _to_record(key: str, dataset: Dataset) -> DataRecord:
    fields: dict[str, Any] = {}
    for part in _PARTS:
        split: Split = getattr(dataset, part)
        if split.images.shape[1] != 1:
            raise ValueError(f"{key}: the format holds images of one channel, got {split.images.shape[1]}.")
        fields[f"x_{part}"] = split.images.flatten(1).to(torch.float16)
        fields[f"y_{part}"] = split.targets.numpy().copy()
        fields[f"masks_{part}"] = split.masks.flatten(1).numpy().astype(np.float64)
    return DataRecord(**fields)
