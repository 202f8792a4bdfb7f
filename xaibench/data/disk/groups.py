"""Groups of related images, such as all images of one patient, from a file ``groups.csv``."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from xaibench.core.messages import listed
from xaibench.data.disk.file_readers import DataFileError, to_nfc, wrap_file_errors
from xaibench.data.disk.image_lists import ImageEntry, image_stem, warn_about

#: Name of the file in the folder of a data set.
GROUPS_FILE = "groups.csv"


def assign_groups(folder: Path, images: Sequence[ImageEntry], below: str = "") -> list[ImageEntry]:
    """Return the images with the groups in ``groups.csv``; unchanged if the file does not exist.

    The file has the columns ``file`` and ``group``. A file is the path of an image below ``folder`` or below
    ``folder/below``, or only its name, each with or without suffix.

    Args:
        folder: The folder of the data set.
        images: The images of the data set.
        below: Subfolder of the images, which rows may leave out.

    Raises:
        DataFileError: If the file lacks a column, names an image that does not exist, or gives an image two groups.
    """
    file = folder / GROUPS_FILE
    if not file.exists():
        return list(images)
    groups = _read_groups(file)
    used: set[str] = set()
    grouped = []
    for image in images:
        path = to_nfc(image.file)
        names = path, path.removeprefix(f"{below}/"), path.rpartition("/")[2]
        keys = [key for key in (*names, *map(image_stem, names)) if key in groups]
        used.update(keys)
        grouped.append(dataclasses.replace(image, group=f"/{groups[keys[0]]}") if keys else image)
    if strange := sorted(groups.keys() - used):
        raise DataFileError(
            f"{file} names files that are not images of the data set: {listed(strange, most=5)}; expected names such "
            f"as {images[0].file}. Correct these rows, or remove them."
        )
    return grouped


def _read_groups(file: Path) -> dict[str, str]:
    """Return file name to group."""
    groups: dict[str, str] = {}
    with wrap_file_errors(file), open(file, encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        header = [name.strip().casefold() for name in reader.fieldnames or ()]
        if "file" not in header or "group" not in header:
            raise DataFileError(f"{file} has the columns {', '.join(header) or '(none)'}; expected file and group.")
        reader.fieldnames = header
        broken = []
        for row in reader:
            name, group = ((row[key] or "").strip() for key in ("file", "group"))
            name = to_nfc(name.replace("\\", "/")).removeprefix("./")
            if not name or not group:
                broken.append(f"line {reader.line_num}")
            elif groups.setdefault(name, group) != group:
                raise DataFileError(
                    f"{file}, line {reader.line_num}: {name} is in {groups[name]!r} and in {group!r}; give one group."
                )
    warn_about(f"{file}: rows without a file or a group, left out", broken)
    return groups
