"""Men and women: photographs of MS COCO in which people marked what shows the gender."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from xaibench.core.part_info import DatasetInfo
from xaibench.data.disk.annotated_set import Progress
from xaibench.data.disk.image_lists import Listed
from xaibench.data.photographs.coco_captions import caption_files, list_people
from xaibench.data.photographs.marked_photographs import MarkedPhotographs


class Gender(MarkedPhotographs):
    """Gender classification on photographs of one person (:class:`.marked_photographs.MarkedPhotographs`).

    From MS COCO alone, the images of one man or one woman are chosen by their captions
    (:func:`~xaibench.data.photographs.coco_captions.gender_of`). COCO's outlines of people are not the masks of this
    set.
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
        licence=(
            "MS COCO: annotations CC BY 4.0, the images under the Flickr licence of each; the human masks state none"
        ),
        address=(
            "[cocodataset.org](https://cocodataset.org/#download), [xaidataset.github.io](https://xaidataset.github.io)"
        ),
        download_size=(
            "[20.4 GB](https://huggingface.co/datasets/presencesw/coco/tree/main) (COCO 2017), the masks beside it"
        ),
        by_hand="the masks: a click on Google Drive, no account",
        how_to_get=(
            "With the human masks: get the gender data of Saliency-Bench (by hand, from xaidataset.github.io) and "
            "unpack them, so that there is DIR/gender_data/attention_label/*.csv beside "
            "DIR/gender_data/{train,val,test}/{men,women}/ or DIR/gender_data/image/{men,women}/.\n"
            "The photographs alone, without masks: get the images and annotations of 2017 (or 2014) from "
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
        """Whether there are captions of COCO."""
        return bool(caption_files(folder))

    def list_raw(self, folder: Path) -> list[Listed]:
        """COCO's images of one man or one woman."""
        return list_people(folder)

    def prepare(self, folder: Path, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Keep the masks as bits, and what COCO's captions say."""
        if self.is_raw(folder):
            list_people(folder)
        super().prepare(folder, workers=workers, progress=progress)


gender = Gender()
