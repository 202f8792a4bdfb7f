"""Photographs with a class each and no masks: what a trained network is asked about that no person has marked."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection
from importlib import resources
from pathlib import Path

import numpy as np

from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.disk.image_files import open_image
from xaibench.data.disk.image_lists import Listed, ListedSource, class_folders, list_classes, list_images, stem
from xaibench.data.disk.source import Source

_LAYOUT = (
    "Expected <class>/<any name>.jpg (or any other image), or files named by their class: n01440764.jpg, "
    "n01440764_10026.jpg, cat_1.jpg, cat.2.jpg."
)

_SYNSET = re.compile(r"n\d{8}(?!\d)")
#: What is put behind the class in the name of a file: numbers, each after a mark.
_NUMBERS = re.compile(r"(?:[-_. ]+\d+)+$")


class Photographs(AnnotatedSet):
    """Labelled photographs: ``Photographs("~/photographs")``, by name ``"photographs:~/photographs"``.

    The classes are the folders in ``directory``; where it holds none with images, files are named by their class, with
    or without a number behind it (``cat_1.jpg``, ``cat.2.jpg``). They come in sorted order, and are the network's
    outputs in this order. Where all of them are ImageNet's (``n01440764``), the classes are the thousand of ImageNet-1k
    in their usual order, so that networks trained on it fit, of how few there may be photographs.

    Nothing is marked in them: masks are empty, and metrics that need some are undefined. For metrics that ask the
    network, and for mosaics (:class:`xaibench.data.certified.photo_mosaics.PhotoMosaics`). ``seed`` decides their
    order, too, so that the first hundred are of any class.

    Args:
        directory: The folder; ``~`` is resolved. The parameter ``root`` is not used.

    Raises:
        MissingDataError: If it holds no such images.

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

    folders = ("",)
    marker = "*"
    shows_all = False  # of a thousand classes, a folder may show ten

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._folder = Path(directory).expanduser()
        self.info = DatasetInfo(
            f"photographs:{os.fspath(directory)}",
            classes=ordered_classes({image.label for image in labelled_images(self._folder)}),
            image_shape=(3, 224, 224),
            citation="your own data",
            licence="yours",
            how_to_get=_LAYOUT,
        )

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int) -> Source:
        """The photographs.

        Args:
            folder: The folder of the set.
            classes: The wanted classes.
            seed: Of their order.

        Raises:
            MissingDataError: If there is no photograph.
        """
        listed = labelled_images(folder)
        images = [listed[number] for number in np.random.default_rng(seed).permutation(len(listed))]
        notes = {"annotated": False}
        # Nothing is marked, which leaves none of them out.
        return ListedSource(
            self.info.name, folder, images, None, classes, negatives=classes, notes=notes, reader=_upright
        )

    def find(self, root: str | os.PathLike[str] | None = None, *, download: bool = False) -> Path:
        """The folder of the set; ``root`` and ``download`` have no say."""
        return self._folder


#: As every viewer shows it.
_upright = functools.partial(open_image, upright=True)


def labelled_images(folder: Path) -> list[Listed]:
    """The photographs of a folder with their classes, in sorted order.

    Args:
        folder: Folders of classes, or files named by their class.

    Returns:
        One entry a photograph; photographs of the same class are no group.

    Raises:
        MissingDataError: If there is no such folder, or no image in it.
        DataFileError: If it cannot be listed.
    """
    if not folder.is_dir():
        raise MissingDataError(f"photographs: there is no folder {folder}. {_LAYOUT}")
    in_folders = class_folders(folder, ".", list_classes(folder))
    found = in_folders or [Listed(file, class_of(Path(file).name)) for file in list_images(folder, ".")]
    if not found:
        raise MissingDataError(f"photographs: {folder} holds no image. {_LAYOUT}")
    # Each is a group of its own, whatever its name is: "1.jpg" of two classes are two photographs.
    files = [one.file.removeprefix("./") for one in found]
    return [Listed(file, one.label, group=f"/{file}") for file, one in zip(files, found, strict=True)]


def class_of(name: str) -> str:
    """The class in the name of a file.

    Args:
        name: With its suffix.

    Returns:
        ImageNet's name of the class where the file's begins with one; else the name without the numbers behind it.

    Example:
        >>> class_of("n01440764_tench.JPEG"), class_of("great_pyrenees_17.jpg"), class_of("cat.4001.jpg")
        ('n01440764', 'great_pyrenees', 'cat')
    """
    known = _SYNSET.match(name)
    return known.group() if known else _NUMBERS.sub("", stem(name))


def ordered_classes(labels: Collection[str]) -> tuple[str, ...]:
    """The classes in the order of a network's outputs.

    Args:
        labels: Those that there are photographs of.

    Returns:
        The thousand of ImageNet-1k where all of them are; else themselves, sorted.

    Example:
        >>> ordered_classes({"n02123045"}).index("n02123045"), ordered_classes({"dog", "cat"})
        (281, ('cat', 'dog'))
    """
    known = resources.files(__package__).joinpath("imagenet_synsets.txt").read_text(encoding="utf-8").split()
    return tuple(known if set(labels) <= set(known) else sorted(set(labels)))
