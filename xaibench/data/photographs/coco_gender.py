"""Men and women: photographs of MS COCO with human annotations of the pixels that show the gender."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TextIO

from xaibench.core.files import atomic_file
from xaibench.data.disk.annotated_set import ProgressCallback
from xaibench.data.disk.cache_folders import cache_folder, digest_files
from xaibench.data.disk.file_readers import DataFileError, wrap_file_errors
from xaibench.data.disk.image_files import is_image
from xaibench.data.disk.image_lists import ImageEntry
from xaibench.data.photographs.human_masks import MarkedPhotographs
from xaibench.registry.info import DatasetInfo


class Gender(MarkedPhotographs):
    """Gender classification on photographs of one person (:class:`.human_masks.MarkedPhotographs`).

    If only MS COCO is on disk, images of one man or one woman are selected by their captions
    (:func:`~xaibench.data.photographs.coco_gender.gender_of`). The masks of this data set are not COCO's outlines of
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
            "1. Download the gender data of Saliency-Bench, photographs with human masks, from "
            "https://xaidataset.github.io (Google Drive, no account).\n"
            "2. Unpack them in DIR/gender_data.\n"
            "Only the photographs, for include_unannotated=True: download the images and annotations of 2017 (or 2014) "
            "from https://cocodataset.org and unpack them in DIR/coco, so that there are "
            "DIR/coco/annotations/captions_val2017.json, DIR/coco/val2017 and so on."
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


_LOGGER = logging.getLogger("xaibench")

#: Words that select an image: the terms of the paper, singular and plural.
TERMS = {"men": frozenset({"man", "men"}), "women": frozenset({"woman", "women"})}
#: Words that mention a gender, and exclude an image of the other gender.
MENTIONS = {
    "men": TERMS["men"]
    | {"boy", "boys", "guy", "guys", "male", "males", "gentleman", "gentlemen", "he", "him", "his", "himself"},
    "women": TERMS["women"] | {"girl", "girls", "lady", "ladies", "female", "females", "she", "her", "hers", "herself"},
}
#: Words for several people, only used if the number of people is not annotated.
SEVERAL = frozenset(
    {
        "men",
        "women",
        "boys",
        "girls",
        "guys",
        "ladies",
        "gentlemen",
        "males",
        "females",
        "people",
        "persons",
        "children",
    }
    | {"kids", "adults", "group", "couple", "crowd", "family", "friends", "team", "players", "they", "their"}
)
_WORDS = SEVERAL.union(*TERMS.values(), *MENTIONS.values())
_PERSON = 1
#: Part of the cache key; increased when the selection changes.
_REVISION = 1


def gender_of(captions: Iterable[str], *, persons: int | None = None) -> str | None:
    """Return ``"men"``, ``"women"``, or None if the captions do not describe one person of one gender.

    The paper selects captions "with the terms 'men' or 'women'" and removes images with "both genders mentioned" or
    "multiple individuals present", without a list of words. Here, an image is selected if a caption has the word man or
    men (woman or women), no caption has a word of the other gender (:data:`MENTIONS`), and one person is annotated in
    the image. If persons are not annotated, no caption may have a word for several people (:data:`SEVERAL`).

    Args:
        captions: All captions of an image.
        persons: Number of people annotated in the image; None = not known.

    Example:
        >>> gender_of(["A woman posing for the camera.", "A skier in red."])
        'women'
        >>> gender_of(["A man and his daughter.", "A girl on a bike."]) is None
        True
        >>> gender_of(["Two men talk."]) is None, gender_of(["Two men talk."], persons=1)
        (True, 'men')
    """
    return _gender_of_words({word for caption in captions for word in _relevant_words(caption)}, persons)


def _gender_of_words(words: Collection[str], persons: int | None) -> str | None:
    words = set(words)
    if persons != 1 if persons is not None else words & SEVERAL:
        return None
    found = [label for label, terms in TERMS.items() if words & terms]
    others = [label for label, mentions in MENTIONS.items() if words & mentions and label not in found]
    return found[0] if len(found) == 1 and not others else None


def _relevant_words(caption: str) -> frozenset[str]:
    """Return the words of a caption that the rule uses."""
    return _WORDS.intersection(re.findall(r"[a-z]+", caption.casefold()))


def caption_files(folder: Path) -> list[Path]:
    """Return the caption files in ``folder/annotations``."""
    return sorted((folder / "annotations").glob("captions_*.json"))


def list_people(folder: Path) -> list[ImageEntry]:
    """Return the images on disk that show one man or one woman, without duplicates between the COCO releases.

    The files (hundreds of megabytes of JSON) are read item by item, and the result is cached.

    Raises:
        DataFileError: If a file cannot be read.
    """
    places = {
        _part_name(file): place for file in caption_files(folder) if (place := _find_images(folder, _part_name(file)))
    }
    # 2017 is another split of the images of 2014, with the same numbers.
    listed: dict[str, ImageEntry] = {}
    for part in sorted(places, key=lambda part: part[-4:], reverse=True):
        on_disk = {name for name in os.listdir(folder / places[part]) if is_image(name)}
        for number, (name, label) in _read_people(folder / "annotations", part).items():
            if name in on_disk:
                split = "val" if part.startswith("val") else "train"
                file = f"{places[part]}/{name}"
                listed.setdefault(number, ImageEntry(file, label, split, group=file))
    return sorted(listed.values(), key=lambda image: image.file)


