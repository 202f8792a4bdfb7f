"""Facts about a suite that all of its results share, in the folder ``suites`` of a results repository.

They are written with the first result: ``facts.json`` has the explained networks and which of their samples count,
accuracies and trainings, hashes of the images, groups of samples, and descriptions of metrics and networks;
``samples.png`` shows the samples.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from xaibench.leaderboard.repository import ResultError, parse_json, read_bytes
from xaibench.leaderboard.scores import SheetLayout, parse_layout, sheet_layout, write_sample_sheet
from xaibench.runfolder.descriptions import RunParts, parse_parts, read_parts
from xaibench.runfolder.sample_file import SampleCell, read_samples
from xaibench.runfolder.schema import (
    ACCURACY,
    CLASSIFICATION,
    IMAGES,
    SAMPLES,
    SCORES,
    TRAININGS,
    TableSchema,
    frame_to_csv,
)

#: Folder of the facts in a results repository, and their file.
FACTS, FACTS_FILE = "suites", "facts.json"

#: Explained networks. ``correct`` and ``scored`` have a digit per explained sample: whether the network classifies it
#: correctly, and whether its scores count. Facts of older versions have ``scored`` under the name ``correct``, and what
#: the network answered is not known (empty).
NETWORKS = TableSchema(
    "networks.csv",
    "explained networks and which samples count",
    {"dataset": "str", "model": "str", "data_seed": "int", "seed": "int", "correct": "str", "scored": "str"},
    optional=frozenset({"scored"}),
)
_NETWORK = ["dataset", "model", "data_seed", "seed"]

#: The tables of the facts, stored as the lines of CSV files.
_TABLES = {"networks": NETWORKS, "accuracy": ACCURACY, "trainings": TRAININGS, "samples": SAMPLES}
#: Largest size of the file. A million samples with groups take 40 MB.
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class SuiteFacts:
    """Facts about one version of a suite.

    Attributes:
        folder: Folder of the facts.
        parts: Title of the suite, and descriptions of its models and metrics.
        images: Data set and seed to a checksum of the images.
        layout: The cells and samples in pictures; None if there are no pictures.
        networks: :data:`NETWORKS`.
        accuracy: :data:`~xaibench.runfolder.schema.ACCURACY`.
        trainings: :data:`~xaibench.runfolder.schema.TRAININGS`.
        samples: :data:`~xaibench.runfolder.schema.SAMPLES`. Names of samples are not stored; groups are for intervals.
    """

    folder: Path
    parts: RunParts
    images: Mapping[str, str]
    layout: SheetLayout | None
    networks: pd.DataFrame
    accuracy: pd.DataFrame
    trainings: pd.DataFrame
    samples: pd.DataFrame

    def to_json(self) -> bytes:
        """Return the content of ``facts.json``."""
        content = {
            "images": dict(self.images),
            "parts": self.parts.plain(),
            **{name: frame_to_csv(getattr(self, name)).decode().splitlines() for name in _TABLES},
            "pictures": self.layout and dataclasses.asdict(self.layout),
        }
        return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def read_facts(folder: Path) -> SuiteFacts:
    """Read the facts about a suite, which may come from a stranger.

    Args:
        folder: ``suites/SUITE@VERSION`` in a results repository.

    Raises:
        ResultError: If the folder does not exist, or a file is damaged.
        RunFolderError: If the description of a metric or a table is damaged.
    """
    if folder.is_symlink() or folder.parent.is_symlink():
        raise ResultError(f"{folder} is a link; a results repository may contain regular files only.")
    return _parse_facts(folder, read_bytes(folder / FACTS_FILE, _MAX_BYTES))


@lru_cache(maxsize=32)  # all results of a suite share them
def _parse_facts(folder: Path, content: bytes) -> SuiteFacts:
    file = folder / FACTS_FILE
    words = parse_json(content, str(file))
    for name in ("images", "parts"):
        if not isinstance(words, dict) or not isinstance(words.get(name), dict):
            raise ResultError(f"{file} has no {name}; remove it, and `xaibench results add` writes it again.")
    tables = {}
    for name, table in _TABLES.items():
        lines = words.get(name)
        rows = table.parse_csv(io.StringIO("\n".join(map(str, lines))), file) if lines else table.empty()
        if np.isinf(rows.select_dtypes("float").to_numpy()).any():
            raise ResultError(f"{file} has an infinite number; remove it, and `xaibench results add` writes it again.")
        tables[name] = rows
    networks = tables["networks"]
    if networks["scored"].eq("").all():
        tables["networks"] = networks.assign(scored=networks["correct"], correct="")
    return SuiteFacts(
        folder,
        parse_parts(words["parts"], file),
        words["images"],
        parse_layout(words.get("pictures"), file),
        **tables,
    )


def write_facts(run: Path, folder: Path) -> SuiteFacts:
    """Write the facts about the suite of a run, unless they exist.

    Args:
        run: Folder of a finished run.
        folder: ``suites/SUITE@VERSION`` in a results repository.

    Returns:
        The facts.

    Raises:
        ResultError: If there are facts about other images or networks.
        RunFolderError: If a file is damaged.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as temporary:
        fresh = Path(temporary) / "facts"
        fresh.mkdir()
        _write_files(run, fresh)
        if not (folder / FACTS_FILE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        elif different := different_facts(read_facts(fresh), read_facts(folder)):
            raise ResultError(
                f"The run in {run} has other {different} than the results of {folder.name} in this repository. Run the "
                "suite again with this version of xaibench."
            )
    return read_facts(folder)


def different_facts(run: SuiteFacts, known: SuiteFacts) -> str:
    """Return the differences between the facts of a run and of a repository: images, networks or accuracies."""
    tables = {"networks": NETWORKS, "accuracy": ACCURACY}
    if run.images != known.images:
        return "images"
    for name, schema in tables.items():
        keys = [
            column
            for column in schema.columns
            if column in ("dataset", "subset", "variant", "model", "data_seed", "seed")
        ]
        mine, theirs = (getattr(one, name).set_index(keys).sort_index() for one in (run, known))
        # Facts of older versions lack columns that came later.
        lacking = {
            column
            for column in {"correct", *schema.optional}.intersection(mine)
            if any((one[column].isna() | one[column].eq("")).all() for one in (mine, theirs))
        }
        shared = [column for column in mine if column not in lacking]
        if not mine[shared].equals(theirs.loc[theirs.index.isin(mine.index), shared]):
            return name
    return ""


def _write_files(run: Path, folder: Path) -> None:
    layout = None
    if cells := shown_samples(run):
        layout = sheet_layout(cells)
        write_sample_sheet(folder, cells, layout)
    parts = dataclasses.replace(read_parts(run), explainers={})
    # Which networks were explained depends on the methods of the run. Older repositories have accuracies only.
    accuracy = ACCURACY.read(run).drop(columns=["explained", "scored", *CLASSIFICATION])
    trainings = TRAININGS.read(run).drop(columns=["explained"])
    samples = SAMPLES.read(run).dropna(subset="group")[["dataset", "data_seed", "sample", "group"]]
    facts = SuiteFacts(folder, parts, image_checksums(run), layout, _explained(run), accuracy, trainings, samples)
    (folder / FACTS_FILE).write_bytes(facts.to_json())


def _explained(run: Path) -> pd.DataFrame:
    """Return :data:`NETWORKS` of a run."""
    flags = ["correct", "scored"]
    rows = SCORES.read(run, [*_NETWORK, "sample", *flags]).drop_duplicates().sort_values([*_NETWORK, "sample"])
    digits = pd.DataFrame({name: rows[name].map({True: "1", False: "0"}, na_action="ignore") for name in flags})
    by_network = digits.fillna("").astype(str).groupby([rows[name] for name in _NETWORK], observed=True, sort=False)
    return by_network.agg("".join).reset_index().astype({"dataset": str, "model": str})


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
    checksums = {}
    for (name, seed), mine in rows.groupby(["dataset", "data_seed"]):
        numbers = mine[["sample", "image"]].astype("int64").sort_values(["sample", "image"]).to_numpy()
        checksums[f"{name} of seed {seed}"] = hashlib.sha256(np.ascontiguousarray(numbers, "<i8").tobytes()).hexdigest()
    return checksums
