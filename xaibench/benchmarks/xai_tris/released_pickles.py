"""Reading and writing the pickle files of the XAI-TRIS authors, without executing code from them.

A file contains a dict ``{key: DataRecord}``. The key has the form ``SCENARIO_JdKp_alpha_BACKGROUND``, such as
``linear_1d1p_0.18_white``. The record is a named tuple of flattened images (``[N, D]`` torch float16), classes ``[N]``
and masks (``[N, D]`` numpy floats: the smoothed pattern) for train, validation and test.

A pickle is a program; :mod:`.safe_unpickling` restricts what it may do.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.patterns import XOR_CLASSES, support
from xaibench.benchmarks.xai_tris.published_accuracy import CITATION
from xaibench.benchmarks.xai_tris.safe_unpickling import PlainArray, UnsafePickleError, load_plain
from xaibench.benchmarks.xai_tris.shapes import SHAPE_NAMES
from xaibench.component.info import DatasetInfo
from xaibench.core.files import atomic_file
from xaibench.data.base import Dataset, Split

_SCENARIOS = {"lin": "linear", "mult": "multiplicative", "rigid": "translations_rotations", "xor": "xor"}
_BACKGROUNDS = {"white": "white", "corr": "correlated", "imagenet": "imagenet"}
_KEY = re.compile(rf"({'|'.join(_SCENARIOS.values())})_\d+d\d+p_([\d.e-]+)_({'|'.join(_BACKGROUNDS.values())})")
_PARTS = ("train", "val", "test")


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
        content = load_plain(path, DataRecord)
        if not isinstance(content, dict) or not all(type(value) is DataRecord for value in content.values()):
            raise _ContentError("expected a dict of DataRecord, as the XAI-TRIS authors release it.")
        _check_size(content, os.path.getsize(path))
        return {str(key): _from_record(str(key), record) for key, record in content.items()}
    except UnsafePickleError as error:
        raise ValueError(f"{os.fspath(path)}: {error}. Get the file again, from its authors.") from None
    except _ContentError as error:
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


def _check_size(content: Mapping[Any, DataRecord], size: int) -> None:
    """Check that there are not more numbers than bytes in the file, so that no array is repeated many times."""
    numbers = sum(getattr(getattr(value, "values", None), "size", 0) for record in content.values() for value in record)
    if numbers > size:
        raise _ContentError(f"it has {size:,} bytes but {numbers:,} numbers.")


def _from_record(key: str, record: DataRecord) -> Dataset:
    fields = {name: _to_array(key, name, value) for name, value in record._asdict().items()}
    splits = {}
    for part in _PARTS:
        images, targets, masks = fields[f"x_{part}"], fields[f"y_{part}"], fields[f"masks_{part}"]
        count, side = len(targets), round(images.shape[-1] ** 0.5)
        if images.shape != (count, side * side) or masks.shape != images.shape or targets.shape != (count,):
            raise _ContentError(
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
        classes=XOR_CLASSES if named and named[1] == "xor" else SHAPE_NAMES[2],
        image_shape=(1, side, side),
        citation=CITATION,
        license="the license of the file's authors; XAI-TRIS is released under the GPL",
        truth="data",
    )
    parameters = {"alpha": float(named[2])} if named else {}
    return Dataset(splits["train"], splits["val"], splits["test"], info=info, parameters=parameters, batch_size=512)


def _to_array(key: str, name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, PlainArray):
        return value.values
    raise _ContentError(f"{key}, {name}: expected a numpy array or a torch tensor, got {type(value).__name__}.")


def _to_record(key: str, dataset: Dataset) -> DataRecord:
    fields: dict[str, Any] = {}
    for part in _PARTS:
        split: Split = getattr(dataset, part)
        if split.images.shape[1] != 1:
            raise ValueError(f"{key}: images have {split.images.shape[1]} channels, but the format only allows one.")
        fields[f"x_{part}"] = split.images.flatten(1).to(torch.float16)
        fields[f"y_{part}"] = split.targets.numpy().copy()
        fields[f"masks_{part}"] = split.masks.flatten(1).numpy().astype(np.float64)
    return DataRecord(**fields)
