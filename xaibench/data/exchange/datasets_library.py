"""Conversion to and from the ``datasets`` library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from xaibench.data.base import Dataset, Split
from xaibench.data.disk.lazy_split import Normalize
from xaibench.data.disk.splits import Splits
from xaibench.data.exchange.parquet import nest
from xaibench.data.exchange.picture_source import PictureSource, make_dataset, open_columns

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
        mask: Column of the masks, which are read as those of ``folder:DIR``. None = ``mask``, ``segmentation``,
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
    splits = dict(table) if isinstance(table, dict) else {"": table}
    plain = [split.with_format(None) for split in splits.values()]
    starts = np.cumsum([0, *map(len, plain)])
    count = int(starts[-1])

    def read_labels(column: str) -> tuple[list[Any], Any]:
        return [value for split in plain for value in split[column]], getattr(plain[0].features[column], "names", None)

    images, masks, codes, classes = open_columns(
        "the table", plain[0].column_names, read_labels, count, image=image, mask=mask, label=label
    )

    def row(number: int) -> Mapping[str, Any]:
        index = int(np.searchsorted(starts, number, side="right")) - 1
        values: Mapping[str, Any] = plain[index][int(number - starts[index])]
        return values

    known = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}
    official = {
        known[name]: np.arange(starts[index], starts[index + 1]) for index, name in enumerate(splits) if name in known
    }
    return PictureSource(
        f"datasets.{type(table).__name__}",
        row,
        codes,
        classes,
        image=images,
        mask=masks,
        has_mask=np.zeros(count, bool) if masks is None else _has_value(plain, masks),
        official=official if "train" in official and len(official) == len(splits) > 1 else None,
    )


def _has_value(splits: Any, column: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return ``[N]`` bool: whether a cell is not None, without decoding pictures."""
    batches = [
        np.asarray(batch[column].is_valid())
        for split in splits
        for batch in split.select_columns([column]).with_format("arrow").iter(1000)
    ]
    return np.concatenate([np.zeros(0, bool), *batches])


def _convert_split(split: Split, label: Any) -> datasets.Dataset:
    import datasets
    import pyarrow as pa

    images, masks, targets = split[:]
    kinds = {2: datasets.Array2D, 3: datasets.Array3D, 4: datasets.Array4D}
    image_shape, mask_shape = tuple(images.shape[1:]), tuple(masks.shape[1:])
    features = datasets.Features(
        image=kinds[len(image_shape)](image_shape, "float32"),
        mask=kinds[len(mask_shape)](mask_shape, "bool"),
        target=label,
    )
    columns = [nest(images.numpy()), nest(masks.numpy()), pa.array(targets.numpy())]
    table = datasets.table.InMemoryTable.from_arrays(columns, names=list(features))
    return datasets.Dataset(table.cast(features.arrow_schema))
