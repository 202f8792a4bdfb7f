"""Facts about a suite that all of its results share, in the folder ``suites`` of a results repository.

They are written with the first result, and again when a keeper runs a method of the suite: ``facts.json`` has the
accuracies and trainings of the networks, hashes of the images, groups of samples, and descriptions of metrics and
networks; ``samples.png`` shows the samples.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xaibench.leaderboard.manifest import Manifest, ResultError, read_json, write_json
from xaibench.leaderboard.pictures import (
    SheetLayout,
    parse_layout,
    sheet_layout,
    write_sample_sheet,
)
from xaibench.runfolder.descriptions import RunParts, parse_parts, read_parts
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.sanitize import sanitize_json
from xaibench.runfolder.tables import ACCURACY, IMAGES, SAMPLES, TRAININGS, RunFolderError, TableSchema

#: Folder of the facts in a results repository, and their file.
FACTS, FACTS_FILE = "suites", "facts.json"

#: Largest size of the file. A million samples with groups take 14 MB.
_MAX_BYTES = 16 << 20
#: Columns of the groups, each stored as one line of numbers, because a suite may have thousands of samples.
_GROUP_COLUMNS = ("sample", "group")


@dataclass(frozen=True, eq=False)
class SuiteFacts:
    """Facts about one version of a suite.

    Attributes:
        folder: Folder of the facts.
        parts: Title of the suite, and descriptions of its models and metrics.
        images: Data set and seed to a checksum of the images.
        layout: The cells and samples in pictures; None if there are no pictures.
        accuracy: :data:`~xaibench.runfolder.tables.ACCURACY`.
        trainings: :data:`~xaibench.runfolder.tables.TRAININGS`.
        samples: :data:`~xaibench.runfolder.tables.SAMPLES`. Names of samples are not stored; groups are for intervals.
    """

    folder: Path
    parts: RunParts
    images: Mapping[str, str]
    layout: SheetLayout | None
    accuracy: pd.DataFrame
    trainings: pd.DataFrame
    samples: pd.DataFrame

    def to_json(self) -> bytes:
        """Return the content of ``facts.json``."""
        known = self.samples.dropna(subset="group")
        groups = [
            {"dataset": str(rows["dataset"].iloc[0]), "data_seed": int(rows["data_seed"].iloc[0])}
            | {column: " ".join(map(str, rows[column])) for column in _GROUP_COLUMNS}
            for _, rows in known.groupby(["dataset", "data_seed"], sort=False)
        ]
        return write_json(
            {
                "images": dict(self.images),
                "parts": self.parts.plain(),
                "accuracy": self.accuracy.to_csv(index=False).splitlines(),
                "trainings": self.trainings.to_csv(index=False).splitlines(),
                "groups": groups,
                "pictures": self.layout and self.layout.to_dict(),
            }
        )


def facts_folder(repository: Path, manifest: Manifest) -> Path:
    """Return the folder of the facts about the suite of a result."""
    return repository / FACTS / manifest.suite_folder


def read_facts(folder: Path) -> SuiteFacts:
    """Read the facts about a suite.

    Args:
        folder: As :func:`facts_folder` returns it.

    Raises:
        ResultError: If the folder does not exist.
        RunFolderError: If a file is damaged.
    """
    file = folder / FACTS_FILE
    if not file.is_file():
        raise ResultError(
            f"{folder} is missing; it contains the facts that all results of the suite share. `xaibench results "
            "verify` and `xaibench results add` write it."
        )
    words = read_json(file, _MAX_BYTES)
    for name, what in (("images", "checksums of images"), ("parts", "descriptions of metrics")):
        if not isinstance(words, dict) or not isinstance(words.get(name), dict):
            raise ResultError(f"{file} has no {what}; `xaibench results verify` writes it again.")
    return SuiteFacts(
        folder,
        parse_parts(sanitize_json(words["parts"]), file),
        words["images"],
        parse_layout(words.get("pictures"), file),
        _parse_lines(ACCURACY, words.get("accuracy"), file),
        _parse_lines(TRAININGS, words.get("trainings"), file),
        _parse_groups(words.get("groups"), file),
    )


def write_facts(run: Path, folder: Path, *, replace: bool = False) -> SuiteFacts:
    """Write the facts about the suite of a run, unless they exist.

    Args:
        run: Folder of a finished run.
        folder: As :func:`facts_folder` returns it.
        replace: Replace existing facts, unless they are the same with pictures of more cells.

    Returns:
        The facts.

    Raises:
        ResultError: If there are facts about other images, and ``replace`` is False.
        RunFolderError: If a file is damaged.
    """
    exists = (folder / FACTS_FILE).is_file()
    if exists and not replace:
        known = read_facts(folder)
        if known.images != image_checksums(run):
            raise ResultError(
                f"The run in {run} explained other images than the results of {folder.name} in this repository. Run "
                "the suite again with this version of xaibench."
            )
        return known
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as place:
        fresh = Path(place) / "facts"
        fresh.mkdir()
        _write_files(run, fresh)
        if exists and _is_covered(fresh, folder):
            return read_facts(folder)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    return read_facts(folder)


def _write_files(run: Path, folder: Path) -> None:
    layout = None
    if cells := shown_samples(run):
        layout = sheet_layout(cells)
        write_sample_sheet(folder, cells, layout)
    parts = dataclasses.replace(read_parts(run), explainers={})
    # Which networks were explained depends on the methods of the run.
    accuracy = ACCURACY.read(run).drop(columns=["explained", "scored"])
    trainings = TRAININGS.read(run).drop(columns=["explained"])
    facts = SuiteFacts(folder, parts, image_checksums(run), layout, accuracy, trainings, SAMPLES.read(run))
    (folder / FACTS_FILE).write_bytes(facts.to_json())


def _parse_lines(table: TableSchema, lines: Any, file: Path) -> pd.DataFrame:
    """Parse a table that is stored as the lines of a CSV file; empty if there is none."""
    return table.parse_csv(io.StringIO("\n".join(map(str, lines))), file) if lines else table.empty()


def _parse_groups(groups: Any, file: Path) -> pd.DataFrame:
    rows = []
    try:
        for group in groups or []:
            numbers = [group[column].split() for column in _GROUP_COLUMNS]
            rows += [(group["dataset"], group["data_seed"], *pair) for pair in zip(*numbers, strict=True)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ResultError(
            f"{file} has malformed groups of samples ({error}); `xaibench results verify` writes it again."
        ) from error
    table = pd.DataFrame(rows, columns=["dataset", "data_seed", *_GROUP_COLUMNS])
    return _parse_lines(SAMPLES, table.to_csv(index=False).splitlines(), file)


def _is_covered(fresh: Path, known: Path) -> bool:
    """Return whether existing facts differ from fresh ones only in that they picture more cells.

    The run of a method that does not support some networks has no pictures of their cells.
    """
    try:
        new, old = read_facts(fresh), read_facts(known)
    except (ResultError, RunFolderError):
        return False
    more = old.layout is not None and (new.layout is None or set(new.layout.cells) < set(old.layout.cells))
    others = [read_json(place / FACTS_FILE, _MAX_BYTES) | {"pictures": None} for place in (fresh, known)]
    return more and bool(others[0] == others[1])


def shown_samples(run: Path) -> list[SampleCell]:
    """Return the samples of a run that the leaderboard shows, which are generated by XAI-TRIS without photographs.

    Other generated images are random signs, in which there is nothing to see, and annotated images must not be copied.
    """
    cells = read_samples(run)
    if not all(cell.dataset.startswith("xai-tris/") for cell in cells):
        return []
    return [cell for cell in cells if "imagenet" not in cell.dataset]


def image_checksums(folder: Path) -> dict[str, str]:
    """Return a checksum of the images of each data set and seed.

    Args:
        folder: A run folder.

    Raises:
        RunFolderError: If the table of images is damaged.
    """
    rows = IMAGES.read(folder).astype({"dataset": str})
    found = {}
    for (name, seed), mine in rows.groupby(["dataset", "data_seed"]):
        numbers = mine[["sample", "image"]].astype("int64").sort_values(["sample", "image"]).to_numpy()
        found[f"{name} of seed {seed}"] = hashlib.sha256(np.ascontiguousarray(numbers, "<i8").tobytes()).hexdigest()
    return found
