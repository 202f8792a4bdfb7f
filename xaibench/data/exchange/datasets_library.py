"""Our sets as those of the ``datasets`` library, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from xaibench.data.dataset import Dataset, Split

if TYPE_CHECKING:
    import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]


@overload
def to_datasets(data: Split) -> datasets.Dataset: ...
@overload
def to_datasets(data: Dataset) -> datasets.DatasetDict: ...
def to_datasets(data: Dataset | Split) -> Any:
    """A set as a ``datasets.DatasetDict``, or one split of it as a ``datasets.Dataset``.

    All samples are held in memory; those of a split on disk are read for it. ``with_format("torch")`` gives back the
    tensors of the split, to the bit.

    Args:
        data: What :func:`xaibench.load` returns, or its ``train``, ``val`` or ``test``.

    Returns:
        For a set ``{"train", "validation", "test"}``; for a split the columns ``image`` (``Array3D`` float32
        ``[C, H, W]``), ``mask`` (``Array2D`` bool ``[H, W]``, True = important) and ``target``: a ``ClassLabel`` with
        the names of the classes for a set, an int64 for a split, which does not know them.

    Raises:
        ImportError: If ``datasets`` is not installed.
        TypeError: If it is neither a set nor a split.

    Example:
        >>> from xaibench.data import load
        >>> converted = to_datasets(load("xai-tris/lin-white-8x8", n_samples=100))  # doctest: +SKIP
        >>> converted["test"].features["target"].names  # doctest: +SKIP
        ['T', 'L']
    """
    if not isinstance(data, Dataset | Split):
        raise TypeError(
            f"data: got {type(data).__name__}, expected a set, as xaibench.load returns it, or one of its splits."
        )
    try:
        import datasets
    except ImportError as error:
        raise ImportError('to_datasets needs the library "datasets": pip install "xaibench[hub]".') from error
    if isinstance(data, Split):
        return _converted(data, datasets.Value("int64"))
    label = datasets.ClassLabel(names=list(data.classes))
    splits = {"train": data.train, "validation": data.val, "test": data.test}
    return datasets.DatasetDict({name: _converted(split, label) for name, split in splits.items()})


def _converted(split: Split, label: Any) -> datasets.Dataset:
    import datasets
    import pyarrow as pa

    from xaibench.data.exchange.parquet_columns import nested

    images, masks, targets = split[:]
    features = datasets.Features(
        image=datasets.Array3D(tuple(images.shape[1:]), "float32"),
        mask=datasets.Array2D(tuple(masks.shape[1:]), "bool"),
        target=label,
    )
    columns = [nested(images.numpy()), nested(masks.numpy()), pa.array(targets.numpy())]
    table = datasets.table.InMemoryTable.from_arrays(columns, names=list(features))
    return datasets.Dataset(table.cast(features.arrow_schema))
