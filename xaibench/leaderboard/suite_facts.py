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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xaibench.leaderboard.manifest import Manifest, ResultError, read_json, write_json
from xaibench.leaderboard.pictures import (
    SAMPLE_SHEET,
    SheetLayout,
    parse_layout,
    sheet_layout,
    write_sample_sheet,
)
from xaibench.runfolder.descriptions import PARTS, RunParts, read_parts
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.tables import ACCURACY, IMAGES, SAMPLES, TRAININGS, RunFolderError

#: Folder of the facts in a results repository, and file of the checksums of the images and the layout of pictures.
FACTS, FACTS_FILE = "suites", "facts.json"


@dataclass(frozen=True)
class SuiteFacts:
    """Facts about one version of a suite.

    Attributes:
        folder: Folder of the facts. It can be read as a run folder without scores.
        parts: Title of the suite, and descriptions of its models and metrics.
        images: Data set and seed to a checksum of the images.
        layout: The cells and samples in pictures; None if there are no pictures.
    """

    folder: Path
    parts: RunParts
    images: Mapping[str, str]
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
    if not all((folder / name).is_file() for name in (PARTS, FACTS_FILE)):
        raise ResultError(
            f"{folder} is missing; it contains the facts that all results of the suite share. `xaibench results "
            "verify` and `xaibench results add` write it."
        )
    words = read_json(folder / FACTS_FILE)
    if not isinstance(words, dict) or not isinstance(words.get("images"), dict):
        raise ResultError(
            f"{folder / FACTS_FILE} has no checksums of images; `xaibench results verify` writes it again."
        )
    return SuiteFacts(
        folder, read_parts(folder), words["images"], parse_layout(words.get("pictures"), folder / FACTS_FILE)
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
    exists = (folder / PARTS).is_file()
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
    # Which networks were explained depends on the methods of the run.
    for table, dropped in ((ACCURACY, ["explained", "scored"]), (TRAININGS, ["explained"])):
        if (run / table.name).exists():
            kept = table.read(run).drop(columns=dropped)
            (folder / table.name).write_text(kept.to_csv(index=False), encoding="utf-8")
    if (run / SAMPLES.name).exists():  # groups for the intervals, without file names
        groups = SAMPLES.read(run).assign(id="", file="")[list(SAMPLES.columns)]
        (folder / SAMPLES.name).write_text(groups.to_csv(index=False), encoding="utf-8")
    (folder / PARTS).write_bytes(dataclasses.replace(read_parts(run), explainers={}).to_json())
    layout = None
    if cells := shown_samples(run):
        layout = sheet_layout(cells)
        write_sample_sheet(folder, cells, layout)
    facts = {"images": image_checksums(run), "pictures": layout and layout.to_dict()}
    (folder / FACTS_FILE).write_bytes(write_json(facts))


def _is_covered(fresh: Path, known: Path) -> bool:
    """Return whether existing facts differ from fresh ones only in that they picture more cells.

    The run of a method that does not support some networks has no pictures of their cells.
    """
    try:
        new, old = read_facts(fresh), read_facts(known)
    except (ResultError, RunFolderError):
        return False
    more = old.layout is not None and (new.layout is None or set(new.layout.cells) < set(old.layout.cells))
    pictures = (SAMPLE_SHEET, FACTS_FILE)
    files = [{path.name for path in folder.iterdir() if path.name not in pictures} for folder in (fresh, known)]
    same = files[0] == files[1] and all((fresh / name).read_bytes() == (known / name).read_bytes() for name in files[0])
    return same and more and new.images == old.images


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
