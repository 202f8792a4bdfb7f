"""Images and masks as columns of Arrow tables, exact to the bit, in the shapes that the ``datasets`` library shows."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

#: What ``datasets.Image`` is in Arrow.
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

#: Previews have at least this side: an image of 8×8 pixels would be a dot on a web page.
_PREVIEW_SIDE = 64


def nested(values: NDArray[Any]) -> pa.Array:
    """``[N, A, B, ...]`` as lists of lists, the storage of ``datasets.Array2D`` and its kin; no value is copied.

    Example:
        >>> nested(np.arange(6.0).reshape(1, 2, 3)).to_pylist()
        [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    """
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    count = values.size
    for extent in reversed(values.shape[1:]):
        count //= extent
        column = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * extent), column)
    return column


def array_type(dtype: pa.DataType, dimensions: int) -> pa.DataType:
    """The type of :func:`nested` for samples of so many dimensions."""
    for _ in range(dimensions):
        dtype = pa.list_(dtype)
    return dtype


def unnested(column: pa.Array, shape: Sequence[int]) -> NDArray[Any]:
    """``[N, *shape]`` of lists of lists.

    Raises:
        ValueError: If a list has another length, or a value is missing.
    """
    count = len(column)
    for extent in shape:
        lengths = column.value_lengths()
        if column.null_count or not (lengths.to_numpy(zero_copy_only=False) == extent).all():
            raise ValueError(f"expected arrays of the shape {list(shape)} without missing values")
        column = column.flatten()
    if column.null_count:
        raise ValueError(f"expected arrays of the shape {list(shape)} without missing values")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(count, *shape)


def eight_bit(images: Tensor) -> NDArray[np.uint8] | None:
    """``[N, H, W, C]`` of images ``[N, C, H, W]`` that are 8-bit values over 255, to the bit; None if they are not."""
    if images.shape[1] not in (1, 3) or not images.isfinite().all():
        return None
    values = (images * 255).round().clamp(0, 255).to(torch.uint8)
    # Compared as integers, for which -0.0 is not 0.0.
    if not torch.equal(_over_255(values).view(torch.int32), images.contiguous().view(torch.int32)):
        return None
    return values.permute(0, 2, 3, 1).contiguous().numpy()


def from_eight_bit(values: NDArray[np.uint8]) -> Tensor:
    """The images ``[N, C, H, W]`` that :func:`eight_bit` was given."""
    return _over_255(torch.from_numpy(values).permute(0, 3, 1, 2).contiguous())


def _over_255(values: Tensor) -> Tensor:
    return values.to(torch.float32).div_(255)


def pictures(values: NDArray[np.uint8], *, effort: int = 6) -> pa.Array:
    """``[N, H, W, 1 or 3]`` as PNG files: nothing is lost, whatever the effort (zlib's level, 1 to 9)."""
    files: list[bytes] = []
    for number, one in enumerate(values):
        if number and np.array_equal(one, values[number - 1]):  # as the masks of most generated sets are
            files.append(files[-1])
            continue
        stream = io.BytesIO()
        Image.fromarray(one[..., 0] if one.shape[-1] == 1 else one).save(stream, "PNG", compress_level=effort)
        files.append(stream.getvalue())
    return pa.StructArray.from_arrays([pa.array(files, pa.binary()), pa.nulls(len(files), pa.string())], fields=PICTURE)


def unpictured(column: pa.Array, shape: Sequence[int]) -> NDArray[np.uint8]:
    """``[N, H, W, C]`` of PNG files, each of the shape ``(H, W, C)``.

    Raises:
        ValueError: If a picture is missing, damaged, or of another size.
    """
    height, width, channels = shape
    values = np.empty((len(column), *shape), dtype=np.uint8)
    files: list[bytes | None] = pc.struct_field(column, "bytes").to_pylist()  # None where the struct is
    for number, file in enumerate(files):
        if file is None:
            raise ValueError("a picture is missing")
        if number and file == files[number - 1]:
            values[number] = values[number - 1]
            continue
        with Image.open(io.BytesIO(file), formats=["PNG"]) as opened:
            if opened.size != (width, height):
                raise ValueError(f"a picture is {opened.height}×{opened.width}, expected {height}×{width}")
            values[number] = np.asarray(opened.convert("L" if channels == 1 else "RGB")).reshape(shape)
    return values


def previews(images: Tensor) -> pa.Array:
    """Pictures of ``[N, C, H, W]`` to look at: 0 is middle grey, each image's largest magnitude black or white."""
    seen = images if images.shape[1] in (1, 3) else images.mean(dim=1, keepdim=True)
    largest = seen.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    grey = (127.5 + 127.5 * seen / largest).nan_to_num(127.5).round().clamp(0, 255).to(torch.uint8)
    scale = max(1, -(-_PREVIEW_SIDE // min(images.shape[2:])))
    grey = grey.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    return pictures(grey.permute(0, 2, 3, 1).contiguous().numpy(), effort=1)
