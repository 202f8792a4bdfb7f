"""Reading a run folder: whatever the report shows, as one frozen value."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from xaibench.report.read.table_files import RunFolderError as RunFolderError
from xaibench.report.read.table_files import damaged, read_csv, read_json, with_columns

#: What identifies a group of scores.
KEYS = ("scenario", "background", "model", "explainer", "metric")
#: What identifies a cell.
CELL = ["scenario", "background", "model"]
#: Columns of ``curves.parquet``.
CURVE_COLUMNS = ("dataset", "model", "explainer", "metric", "fraction", "mean", "low", "high", "n")
#: Columns of ``jobs.csv``.
JOB_COLUMNS = (
    *("stage", "key", "dataset", "data_seed", "model", "explainer", "metric"),
    *("seconds", "cpu_seconds", "peak_mb", "worker", "failed"),
)
_SCENARIOS = ("lin", "mult", "rigid", "xor")
_BACKGROUNDS = ("white", "corr", "imagenet")


def place(name: str) -> str:
    """A scenario or background as shown: the papers' names in capitals, others as they are, ``"-"`` (none) as nothing.

    Example:
        >>> place("lin"), place("oxford-pet"), place("-")
        ('LIN', 'oxford-pet', '')
    """
    if name == "-":
        return ""
    return name.upper() if name in (*_SCENARIOS, *_BACKGROUNDS) else name


@dataclass(frozen=True)
class Part:
    """An explainer, model or metric as the report shows it.

    Attributes:
        name: As in the scores.
        label: As shown.
        control: True for an explainer that knows no model.
        citation: The publication to cite, or empty.
        higher_is_better: Direction of a metric.
        meaning: What a score of a metric means, in a sentence or two, or empty.
    """

    name: str
    label: str
    control: bool = False
    citation: str = ""
    higher_is_better: bool = True
    meaning: str = ""


@dataclass(frozen=True, eq=False)
class GalleryCell:
    """Samples of one network to look at.

    Attributes:
        scenario: As in the scores; so are ``background``, ``model``, ``dataset``, ``data_seed`` and ``seed``.
        samples: ``n`` numbers of the test split, those to keep first in front.
        labels: What each image shows.
        explainers: ``M`` names, in the order of the maps.
        photographs: Whether the maps are to lie over the images.
        images: ``[n, H, W, 3]`` uint8.
        masks: ``[n, H, W]`` uint8.
        maps: ``[n, M, h, w]`` uint8, magnitudes from the smallest to the largest of each map.
    """

    scenario: str
    background: str
    model: str
    dataset: str
    data_seed: int
    seed: int
    samples: tuple[int, ...]
    labels: tuple[str, ...]
    explainers: tuple[str, ...]
    photographs: bool
    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    maps: NDArray[np.uint8]

    @property
    def cell(self) -> tuple[str, str, str]:
        """Scenario, background and model."""
        return self.scenario, self.background, self.model


@dataclass(frozen=True)
class Run:
    """A run folder, read.

    Attributes:
        path: The folder.
        title: Heading of the page.
        suite: Name of the suite.
        citation: Its publication, or empty.
        explainers: Name to part, in the order to show, controls last.
        models: Name to part, in the order to show.
        metrics: Name to part, in the order to show.
        scenarios: Names in the order to show.
        backgrounds: Names in the order to show.
        scores: A row for each sample and metric: :data:`KEYS` (categorical, in the orders above), ``dataset``,
            ``data_seed``, ``seed``, ``sample``, ``correct``, ``value``, ``reason`` (categorical).
        accuracy: A row for each cell; empty when the file is.
        trainings: A row for each training; empty when the file is.
        failures: A row for each failed job.
        environment: Versions, machine, times.
        suite_toml: The suite as it was run.
    """

    path: Path
    title: str
    suite: str
    citation: str
    explainers: Mapping[str, Part]
    models: Mapping[str, Part]
    metrics: Mapping[str, Part]
    scenarios: tuple[str, ...]
    backgrounds: tuple[str, ...]
    scores: pd.DataFrame
    accuracy: pd.DataFrame
    trainings: pd.DataFrame
    failures: pd.DataFrame
    environment: Mapping[str, Any]
    suite_toml: str

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The suite's tables, as ``settings["explaining"]["protocol"]``; empty where there is none to read."""
        try:
            return {key: table for key, table in tomllib.loads(self.suite_toml).items() if isinstance(table, dict)}
        except tomllib.TOMLDecodeError:
            return {}

    @property
    def has_backgrounds(self) -> bool:
        """False for a run of annotated sets alone: its scenarios are then the sets."""
        return any(name != "-" for name in self.backgrounds)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """``dataset, data_seed, sample, id, group, file`` of the samples; empty without ``samples.csv``."""
        table = read_csv(self.path / "samples.csv", text=("dataset", "id", "group", "file"))
        return with_columns(self.path / "samples.csv", table, ("dataset", "data_seed", "sample"))

    @cached_property
    def curves(self) -> pd.DataFrame:
        """``dataset, model, explainer, metric, fraction, mean, low, high, n``; empty without ``curves.parquet``."""
        file = self.path / "curves.parquet"
        if not file.exists():
            return pd.DataFrame()
        try:
            table: pd.DataFrame = pq.read_table(file).to_pandas()
        except Exception as error:  # pyarrow raises OSError, ArrowInvalid and others for a damaged file
            raise damaged(file, error) from error
        return with_columns(file, table, CURVE_COLUMNS)

    @cached_property
    def sheet(self) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Samples to look at by key (``pet/resnet18/0/map/gradcam``), and their labels; empty without the file."""
        file = self.path / "sheet.safetensors"
        if not file.exists():
            return {}, {}
        try:
            with safe_open(file, framework="numpy") as opened:
                names = list(opened.keys())
                return {name: opened.get_tensor(name) for name in names}, dict(opened.metadata() or {})
        except Exception as error:  # safetensors raises a bare Exception subclass of its own
            raise damaged(file, error) from error

    @cached_property
    def gallery(self) -> tuple[GalleryCell, ...]:
        """Samples to look at, by cell in the order to show; empty without ``gallery.safetensors``."""
        file = self.path / "gallery.safetensors"
        if not file.exists():
            return ()
        try:
            with safe_open(file, framework="numpy") as opened:
                described = json.loads((opened.metadata() or {})["cells"])
                cells = [_gallery_cell(opened, number, entry) for number, entry in enumerate(described)]
        except Exception as error:  # safetensors raises a bare Exception subclass of its own
            raise damaged(file, error) from error
        order = list(itertools.product(self.scenarios, self.backgrounds, self.models))
        return tuple(sorted((cell for cell in cells if cell.cell in order), key=lambda cell: order.index(cell.cell)))

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """``stage, key, dataset, data_seed, model, explainer, metric, seconds, cpu_seconds, peak_mb, worker, failed``.

        What each job cost that was run for this folder; empty without ``jobs.csv``. Lines that a crash cut short are
        left out.
        """
        file = self.path / "jobs.csv"
        table = with_columns(file, read_csv(file, text=JOB_COLUMNS, cut_short=True), JOB_COLUMNS)
        if table.empty:
            return pd.DataFrame(columns=list(JOB_COLUMNS))
        numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in ("seconds", "cpu_seconds", "peak_mb")}
        table = table.assign(**numbers, failed=table["failed"].map({"0": False, "1": True}))
        return table[table[[*numbers, "failed"]].notna().all(axis=1)].astype({"failed": bool}).fillna("")

    @cached_property
    def examples(self) -> dict[str, NDArray[np.float64]]:
        """Images, masks and maps by key (``lin/white/mlp/lime/example``), each ``[H, W]``; empty without the file."""
        file = self.path / "examples.safetensors"
        if not file.exists():
            return {}
        try:
            arrays = load_file(file)
        except Exception as error:  # safetensors raises a bare Exception subclass of its own
            raise damaged(file, error) from error
        return {key: np.asarray(array, dtype=np.float64).squeeze() for key, array in arrays.items()}


def read_run(run_dir: Path) -> Run:
    """Read a run folder.

    Args:
        run_dir: Folder that ``xaibench run`` wrote. Only ``scores.parquet`` must be there; of the other files, a
            missing one counts as empty.

    Raises:
        RunFolderError: If the folder or its scores are missing, or a file is damaged.
    """
    run_dir = Path(run_dir)
    if not (run_dir / "scores.parquet").is_file():
        what = "has no scores.parquet" if run_dir.is_dir() else "is not a folder"
        raise RunFolderError(f"{run_dir} {what}; expected a folder that `xaibench run` wrote. Run the suite first.")
    parts = read_json(run_dir / "parts.json")
    scores = _read_scores(run_dir / "scores.parquet")
    accuracy = read_csv(run_dir / "accuracy.csv")
    # A cell whose explanations all failed has an accuracy but no score; its names still have a place in the order.
    seen = {key: [*scores[key].cat.categories, *accuracy.get(key, [])] for key in KEYS}
    explainers = _parts(parts.get("explainers", {}), seen["explainer"])
    explainers = dict(sorted(explainers.items(), key=lambda item: item[1].control))
    models = _parts(parts.get("models", {}), seen["model"])
    metrics = _parts(parts.get("metrics", {}), seen["metric"])
    scenarios, backgrounds = _ordered(_SCENARIOS, seen["scenario"]), _ordered(_BACKGROUNDS, seen["background"])
    for key, order in zip(KEYS, (scenarios, backgrounds, models, explainers, metrics), strict=True):
        scores[key] = scores[key].cat.set_categories(list(order), ordered=True)
    suite = str(parts.get("suite") or run_dir.resolve().name)
    toml = run_dir / "suite.toml"
    return Run(
        path=run_dir,
        title=str(parts.get("title") or suite),
        suite=suite,
        citation=str(parts.get("citation") or ""),
        explainers=explainers,
        models=models,
        metrics=metrics,
        scenarios=scenarios,
        backgrounds=backgrounds,
        scores=scores,
        accuracy=accuracy,
        trainings=read_csv(run_dir / "trainings.csv"),
        failures=read_csv(run_dir / "failures.csv"),
        environment=read_json(run_dir / "environment.json"),
        suite_toml=toml.read_text(encoding="utf-8") if toml.exists() else "",
    )


def _read_scores(file: Path) -> pd.DataFrame:
    """The columns the report needs, text ones as categories: a large suite has tens of millions of rows."""
    text, whole = [*KEYS, "reason", "dataset"], ["data_seed", "seed", "sample"]
    columns = [*text, "correct", "value", "higher_is_better", *whole]
    try:
        there = pq.read_schema(file).names
        if missing := [name for name in columns if name not in there]:
            raise RunFolderError(f"{file} lacks the columns {', '.join(missing)}; it has {', '.join(there)}.")
        table = pq.read_table(file, columns=columns, read_dictionary=text)
    except RunFolderError:
        raise
    except Exception as error:  # pyarrow raises OSError, ArrowInvalid and others for a damaged file
        raise damaged(file, error) from error
    frame: pd.DataFrame = table.to_pandas()
    frame[text] = frame[text].astype("category")
    return frame.astype({"correct": bool, "value": float, "higher_is_better": bool} | dict.fromkeys(whole, np.int64))


def _gallery_cell(opened: Any, number: int, entry: Mapping[str, Any]) -> GalleryCell:
    values: dict[str, Any] = {name: opened.get_tensor(f"{number}/{name}") for name in ("images", "masks", "maps")}
    values |= {name: tuple(entry[name]) for name in ("samples", "labels", "explainers")}
    names = ("scenario", "background", "model", "dataset", "data_seed", "seed", "photographs")
    return GalleryCell(**values, **{name: entry[name] for name in names})


def _parts(described: Mapping[str, Mapping[str, Any]], seen: Iterable[str]) -> dict[str, Part]:
    """The described parts that occur, in the order described; then what occurs without a description."""
    seen = list(dict.fromkeys(seen))
    names = [name for name in described if name in seen] + [name for name in seen if name not in described]
    parts = {}
    for name in names:
        entry = described.get(name, {})
        parts[name] = Part(
            name=name,
            label=str(entry.get("label") or name),
            control=bool(entry.get("control", False)),
            citation=str(entry.get("citation") or ""),
            higher_is_better=bool(entry.get("higher_is_better", True)),
            meaning=str(entry.get("meaning") or ""),
        )
    return parts


def _ordered(known: tuple[str, ...], seen: Iterable[str]) -> tuple[str, ...]:
    """The known names that occur, in the papers' order; then the others as they come."""
    seen = list(dict.fromkeys(seen))
    return (*(name for name in known if name in seen), *(name for name in seen if name not in known))
