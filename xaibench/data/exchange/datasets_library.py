"""Conversion to the ``datasets`` library, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from xaibench.data.base import Dataset, Split

if TYPE_CHECKING:
    import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]


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
        (``Array3D`` float32 ``[C, H, W]``), ``mask`` (``Array2D`` bool ``[H, W]``, True = important) and ``target``: a
        ``ClassLabel`` with the class names for a data set, an int64 for a single split, which has no class names.

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


def _convert_split(split: Split, label: Any) -> datasets.Dataset:
    import datasets
    import pyarrow as pa

    from xaibench.data.exchange.parquet_columns import nest

    images, masks, targets = split[:]
    features = datasets.Features(
        image=datasets.Array3D(tuple(images.shape[1:]), "float32"),
        mask=datasets.Array2D(tuple(masks.shape[1:]), "bool"),
        target=label,
    )
    columns = [nest(images.numpy()), nest(masks.numpy()), pa.array(targets.numpy())]
    table = datasets.table.InMemoryTable.from_arrays(columns, names=list(features))
    return datasets.Dataset(table.cast(features.arrow_schema))
