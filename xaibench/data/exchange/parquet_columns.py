"""Images and masks as lossless columns of Arrow tables, in the layout of the ``datasets`` library."""

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

#: Arrow type of ``datasets.Image``.
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

#: Minimum height and width of previews, since 8×8 pixels would be too small on a web page.
_PREVIEW_SIDE = 64


def nest(values: NDArray[Any]) -> pa.Array:
    """Return ``[N, A, B, ...]`` as nested lists, the storage of ``datasets.Array2D`` and the like, without copying.

    Example:
        >>> nest(np.arange(6.0).reshape(1, 2, 3)).to_pylist()
        [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    """
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    count = values.size
    for extent in reversed(values.shape[1:]):
        count //= extent
        column = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * extent), column)
    return column


def array_type(dtype: pa.DataType, dimensions: int) -> pa.DataType:
    """Return the Arrow type of :func:`nest` for samples with this number of dimensions."""
    for _ in range(dimensions):
        dtype = pa.list_(dtype)
    return dtype


def unnest(column: pa.Array, shape: Sequence[int]) -> NDArray[Any]:
    """Return nested lists as an array ``[N, *shape]``.

    Raises:
        ValueError: If a list has another length, or a value is missing.
    """
    count = len(column)
    for extent in shape:
        lengths = column.value_lengths()
        if column.null_count or not (lengths.to_numpy(zero_copy_only=False) == extent).all():
            raise ValueError(f"expected arrays of shape {list(shape)} without missing values")
        column = column.flatten()
    if column.null_count:
        raise ValueError(f"expected arrays of shape {list(shape)} without missing values")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(count, *shape)


def to_eight_bit(images: Tensor) -> NDArray[np.uint8] | None:
    """Return images ``[N, C, H, W]`` as uint8 ``[N, H, W, C]`` if they are exactly 8-bit values over 255, else None.

    Volumes give None: a picture has no slices.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.isfinite().all():
        return None
    values = (images * 255).round().clamp(0, 255).to(torch.uint8)
    # Compared as integers, so that -0.0 differs from 0.0.
    if not torch.equal(_divide_by_255(values).view(torch.int32), images.contiguous().view(torch.int32)):
        return None
    return values.permute(0, 2, 3, 1).contiguous().numpy()


def below_one_another(values: Tensor) -> Tensor:
    """Return the slices of volumes ``[..., D, H, W]`` as images ``[..., D·H, W]``; images as they are.

    Masks ``[N, D, H, W]`` are volumes, and so are images ``[N, C, D, H, W]``; images ``[N, C, H, W]`` are not masks.

    Example:
        >>> masks, images = torch.zeros(5, 2, 3, 4, dtype=torch.bool), torch.zeros(5, 1, 2, 3, 4)
        >>> below_one_another(masks).shape, below_one_another(images).shape, below_one_another(images[:, :, 0]).shape
        (torch.Size([5, 6, 4]), torch.Size([5, 1, 6, 4]), torch.Size([5, 1, 3, 4]))
    """
    dimensions = 4 if values.dtype == torch.bool else 5
    return values.flatten(-3, -2) if values.ndim == dimensions else values


def from_eight_bit(values: NDArray[np.uint8]) -> Tensor:
    """Return the images ``[N, C, H, W]`` in [0, 1] of the result of :func:`to_eight_bit`."""
    return _divide_by_255(torch.from_numpy(values).permute(0, 3, 1, 2).contiguous())


def _divide_by_255(values: Tensor) -> Tensor:
    return values.to(torch.float32).div_(255)


def encode_pictures(values: NDArray[np.uint8], *, effort: int = 6) -> pa.Array:
    """Encode ``[N, H, W, 1 or 3]`` as PNG files, which are lossless. ``effort`` is the level of zlib, 1 to 9."""
    files: list[bytes] = []
    for number, one in enumerate(values):
        if number and np.array_equal(one, values[number - 1]):  # masks of most generated data sets are all equal
            files.append(files[-1])
            continue
        stream = io.BytesIO()
        Image.fromarray(one[..., 0] if one.shape[-1] == 1 else one).save(stream, "PNG", compress_level=effort)
        files.append(stream.getvalue())
    return pa.StructArray.from_arrays([pa.array(files, pa.binary()), pa.nulls(len(files), pa.string())], fields=PICTURE)


def decode_pictures(column: pa.Array, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Decode PNG files of shape ``(H, W, C)`` to ``[N, H, W, C]``.

    Raises:
        ValueError: If a picture is missing, damaged, or of another size.
    """
    height, width, channels = shape
    values = np.empty((len(column), *shape), dtype=np.uint8)
    files: list[bytes | None] = pc.struct_field(column, "bytes").to_pylist()  # None if the struct is null
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


def encode_previews(images: Tensor) -> pa.Array:
    """Encode ``[N, C, H, W]`` as pictures for viewing: 0 is middle gray, the largest magnitude is black or white."""
    seen = images if images.shape[1] in (1, 3) else images.mean(dim=1, keepdim=True)
    largest = seen.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    gray = (127.5 + 127.5 * seen / largest).nan_to_num(127.5).round().clamp(0, 255).to(torch.uint8)
    scale = max(1, -(-_PREVIEW_SIDE // min(images.shape[2:])))
    gray = gray.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    return encode_pictures(gray.permute(0, 2, 3, 1).contiguous().numpy(), effort=1)
