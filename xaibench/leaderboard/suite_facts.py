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
from xaibench.leaderboard.pictures import (
    LAYOUT,
    SAMPLE_SHEET,
    SheetLayout,
    read_layout,
    sheet_layout,
    write_sample_sheet,
)
from xaibench.runfolder.descriptions import PARTS, RunParts, read_parts
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.tables import ACCURACY, IMAGES, SAMPLES, TRAININGS

#: Folder of the facts in a results repository.
FACTS = "suites"


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
        replace: Replace existing facts, unless they are the same with pictures of more cells.

    Returns:
        The facts.

    Raises:
        ResultError: If there are facts about other images, and ``replace`` is False.
        RunFolderError: If a file is damaged.
    """
    exists = (folder / PARTS).is_file()
    if exists and not replace:
        if image_checksums(folder) != image_checksums(run):
            raise ResultError(
                f"The run in {run} explained other images than the results of {folder.name} in this repository. Run "
                "the suite again with this version of xaibench."
            )
        return read_facts(folder)
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
    if (run / IMAGES.name).exists():
        shutil.copyfile(run / IMAGES.name, folder / IMAGES.name)
    # Which networks were explained depends on the methods of the run.
    for table, dropped in ((ACCURACY, ["explained", "scored"]), (TRAININGS, ["explained"])):
        if (run / table.name).exists():
            kept = table.read(run).drop(columns=dropped)
            (folder / table.name).write_text(kept.to_csv(index=False), encoding="utf-8")
    if (run / SAMPLES.name).exists():  # groups for the intervals, without file names
        groups = SAMPLES.read(run).assign(id="", file="")[list(SAMPLES.columns)]
        (folder / SAMPLES.name).write_text(groups.to_csv(index=False), encoding="utf-8")
    (folder / PARTS).write_bytes(dataclasses.replace(read_parts(run), explainers={}).to_json())
    if cells := shown_samples(run):
        write_sample_sheet(folder, cells, sheet_layout(cells))


def _is_covered(fresh: Path, known: Path) -> bool:
    """Return whether existing facts differ from fresh ones only in that they picture more cells.

    The run of a method that does not support some networks has no pictures of their cells.
    """
    try:
        layouts = read_layout(fresh), read_layout(known)
    except ResultError:
        return False
    more = layouts[1] is not None and (layouts[0] is None or set(layouts[0].cells) < set(layouts[1].cells))
    pictures = (SAMPLE_SHEET, LAYOUT)
    files = [{path.name for path in folder.iterdir() if path.name not in pictures} for folder in (fresh, known)]
    same = files[0] == files[1] and all((fresh / name).read_bytes() == (known / name).read_bytes() for name in files[0])
    return same and more


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
