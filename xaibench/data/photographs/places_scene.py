"""Nature and urban scenes: photographs of Places365 with human annotations of the pixels that show the scene."""

from __future__ import annotations

import os
from pathlib import Path

from xaibench.data.disk.file_readers import DataFileError, read_lines
from xaibench.data.disk.image_lists import ImageEntry, list_images
from xaibench.data.photographs.human_masks import MarkedPhotographs
from xaibench.registry.info import DatasetInfo

#: The categories of Places365 in each class, as in ``categories_places365.txt``.
CATEGORIES = {
    "nature": ("/m/mountain", "/p/pond", "/w/waterfall", "/f/field/wild", "/f/forest/broadleaf", "/r/rainforest"),
    "urban": ("/h/house", "/b/bridge", "/c/campus", "/t/tower", "/s/street", "/d/driveway"),
}
_CATEGORIES = "categories_places365.txt"
_VAL_LIST = "places365_val.txt"
#: Folders of the training and of the validation images, as named by the archives and torchvision; the first is used.
_TRAIN = ("data_256_standard", "data_256", "data_large_standard", "data_large")
_VAL = ("val_256", "val_large")


class Scene(MarkedPhotographs):
    """Scene recognition, nature or urban (:class:`~xaibench.data.photographs.human_masks.MarkedPhotographs`).

    If only Places365 is on disk, all images of the paper's twelve categories are listed. The 2,086 images of the paper
    are only known from its masks.
    """

    info = DatasetInfo(
        "scene",
        classes=("nature", "urban"),
        image_shape=(3, 224, 224),
        citation=(
            "Zhang et al.: XAI Benchmark for Visual Explanation (Saliency-Bench), arXiv 2310.08537, 2023; "
            "Gao et al.: RES: A Robust Framework for Guiding Visual Explanation, KDD 2022; "
            "Zhou et al.: Places: A 10 Million Image Database for Scene Recognition, TPAMI 2017"
        ),
        license=(
            "Places365: its lists MIT, the images belong to their owners, under the terms of places2.csail.mit.edu; "
            "the human masks state no license"
        ),
        address=(
            "[places2.csail.mit.edu](http://places2.csail.mit.edu/download.html), "
            "[xaidataset.github.io](https://xaidataset.github.io)"
        ),
        download_size=(
            "[29 GB](https://docs.voxel51.com/dataset_zoo/datasets/places.html) (Places365 at 256 px, including its "
            "test images), plus the masks"
        ),
        by_hand="the masks, from Google Drive; no account",
        how_to_get=(
            "1. Download the scene data of Saliency-Bench, photographs with human masks, from "
            "https://xaidataset.github.io (Google Drive, no account).\n"
            "2. Unpack them in DIR/places.\n"
            "Only the photographs, for include_unannotated=True: download Places365-Standard (places2.csail.mit.edu, "
            "or torchvision.datasets.Places365 with small=True, root=DIR/places365 and download=True), so that there "
            "are DIR/places365/categories_places365.txt and DIR/places365/data_256_standard/m/mountain."
        ),
        published=(("images", 2086),),
        benchmark_size=5000,
    )
    folders = ("places", "scene", "Benchmarks/scene", "")
    raw_folders = ("places365", "Places365", "")

    def is_raw(self, folder: Path) -> bool:
        """Return whether the folder has the list of categories of Places365."""
        return (folder / _CATEGORIES).is_file()

    def list_raw(self, folder: Path) -> list[ImageEntry]:
        """List the training and validation images of the twelve categories."""
        numbers = _read_category_numbers(folder / _CATEGORIES)
        label_of = {category: label for label, categories in CATEGORIES.items() for category in categories}
        images = []
        train = next((name for name in _TRAIN if (folder / name).is_dir()), None)
        if train is not None:
            for category, label in label_of.items():
                if (folder / train / category[1:]).is_dir():
                    # File names are numbered per category, so equal names do not mean related images.
                    images += [
                        ImageEntry(file, label, "train", group=file) for file in list_images(folder, train + category)
                    ]
        val = next((name for name in _VAL if (folder / name).is_dir()), None)
        if val is not None and (folder / _VAL_LIST).is_file():
            label_of_number = {numbers[category]: label for category, label in label_of.items()}
            there = set(os.listdir(folder / val))
            for line in read_lines(folder / _VAL_LIST):
                name, _, number = line.rpartition(" ")
                if number in label_of_number and name in there:
                    file = f"{val}/{name}"
                    images.append(ImageEntry(file, label_of_number[number], "val", group=file))
        return images


def _read_category_numbers(file: Path) -> dict[str, str]:
    """Return category to number, as written in the file."""
    lines = [line.rpartition(" ") for line in read_lines(file)]
    numbers = {category: number for category, _, number in lines}
    missing = [category for names in CATEGORIES.values() for category in names if category not in numbers]
    if missing:
        raise DataFileError(
            f"{file} lacks {', '.join(missing)}; expected the 365 categories, one per line such as '/m/mountain 232'."
        )
    return numbers


scene = Scene()
