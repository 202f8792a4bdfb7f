"""Conversion to and from the ``datasets`` library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from xaibench.core.messages import listed
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.file_readers import DataFileError
from xaibench.data.disk.lazy_split import Normalize
from xaibench.data.disk.splits import Splits
from xaibench.data.exchange.picture_source import (
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    MASK_COLUMNS,
    PictureSource,
    choose_column,
    encode_labels,
    make_dataset,
)

if TYPE_CHECKING:
    import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from torch import Tensor


@overload
def to_datasets(data: Split) -> datasets.Dataset: ...
@overload
def to_datasets(data: Dataset) -> datasets.DatasetDict: ...
def to_datasets(data: Dataset | Split) -> Any:
    """Convert a data set to a ``datasets.DatasetDict``, or a split to a ``datasets.Dataset``.

    All samples are held in memory; a split on disk is read first. ``with_format("torch")`` returns tensors that are
    bit-identical to the split.

    Args:
        data: A data set of :func:`xaibench.load`, or its ``train``, ``val`` or ``test``.

    Returns:
        For a data set, the splits ``{"train", "validation", "test"}``. Each split has the columns ``image``
        (``Array3D`` float32 ``[C, H, W]``; ``Array4D`` of volumes), ``mask`` (``Array2D`` bool ``[H, W]``, True =
        important; ``Array3D`` of volumes) and ``target``: a ``ClassLabel`` with the class names for a data set, an
        int64 for a single split, which has no class names.

    Raises:
        ImportError: If ``datasets`` is not installed.
        TypeError: If ``data`` is neither a data set nor a split.

    Example:
        >>> from xaibench.data import load
        >>> converted = to_datasets(load("xai-tris/lin-white-8x8", n_samples=100))  # doctest: +SKIP
        >>> converted["test"].features["target"].names  # doctest: +SKIP
        ['T', 'L']
    """
    if not isinstance(data, Dataset | Split):
        raise TypeError(f"data: got {type(data).__name__}, expected a data set of xaibench.load or one of its splits.")
    try:
        import datasets
    except ImportError as error:
        raise ImportError('to_datasets needs the library "datasets": pip install "xaibench[hub]".') from error
    if isinstance(data, Split):
        return _convert_split(data, datasets.Value("int64"))
    label = datasets.ClassLabel(names=list(data.classes))
    splits = {"train": data.train, "validation": data.val, "test": data.test}
    return datasets.DatasetDict({name: _convert_split(split, label) for name, split in splits.items()})


def from_datasets(
    table: Any,
    *,
    image: str | None = None,
    mask: str | None = None,
    label: str | None = None,
    seed: int = 0,
    size: int = 224,
    channels: int = 3,
    normalize: Normalize = None,
    splits: Splits | None = None,
    include_unannotated: bool = False,
) -> Dataset:
    """Return a ``datasets.Dataset`` or ``datasets.DatasetDict`` as a data set. Images are decoded on access.

    Args:
        table: The table; not a streamed one.
        image: Column of the images. None = ``image``, ``img``, ``pixel_values`` or ``picture``.
        mask: Column of the masks; every pixel other than 0 is important. None = ``mask``, ``segmentation``,
            ``annotation`` or ``ground_truth``, if there is one. Rows without a mask are not annotated.
        label: Column of the classes, numbers or names. None = ``label``, ``labels``, ``target``, ``class`` or
            ``fine_label``; without any, all rows are of the class ``unlabeled``.
        seed: Seed of the split.
        size: Height and width of the images in pixels.
        channels: 3, or 1 for gray images.
        normalize: ``"imagenet"``, ``(means, deviations)``, or None for pixels in [0, 1].
        splits: Fractions of train, validation and test, or ``"official"``: the splits of a ``DatasetDict``. None = the
            official ones if there are any, otherwise 0.6, 0.2 and 0.2.
        include_unannotated: Keep rows without a mask; their mask is empty. If no row has a mask, all are kept.

    Returns:
        The data set with its splits ``train``, ``val`` and ``test``.

    Raises:
        TypeError: If ``table`` is not a table of the ``datasets`` library.
        ValueError: If a column does not exist, or a parameter is out of range.
        DataFileError: If the table has no column of images, or rows without a label.
    """
    source = open_table(table, image=image, mask=mask, label=label)
    return make_dataset(
        source,
        str(source),
        seed=seed,
        size=size,
        channels=channels,
        normalize=normalize,
        splits=splits,
        include_unannotated=include_unannotated,
    )


def is_table(value: Any) -> bool:
    """Return whether a value is a ``datasets.Dataset`` or ``datasets.DatasetDict``, without importing the library."""
    return type(value).__module__.partition(".")[0] == "datasets" and hasattr(value, "column_names")


def open_table(
    table: Any, *, image: str | None = None, mask: str | None = None, label: str | None = None
) -> PictureSource:
    """Return the rows of a table; for the parameters see :func:`from_datasets`.

    Raises:
        TypeError: If ``table`` is not a table of the ``datasets`` library.
        ValueError: If a column does not exist.
        DataFileError: If the table has no column of images, or rows without a label.
    """
    if not is_table(table) or not hasattr(table, "num_rows"):
        raise TypeError(
            f"table: got {type(table).__name__}, expected a datasets.Dataset or datasets.DatasetDict. Load a streamed "
            "data set without streaming=True."
        )
    parts = dict(table) if isinstance(table, dict) else {"": table}
    plain = [part.with_format(None) for part in parts.values()]
    there = plain[0].column_names
    images = choose_column("the table", image, IMAGE_COLUMNS, there, "image")
    if images is None:
        raise DataFileError(f"The table has no column of images among {listed(there)}; name it as image=.")
    masks = choose_column("the table", mask, MASK_COLUMNS, there, "mask")
    labels = choose_column("the table", label, LABEL_COLUMNS, there, "label")
    counts = [len(part) for part in plain]
    starts = np.cumsum([0, *counts])
    codes, classes = encode_labels(
        None if labels is None else [value for part in plain for value in part[labels]],
        None if labels is None else getattr(plain[0].features[labels], "names", None),
        int(starts[-1]),
        f"Column {labels}",
    )

    def row(number: int) -> Mapping[str, Any]:
        part = int(np.searchsorted(starts, number, side="right")) - 1
        values: Mapping[str, Any] = plain[part][int(number - starts[part])]
        return values

    known = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}
    official = {
        known[name]: np.arange(starts[place], starts[place + 1]) for place, name in enumerate(parts) if name in known
    }
    return PictureSource(
        f"datasets.{type(table).__name__}",
        row,
        codes,
        classes,
        image=images,
        mask=masks,
        has_mask=np.zeros(starts[-1], bool) if masks is None else _has_value(plain, masks),
        official=official if "train" in official and len(official) == len(parts) > 1 else None,
    )


def _has_value(parts: Any, column: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return ``[N]`` bool: whether a cell is not None, without decoding pictures."""
    found = [
        np.asarray(batch[column].is_valid())
        for part in parts
        for batch in part.select_columns([column]).with_format("arrow").iter(1000)
    ]
    return np.concatenate(found) if found else np.zeros(0, bool)


def _array_feature(values: Tensor, dtype: str) -> Any:
    """Return the feature of arrays: ``Array2D`` of masks, ``Array3D`` of images, one dimension more of volumes."""
    import datasets

    return getattr(datasets, f"Array{values.ndim - 1}D")(tuple(values.shape[1:]), dtype)


def _convert_split(split: Split, label: Any) -> datasets.Dataset:
    import datasets
    import pyarrow as pa

    from xaibench.data.exchange.parquet_columns import nest

    images, masks, targets = split[:]
    features = datasets.Features(
        image=_array_feature(images, "float32"),
        mask=_array_feature(masks, "bool"),
        target=label,
    )
    columns = [nest(images.numpy()), nest(masks.numpy()), pa.array(targets.numpy())]
    table = datasets.table.InMemoryTable.from_arrays(columns, names=list(features))
    return datasets.Dataset(table.cast(features.arrow_schema))