def _read_people(folder: Path, part: str) -> dict[str, list[str]]:
    """Return image number to file name and label for one part of a release, from the cache if possible."""
    captions = folder / f"captions_{part}.json"
    lists = (folder / f"{name}_{part}.json" for name in ("person_keypoints", "instances"))
    persons = next((file for file in lists if file.is_file()), None)
    key = digest_files([captions] if persons is None else [captions, persons])
    cached = cache_folder("coco-captions", folder) / f"{part}-{key}-{_REVISION}.json"
    people = _read_cache(cached)
    if people is None:
        _LOGGER.info("Reading %s; the result is cached in %s.", captions, cached.parent)
        people = _select_people(captions, persons)
        try:
            with atomic_file(cached) as stream:
                stream.write(json.dumps(people).encode())
        except OSError as error:
            _LOGGER.warning("%s could not be cached in %s (%s); it is read again next time.", captions, cached, error)
    return people


def _select_people(captions: Path, persons: Path | None) -> dict[str, list[str]]:
    names: dict[str, str] = {}
    words_of: dict[str, frozenset[str]] = {}
    # There are 590,000 captions, but few different sets of relevant words, each of which is stored once.
    known: dict[frozenset[str], frozenset[str]] = {}
    with _wrap_coco_errors(captions):
        for kind, one in read_items(captions, "images", "annotations"):
            if kind == "images":
                names[str(one["id"])] = str(one["file_name"])
            else:
                number = str(one["image_id"])
                words = words_of.get(number, frozenset()) | _relevant_words(str(one["caption"]))
                words_of[number] = known.setdefault(words, words)
    counts = None if persons is None else _count_persons(persons)
    found = {}
    for number, name in names.items():
        label = _gender_of_words(words_of.get(number, ()), None if counts is None else counts.get(number, 0))
        if label is not None:
            found[number] = [name, label]
    return found


def _count_persons(file: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    with _wrap_coco_errors(file):
        for kind, one in read_items(file, "images", "annotations"):
            if kind == "annotations" and one["category_id"] == _PERSON:
                # A crowd is one annotation of several people.
                number = str(one["image_id"])
                counts[number] = counts.get(number, 0) + (2 if one.get("iscrowd") else 1)
    return counts


def _part_name(captions: Path) -> str:
    return captions.stem.removeprefix("captions_")


def _find_images(folder: Path, part: str) -> str | None:
    return next((place for place in (part, f"images/{part}") if (folder / place).is_dir()), None)


@contextmanager
def _wrap_coco_errors(file: Path) -> Iterator[None]:
    with wrap_file_errors(file):
        try:
            yield
        except (KeyError, TypeError, RecursionError) as error:
            raise DataFileError(
                f"{file} is not an annotation file of COCO: expected an object with the lists images and annotations, "
                f"got {type(error).__name__} ({error}). Get the file again."
            ) from error


def _read_cache(file: Path) -> dict[str, list[str]] | None:
    try:
        return {number: [name, label] for number, (name, label) in json.loads(file.read_bytes()).items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        _LOGGER.warning("The cache file %s is damaged (%s); it is built again.", file, error)
        return None


#: Characters that may follow a value.
_DELIMITERS = frozenset(",:]} \t\n\r")
_BLANK = re.compile(r"[ \t\n\r]*")
#: Number of characters read at a time, and maximum number of one item.
_CHUNK, _MAX_ITEM = 2**20, 2**26


def read_items(path: str | os.PathLike[str], *names: str) -> Iterator[tuple[str, Any]]:
    """Yield ``(name, item)`` for each item of the lists ``names`` of a JSON object, in the order of the file.

    Only one item is in memory at a time; other keys are skipped.

    Args:
        path: A UTF-8 file with one JSON object.
        names: Keys of the lists.

    Raises:
        ValueError: If the file is not a JSON object, or the value of a name is not a list; states the position.
        KeyError: If a name is missing.
        OSError: If the file cannot be read.
    """
    left = set(names)
    with open(path, encoding="utf-8") as stream:
        text = _JsonStream(stream)
        for _ in text.between("{", "}"):
            name = text.value()
            text.take(":")
            if name in names:
                left.discard(name)
                for _ in text.between("[", "]"):
                    yield name, text.value()
            else:
                text.value()
        if text.next():
            text.fail("expected the end of the file")
    if left:
        raise KeyError(min(left))


class _JsonStream:
    """An incremental JSON reader with one chunk of the file in memory."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text, self._at, self._before = "", 0, 0
        self._decode = json.JSONDecoder().raw_decode

    def between(self, first: str, last: str) -> Iterator[None]:
        """Yield once per item of a comma-separated list between two brackets; the caller reads the item."""
        self.take(first)
        if self.next() != last:
            yield
            while self.next() == ",":
                self.take(",")
                yield
        self.take(last)

    def value(self) -> Any:
        """Return the next value."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._read_more():
                    self.fail(error.msg)
                continue
            if self._text[end : end + 1] not in _DELIMITERS and self._read_more():
                continue  # a number may continue in the next chunk
            self._at = end
            return value

    def take(self, character: str) -> None:
        """Consume the next character that is not blank, which must be this one."""
        if self.next() != character:
            self.fail(f"expected {character!r}")
        self._at += 1

    def next(self) -> str:
        """Return the next character that is not blank, without consuming it; empty at the end of the file."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches the empty string
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def fail(self, reason: str) -> None:
        """Raise an error that states the position."""
        found = self._text[self._at : self._at + 20] or "the end"
        raise ValueError(f"after {self._before + self._at:,} characters: {reason}, got {found!r}")

    def _read_more(self) -> bool:
        """Read more characters; False at the end of the file or if the item is too long."""
        rest = self._text[self._at :]
        # Doubling the text bounds how often an item longer than a chunk is decoded.
        added = self._stream.read(max(_CHUNK, len(rest))) if len(rest) < _MAX_ITEM else ""
        if added:
            self._before, self._text, self._at = self._before + self._at, rest + added, 0
        return bool(added)
