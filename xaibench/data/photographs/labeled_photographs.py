"""Labeled photographs without masks, for metrics that do not need annotations."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from xaibench.component.info import describe_own_data
from xaibench.data.disk.annotated_set import DirectorySet
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.image_lists import (
    UNLABELED,
    ImageEntry,
    ListedSource,
    assign_groups,
    class_folders,
    image_stem,
    list_classes,
    list_images,
)
from xaibench.data.disk.source import Source
from xaibench.data.photographs.image_reader import ImageReader

_LAYOUT = (
    "Expected <class>/<any name>.jpg (or any other image, DICOM or NIfTI file), or files named by their class: "
    "n01440764.jpg, n01440764_10026.jpg, cat_1.jpg, cat.2.jpg, or any images without classes."
)

_SYNSET = re.compile(r"n\d{8}(?!\d)")
#: Numbers after the class in a file name, each with a separator before it.
_NUMBERS = re.compile(r"(?:[-_. ]+\d+)+$")


class Photographs(DirectorySet):
    """Labeled photographs: ``Photographs("~/photographs")``, by name ``"photographs:~/photographs"``.

    The classes are the subfolders of ``directory``. If no subfolder has images, the class is taken from the file name,
    with or without a number after it (``cat_1.jpg``, ``cat.2.jpg``). If no two names share a class, the images are
    a set of one class, ``unlabeled``. The classes are sorted and correspond to the outputs of the network in this
    order. If all of them are ImageNet classes (``n01440764``), the classes are the 1,000
    of ImageNet-1k in their usual order, so that networks trained on ImageNet can be used.

    The photographs have no annotations: masks are empty, and metrics that need masks are undefined. Use them for
    metrics that evaluate the network, and for mosaics
    (:class:`xaibench.benchmarks.mosaics.photo_mosaics.PhotoMosaics`).
    ``groups.csv`` states related photographs, as for :class:`~xaibench.data.photographs.image_folder.OwnFolder`.
    The photographs are shuffled with ``seed``, so that the first hundred are of all classes.

    Args:
        directory: The folder; ``~`` is expanded. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If the folder has no such images.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat_1", "cat_2", "dog_1"):
        ...         Image.new("RGB", (8, 8)).save(f"{folder}/{name}.png")
        ...     data = Photographs(folder)(size=8, splits=(0, 0, 1))
        >>> data.classes, sorted(data.test.targets.tolist())
        (('cat', 'dog'), [0, 0, 1])
    """

    marker = "*"
    requires_all_classes = False  # a folder may only have images of ten of the thousand classes

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        classes = ordered_classes({image.label for image in labeled_images(self._folder)})
        name = f"photographs:{os.fspath(directory)}"
        self.info = describe_own_data(name, classes, (3, 224, 224), _LAYOUT)

    def open(
        self,
        folder: Path,
        *,
        classes: tuple[str, ...],
        seed: int,
        scale: float | None = None,
        window: str | Sequence[float] | None = None,
        slices: str | Sequence[int] | None = None,
    ) -> Source:
        """Return the photographs in random order.

        Args:
            folder: The folder of the data set.
            classes: The wanted classes.
            seed: Seed of the order.
            scale: As for :meth:`~xaibench.data.photographs.image_folder.OwnFolder.open`.
            window: ``(center, width)`` of the values shown from black to white, as there.
            slices: Numbers of the slices and frames of medical files that are images, as there.

        Raises:
            MissingDataError: If the folder has no photographs.
            ValueError: If an option is out of range.
        """
        reader = ImageReader(scale, window=window, slices=slices)
        listed = reader.group_patients(folder, labeled_images(folder))
        images = [listed[number] for number in np.random.default_rng(seed).permutation(len(listed))]
        notes = {"annotated": False}
        # All classes are given as negatives, so that images without a mask are not left out.
        return ListedSource(
            self.info.name,
            folder,
            images,
            None,
            classes,
            negatives=classes,
            notes=notes,
            reader=reader,
            frames=reader.frames,
        )


def labeled_images(folder: Path) -> list[ImageEntry]:
    """Return the photographs of a folder with their classes, sorted.

    Args:
        folder: Contains one subfolder per class, or files named by their class.

    Returns:
        One entry per photograph, with its group in ``groups.csv``, if that file exists.

    Raises:
        MissingDataError: If the folder does not exist or has no images.
        DataFileError: If it cannot be listed, or ``groups.csv`` is malformed.
    """
    if not folder.is_dir():
        raise MissingDataError(f"photographs: {folder} is not a folder. {_LAYOUT}")
    entries = class_folders(folder, ".", list_classes(folder), medical=True)
    if not entries:
        files = list_images(folder, ".", medical=True)
        labels = [class_of(Path(file).name) for file in files]
        if 1 < len(labels) == len(set(labels)) and not all(map(_SYNSET.match, labels)):
            labels = [UNLABELED] * len(files)
        entries = [ImageEntry(file, label) for file, label in zip(files, labels, strict=True)]
    if not entries:
        raise MissingDataError(f"photographs: {folder} has no image. {_LAYOUT}")
    return assign_groups(folder, [ImageEntry(one.file.removeprefix("./"), one.label) for one in entries])


def class_of(name: str) -> str:
    """Return the class in a file name.

    Args:
        name: File name with suffix.

    Returns:
        The ImageNet class if the name begins with one, otherwise the name without suffix and trailing numbers.

    Example:
        >>> class_of("n01440764_tench.JPEG"), class_of("great_pyrenees_17.jpg"), class_of("cat.4001.jpg")
        ('n01440764', 'great_pyrenees', 'cat')
    """
    known = _SYNSET.match(name)
    return known.group() if known else _NUMBERS.sub("", image_stem(name))


def ordered_classes(labels: Collection[str]) -> tuple[str, ...]:
    """Return the classes in the order of the network's outputs.

    Args:
        labels: Classes of the photographs.

    Returns:
        The 1,000 classes of ImageNet-1k if all labels are among them, otherwise the sorted labels.

    Example:
        >>> ordered_classes({"n02123045"}).index("n02123045"), ordered_classes({"dog", "cat"})
        (281, ('cat', 'dog'))
    """
    known = imagenet_synsets()
    return known if set(labels) <= set(known) else tuple(sorted(set(labels)))


def imagenet_synsets() -> tuple[str, ...]:
    """Return the ids of the 1,000 classes of ImageNet-1k in the order of a network's outputs, such as n01440764."""
    return tuple(resources.files(__package__).joinpath("imagenet_synsets.txt").read_text(encoding="utf-8").split())
