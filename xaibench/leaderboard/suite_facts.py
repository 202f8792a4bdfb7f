"""Facts about a suite that all of its results share, in the folder ``suites`` of a results repository.

They are written with the first result, and again when a keeper runs a method of the suite: accuracies and trainings of
the networks, hashes of the images, groups of samples, descriptions of metrics and networks, and a picture of the
samples that the site shows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xaibench.leaderboard.manifest import Manifest, ResultError
from xaibench.leaderboard.pictures import SAMPLE_SHEET, SheetLayout, read_layout, sheet_layout, write_sample_sheet
from xaibench.runfolder.descriptions import PARTS, RunParts, read_parts
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.tables import ACCURACY, IMAGES, SAMPLES, TRAININGS

#: Folder of the facts in a results repository.
FACTS = "suites"
#: Tables of a run that are facts of its suite.
_TABLES = (IMAGES, ACCURACY, TRAININGS)


@dataclass(frozen=True)
class SuiteFacts:
    """Facts about one version of a suite.

    Attributes:
        folder: Folder of the facts. It can be read as a run folder without scores.
        parts: Title of the suite, and descriptions of its models and metrics.
        layout: The cells and samples in pictures; None if there are no pictures.
    """

    folder: Path
    parts: RunParts
    layout: SheetLayout | None


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
    if not (folder / PARTS).is_file():
        raise ResultError(
            f"{folder} is missing; it contains the facts that all results of the suite share. `xaibench results "
            "verify` and `xaibench results add` write it."
        )
    return SuiteFacts(folder, read_parts(folder), read_layout(folder))


def write_facts(run: Path, folder: Path, *, replace: bool = False) -> SuiteFacts:
    """Write the facts about the suite of a run, unless they exist.

    Args:
        run: Folder of a finished run.
        folder: As :func:`facts_folder` returns it.
        replace: Replace existing facts that are of other images or networks.

    Returns:
        The facts.

    Raises:
        ResultError: If there are facts of other images, and ``replace`` is False.
        RunFolderError: If a file is damaged.
    """
    if (folder / PARTS).is_file():
        if not replace and image_checksums(folder) != image_checksums(run):
            raise ResultError(
                f"The run in {run} explained other images than the results of {folder.name} in this repository. Run "
                "the suite again with this version of xaibench."
            )
        if not replace or _same_tables(folder, run):
            return read_facts(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as place:
        fresh = Path(place) / "facts"
        fresh.mkdir()
        for table in _TABLES:
            if (run / table.name).exists():
                shutil.copyfile(run / table.name, fresh / table.name)
        if (run / SAMPLES.name).exists():  # groups for the intervals, without file names
            groups = SAMPLES.read(run).assign(id="", file="")[list(SAMPLES.columns)]
            (fresh / SAMPLES.name).write_text(groups.to_csv(index=False), encoding="utf-8")
        (fresh / PARTS).write_bytes(dataclasses.replace(read_parts(run), explainers={}).to_json())
        cells = shown_samples(run)
        if cells:
            write_sample_sheet(fresh, cells, sheet_layout(cells))
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    return read_facts(folder)


def shown_samples(run: Path) -> list[SampleCell]:
    """Return the samples of a run that the leaderboard shows: those of XAI-TRIS, without photographs.

    Other generated images are random signs, in which there is nothing to see, and annotated images must not be copied.
    """
    cells = read_samples(run)
    if not all(cell.dataset.startswith("xai-tris/") for cell in cells):
        return []
    return [cell for cell in cells if "imagenet" not in cell.dataset]


def image_checksums(folder: Path) -> dict[str, str]:
    """Return a checksum of the images of each data set and seed.

    Args:
        folder: A run folder, or the facts about a suite.

    Raises:
        RunFolderError: If the table of images is damaged.
    """
    rows = IMAGES.read(folder).astype({"dataset": str})
    found = {}
    for (name, seed), mine in rows.groupby(["dataset", "data_seed"]):
        numbers = mine[["sample", "image"]].astype("int64").sort_values(["sample", "image"]).to_numpy()
        found[f"{name} of seed {seed}"] = hashlib.sha256(np.ascontiguousarray(numbers, "<i8").tobytes()).hexdigest()
    return found


def _same_tables(one: Path, other: Path) -> bool:
    if image_checksums(one) != image_checksums(other) or (one / SAMPLE_SHEET).exists() < bool(shown_samples(other)):
        return False
    return all(table.read(one).equals(table.read(other)) for table in (ACCURACY, TRAININGS))
