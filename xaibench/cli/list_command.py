"""``xaibench list``."""

from __future__ import annotations

import contextlib
import enum
import importlib
import json
import logging
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from xaibench.cli.application import app
from xaibench.cli.options import option
from xaibench.cli.terminal import echo
from xaibench.core.files import data_root
from xaibench.registry.info import DatasetInfo, MetricInfo


class PartKind(enum.StrEnum):
    """Kinds of parts that can be listed."""

    datasets = enum.auto()
    models = enum.auto()
    explainers = enum.auto()
    metrics = enum.auto()
    suites = enum.auto()


@app.command(name="list")
def list_parts(
    kind: Annotated[PartKind | None, typer.Argument(help="Kind of parts to list. [default: all]")] = None,
    root: Annotated[Path | None, option("root")] = None,
) -> None:
    """List the data sets, models, explainers, metrics and suites that a suite or a call can name.

    For data sets and metrics, the kind of truth is shown, and for annotated data sets whether they are available.
    """
    parts = json.loads(resources.files("xaibench.cli").joinpath(PARTS_FILE).read_text(encoding="utf-8"))
    for part in PartKind if kind is None else [kind]:
        rows = [(name, _with_readiness(name, label, part, root)) for name, label in parts[part].items()]
        width = max(len(name) for name, _ in rows)
        echo(typer.style(part.value, bold=True))
        for name, label in rows:
            echo(f"  {name:<{width}}  {label}".rstrip())


#: The parts as ``describe_parts`` returns them, written by ``python docs/generate``: importing all parts takes seconds.
PARTS_FILE = "names.json"

#: End of the label of an annotated data set, to which :func:`_readiness` is appended.
_ANNOTATED = "; "

_PACKAGES = {
    PartKind.datasets: "data",
    PartKind.models: "models",
    PartKind.explainers: "explainers",
    PartKind.metrics: "metrics",
}


def describe_parts() -> dict[str, dict[str, str]]:
    """Return the label of each registered part and suite, by kind and name."""
    from xaibench.runner import SUITES, load_suite

    found = {}
    for kind, package in _PACKAGES.items():
        registry = getattr(importlib.import_module(f"xaibench.{package}"), kind.value.upper())
        found[kind.value] = {name: _label(registry.resolve(name)) for name in registry}
    return found | {PartKind.suites.value: {name: load_suite(name)[0].title for name in SUITES}}


def _label(part: object) -> str:
    info = getattr(part, "info", None)
    if isinstance(info, MetricInfo):
        return f"{info.label}; truth: {info.own_truth or 'that of the masks'}"
    if not isinstance(info, DatasetInfo):
        return str(getattr(info, "label", ""))
    from xaibench.data.annotated import AnnotatedSet

    shape = "×".join(map(str, info.image_shape))
    chosen = getattr(part, "default_classes", None) or info.classes
    classes = " or ".join(chosen) if len(chosen) < 4 else f"{len(chosen)} classes"
    return f"{classes}, {shape}; truth: {info.truth}; {'' if isinstance(part, AnnotatedSet) else 'generated'}"


def _with_readiness(name: str, label: str, kind: PartKind, root: Path | None) -> str:
    if kind is not PartKind.datasets or not label.endswith(_ANNOTATED):
        return label
    if not data_root(root).is_dir():
        return f"{label}missing: xaibench prepare {name}"
    from xaibench.data import DATASETS

    return label + _readiness(DATASETS.resolve(name), root)


def _readiness(part: object, root: Path | None) -> str:
    from xaibench.data.annotated import AnnotatedSet, DataFileError, MissingDataError

    assert isinstance(part, AnnotatedSet)
    name = part.info.name
    with _silence_logger():
        try:
            folder = part.find(root)
        except MissingDataError:
            return f"missing: xaibench prepare {name}"
        try:
            ready = part.is_ready(folder)
        except (MissingDataError, DataFileError, ImportError):
            ready = False
    if ready is None:
        return f"not prepared: xaibench prepare {name}"
    return f"ready in {folder}" if ready else f"no annotated image in {folder}: xaibench prepare {name}"


@contextlib.contextmanager
def _silence_logger() -> Iterator[None]:
    """Silence messages on single files, which ``prepare`` shows."""
    logger = logging.getLogger("xaibench")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
