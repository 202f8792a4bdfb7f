"""Men and women: photographs of MS COCO with human annotations of the pixels that show the gender."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from xaibench.component.info import DatasetInfo
from xaibench.data.disk.annotated_set import ProgressCallback
from xaibench.data.disk.image_lists import ImageEntry
from xaibench.data.photographs.coco_captions import caption_files, list_people
from xaibench.data.photographs.masked_photographs import MarkedPhotographs


class Gender(MarkedPhotographs):
    """Gender classification on photographs of one person (:class:`.marked_photographs.MarkedPhotographs`).

    If only MS COCO is on disk, images of one man or one woman are selected by their captions
    (:func:`~xaibench.data.photographs.coco_captions.gender_of`). The masks of this data set are not COCO's outlines of
    people.
    """

    info = DatasetInfo(
        "gender",
        classes=("men", "women"),
        image_shape=(3, 224, 224),
        citation=(
            "Zhang et al.: XAI Benchmark for Visual Explanation (Saliency-Bench), arXiv 2310.08537, 2023; "
            "Gao et al.: RES: A Robust Framework for Guiding Visual Explanation, KDD 2022; "
            "Lin et al.: Microsoft COCO: Common Objects in Context, ECCV 2014"
        ),
        license=(
            "MS COCO: annotations CC BY 4.0, each image under its Flickr license; the human masks state no license"
        ),
        address=(
            "[cocodataset.org](https://cocodataset.org/#download), [xaidataset.github.io](https://xaidataset.github.io)"
        ),
        download_size=(
            "[20.4 GB](https://huggingface.co/datasets/presencesw/coco/tree/main) (COCO 2017), plus the masks"
        ),
        by_hand="the masks, from Google Drive; no account",
        how_to_get=(
            "With the human masks: download the gender data of Saliency-Bench (by hand, from xaidataset.github.io) and "
            "unpack them, so that there is DIR/gender_data/attention_label/*.csv next to "
            "DIR/gender_data/{train,val,test}/{men,women}/ or DIR/gender_data/image/{men,women}/.\n"
            "Only the photographs, without masks: download the images and annotations of 2017 (or 2014) from "
            "cocodataset.org and unpack them, so that there are DIR/coco/annotations/captions_val2017.json, "
            "DIR/coco/val2017/ and so on; load them with include_unannotated=True."
        ),
        published=(("images", 1736),),
        benchmark_size=5000,
    )
    folders = ("gender_data", "gender", "Benchmarks/gender", "")
    raw_folders = ("coco", "COCO", "MSCOCO", "")
    aliases: ClassVar = {"man": "men", "male": "men", "woman": "women", "female": "women"}

    def is_raw(self, folder: Path) -> bool:
        """Return whether the folder has captions of COCO."""
        return bool(caption_files(folder))

    def list_raw(self, folder: Path) -> list[ImageEntry]:
        """List the images of COCO that show one man or one woman."""
        return list_people(folder)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Cache the masks, and the classes found in COCO's captions."""
        if self.is_raw(folder):
            list_people(folder)
        super().prepare(folder, workers=workers, progress=progress)


gender = Gender()
