"""Which images of MS COCO show one man or one woman, by what people wrote about them."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from xaibench.core.atomic_files import whole_file
from xaibench.data.disk.cache_folders import cache_folder, stamp
from xaibench.data.disk.file_readers import DataFileError, naming
from xaibench.data.disk.image_files import is_image
from xaibench.data.disk.image_lists import Listed
from xaibench.data.disk.json_lists import read_items

_LOGGER = logging.getLogger("xaibench")

#: The words that choose an image: the paper's terms, singular and plural.
TERMS = {"men": frozenset({"man", "men"}), "women": frozenset({"woman", "women"})}
#: The words that speak of a gender, and so speak against an image of the other.
MENTIONS = {
    "men": TERMS["men"]
    | {"boy", "boys", "guy", "guys", "male", "males", "gentleman", "gentlemen", "he", "him", "his", "himself"},
    "women": TERMS["women"] | {"girl", "girls", "lady", "ladies", "female", "females", "she", "her", "hers", "herself"},
}
#: Words for several people, which decide only where the annotations do not count them.
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
#: Bumped when images are chosen otherwise, so that no cache of the old way is taken.
_REVISION = 1


def gender_of(captions: Iterable[str], *, persons: int | None = None) -> str | None:
    """``"men"``, ``"women"``, or None if the captions do not show one person of one gender.

    The paper takes captions "with the terms 'men' or 'women'" and removes images with "both genders mentioned" or
    "multiple individuals present"; it gives no list of words. Here some caption has the word man or men (woman or
    women), no caption has a word of the other gender (:data:`MENTIONS`), and one person is annotated in the image;
    where persons are not annotated, no caption has a word for several people (:data:`SEVERAL`).

    Args:
        captions: All captions of an image.
        persons: How many people are annotated in it; None = not known.

    Example:
        >>> gender_of(["A woman posing for the camera.", "A skier in red."])
        'women'
        >>> gender_of(["A man and his daughter.", "A girl on a bike."]) is None
        True
        >>> gender_of(["Two men talk."]) is None, gender_of(["Two men talk."], persons=1)
        (True, 'men')
    """
    return _gender({word for caption in captions for word in _telling(caption)}, persons)


def _gender(words: Collection[str], persons: int | None) -> str | None:
    """As :func:`gender_of`, from the words that tell."""
    words = set(words)
    if persons != 1 if persons is not None else words & SEVERAL:
        return None
    found = [label for label, terms in TERMS.items() if words & terms]
    others = [label for label, mentions in MENTIONS.items() if words & mentions and label not in found]
    return found[0] if len(found) == 1 and not others else None


def _telling(caption: str) -> frozenset[str]:
    """Those of its words that the rule asks for."""
    return _WORDS.intersection(re.findall(r"[a-z]+", caption.casefold()))


def caption_files(folder: Path) -> list[Path]:
    """The caption lists in ``folder/annotations``."""
    return sorted((folder / "annotations").glob("captions_*.json"))


def list_people(folder: Path) -> list[Listed]:
    """The images of one man or one woman that are on disk, of all COCO releases below ``folder``, each once.

    The lists are read once, item by item (hundreds of megabytes of JSON), and the result is kept in the cache.

    Raises:
        DataFileError: If a list cannot be read.
    """
    places = {_part(file): place for file in caption_files(folder) if (place := _images(folder, _part(file)))}
    # 2017 is 2014 shared out anew, its images under the same numbers: each must count once.
    listed: dict[str, Listed] = {}
    for part in sorted(places, key=lambda part: part[-4:], reverse=True):
        there = {name for name in os.listdir(folder / places[part]) if is_image(name)}
        for number, (name, label) in _people(folder / "annotations", part).items():
            if name in there:
                split = "val" if part.startswith("val") else "train"
                listed.setdefault(number, Listed(f"{places[part]}/{name}", label, split))
    return sorted(listed.values(), key=lambda image: image.file)


def _people(folder: Path, part: str) -> dict[str, list[str]]:
    """Image number to file name and label, for one part of one release, from the cache where it is there."""
    captions = folder / f"captions_{part}.json"
    lists = (folder / f"{name}_{part}.json" for name in ("person_keypoints", "instances"))
    persons = next((file for file in lists if file.is_file()), None)
    key = stamp([captions] if persons is None else [captions, persons])
    cached = cache_folder("coco-captions", folder) / f"{part}-{key}-{_REVISION}.json"
    people = _read_cache(cached)
    if people is None:
        _LOGGER.info("Reading %s; what it says is kept in %s.", captions, cached.parent)
        people = _choose(captions, persons)
        try:
            with whole_file(cached) as stream:
                stream.write(json.dumps(people).encode())
        except OSError as error:
            _LOGGER.warning("What %s says could not be kept in %s (%s); it is read anew.", captions, cached, error)
    return people


def _choose(captions: Path, persons: Path | None) -> dict[str, list[str]]:
    names: dict[str, str] = {}
    said: dict[str, frozenset[str]] = {}
    # There are 590,000 captions, but few sets of words that tell: each is in memory once.
    known: dict[frozenset[str], frozenset[str]] = {}
    with _understood(captions):
        for kind, one in read_items(captions, "images", "annotations"):
            if kind == "images":
                names[str(one["id"])] = str(one["file_name"])
            else:
                number = str(one["image_id"])
                words = said.get(number, frozenset()) | _telling(str(one["caption"]))
                said[number] = known.setdefault(words, words)
    counts = None if persons is None else _count_persons(persons)
    found = {}
    for number, name in names.items():
        label = _gender(said.get(number, ()), None if counts is None else counts.get(number, 0))
        if label is not None:
            found[number] = [name, label]
    return found


def _count_persons(file: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    with _understood(file):
        for kind, one in read_items(file, "images", "annotations"):
            if kind == "annotations" and one["category_id"] == _PERSON:
                # A crowd is one annotation of many people.
                number = str(one["image_id"])
                counts[number] = counts.get(number, 0) + (2 if one.get("iscrowd") else 1)
    return counts


def _part(captions: Path) -> str:
    return captions.stem.removeprefix("captions_")


def _images(folder: Path, part: str) -> str | None:
    return next((place for place in (part, f"images/{part}") if (folder / place).is_dir()), None)


@contextmanager
def _understood(file: Path) -> Iterator[None]:
    with naming(file):
        try:
            yield
        except (KeyError, TypeError, RecursionError) as error:
            raise DataFileError(
                f"{file} is no annotation file of COCO: expected a table with the lists images and annotations, got "
                f"{type(error).__name__} ({error}). Get the file anew."
            ) from error


def _read_cache(file: Path) -> dict[str, list[str]] | None:
    try:
        return {number: [name, label] for number, (name, label) in json.loads(file.read_bytes()).items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        _LOGGER.warning("The cache file %s is damaged (%s); it is made anew.", file, error)
        return None
