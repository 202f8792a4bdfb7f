"""Oxford-IIIT Pet: cats and dogs, or their 37 breeds, with trimaps."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.downloads import Archive
from xaibench.data.disk.file_readers import DataFileError, read_lines, wrap_file_errors
from xaibench.data.disk.image_files import open_image, read_indices
from xaibench.data.disk.source import Source
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")

SPECIES = ("cat", "dog")
#: In the order of the class numbers of the data set, from 1; the names of cat breeds are capitalized.
BREEDS = (
    "Abyssinian", "american_bulldog", "american_pit_bull_terrier", "basset_hound", "beagle", "Bengal", "Birman",
    "Bombay", "boxer", "British_Shorthair", "chihuahua", "Egyptian_Mau", "english_cocker_spaniel", "english_setter",
    "german_shorthaired", "great_pyrenees", "havanese", "japanese_chin", "keeshond", "leonberger", "Maine_Coon",
    "miniature_pinscher", "newfoundland", "Persian", "pomeranian", "pug", "Ragdoll", "Russian_Blue", "saint_bernard",
    "samoyed", "scottish_terrier", "shiba_inu", "Siamese", "Sphynx", "staffordshire_bull_terrier", "wheaten_terrier",
    "yorkshire_terrier",
)  # fmt: skip
_FOREGROUND, _BACKGROUND, _BORDER = 1, 2, 3
_ADDRESS = "https://www.robots.ox.ac.uk/~vgg/data/pets/"


class Pet(AnnotatedSet):
    """The Oxford-IIIT Pet data set.

    Classes are species (``"cat,dog"``, the default) or breeds (``"Abyssinian,beagle"``; see :data:`BREEDS`), but not
    both. ``splits="official"`` uses ``trainval.txt`` and ``test.txt``. Images that are not in ``list.txt`` are left
    out, as in the publication.
    """

    info = DatasetInfo(
        "pet",
        classes=SPECIES + BREEDS,
        image_shape=(3, 224, 224),
        citation="Parkhi et al.: Cats and Dogs, CVPR 2012",
        license="CC BY-SA 4.0; the copyright of the images remains with their original owners",
        address=f"[robots.ox.ac.uk]({_ADDRESS})",
        download_size="[811 MB](https://www.tensorflow.org/datasets/catalog/oxford_iiit_pet)",
        by_hand="nothing: `download=True`",
        how_to_get=(
            f"1. Download images.tar.gz and annotations.tar.gz from {_ADDRESS}.\n2. Unpack both in DIR/oxford-iiit-pet."
        ),
        published=(("cat", 2371), ("dog", 4978)),
        benchmark_size=7390,
    )
    folders = ("oxford-iiit-pet", "")
    marker = "annotations/list.txt"
    contents: ClassVar = {
        "photographs": "images/*.jpg",
        "list of the images": "annotations/list.txt",
        "masks": "annotations/trimaps/*.png",
    }
    #: In this order, so that the list, by which the data set is recognized, is unpacked last.
    archives = (
        Archive(f"{_ADDRESS}data/images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c", 791_918_971),
        Archive(f"{_ADDRESS}data/annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f", 19_173_078),
    )
    archive_folder = "oxford-iiit-pet"
    aliases: ClassVar[Mapping[str, str]] = {"cats": "cat", "dogs": "dog"}
    default_classes = SPECIES

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int, border: bool = False) -> Source:
        """Return the images of ``list.txt``.

        Args:
            folder: Contains ``images`` and ``annotations``.
            classes: Species or breeds.
            seed: Not used.
            border: Whether the border of the trimap is important. It is a broad band around the animal that is neither
                clearly inside nor clearly outside, with a quarter of the pixels of the inside up to more than these.

        Raises:
            ValueError: If species and breeds are mixed.
            DataFileError: If the list has no image.
        """
        species = [name for name in classes if name in SPECIES]
        if species and len(species) < len(classes):
            breeds = [name for name in classes if name not in SPECIES]
            raise ValueError(
                f"classes mix species ({', '.join(species)}) and breeds ({', '.join(breeds)}); give one or the other."
            )
        return _PetSource(folder, classes, border)


class _PetSource(Source):
    def __init__(self, folder: Path, classes: tuple[str, ...], border: bool) -> None:
        self.classes = classes
        self._folder = folder
        self._important = [_FOREGROUND, _BORDER] if border else [_FOREGROUND]
        names, breeds, species = _read_list(folder / "annotations" / "list.txt")
        labels, known = (species, SPECIES) if classes[0] in SPECIES else (breeds, BREEDS)
        target_of = np.array([classes.index(name) if name in classes else -1 for name in known])
        wanted = np.flatnonzero(target_of[labels] >= 0)
        self._names = names[wanted]
        self._breeds = breeds[wanted]
        self.targets = target_of[labels[wanted]].astype(np.int64)
        trimaps = folder / "annotations" / "trimaps"
        with wrap_file_errors(trimaps):
            self.annotated = np.isin(np.char.add(self._names, ".png"), os.listdir(trimaps))
        with wrap_file_errors(folder / "images"):
            self.missing = ~np.isin(np.char.add(self._names, ".jpg"), os.listdir(folder / "images"))
        lists = {"train": "trainval.txt", "test": "test.txt"}
        self.official = {}
        for split, file in lists.items():
            listed = [line.split()[0] for line in read_lines(folder / "annotations" / file)]
            self.official[split] = np.flatnonzero(np.isin(self._names, listed)).astype(np.int64)

    def image(self, index: int, size: int) -> Image.Image:
        return open_image(self._folder / self._file(index), size)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        if not self.annotated[index]:
            return None
        trimap = self._folder / "annotations" / "trimaps" / f"{self._names[index]}.png"
        labels = read_indices(trimap, like=self._folder / self._file(index))
        strange = set(np.unique(labels).tolist()) - {_FOREGROUND, _BACKGROUND, _BORDER}
        if strange:
            raise DataFileError(f"{trimap} has the label(s) {sorted(strange)}, expected 1, 2, 3; get the file again.")
        return np.isin(labels, self._important)

    def meta(self, index: int) -> dict[str, object]:
        return {
            "id": str(self._names[index]),
            "file": self._file(index),
            "breed": BREEDS[self._breeds[index]],
            "annotated": bool(self.annotated[index]),
        }

    def _file(self, index: int) -> str:
        return f"images/{self._names[index]}.jpg"


def _read_list(file: Path) -> tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.int64]]:
    """Return names, breeds and species of the images, the latter two counted from 0."""
    rows: dict[str, tuple[int, int]] = {}
    for line in read_lines(file):
        if line.startswith("#"):
            continue
        fields = line.split()
        numbers = [int(field) for field in fields[1:] if field.isdigit()]
        if len(fields) == 4 and len(numbers) == 3 and 1 <= numbers[0] <= len(BREEDS) and numbers[1] in (1, 2):
            rows[fields[0]] = (numbers[0] - 1, numbers[1] - 1)
        else:
            _LOGGER.warning("%s: the line %r is not 'name class species breed'; it is left out.", file, line)
    if not rows:
        raise DataFileError(f"{file} has no image; get the file again.")
    breeds, species = np.array(list(rows.values()), dtype=np.int64).T
    return np.array(list(rows)), breeds, species


pet = Pet()
