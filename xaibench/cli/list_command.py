"""``xaibench list``."""

from __future__ import annotations

import contextlib
import enum
import importlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from xaibench.cli.application import app
from xaibench.cli.terminal import Root
from xaibench.core.part_info import DatasetInfo, MetricInfo


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
    root: Root = None,
) -> None:
    """List the data sets, models, explainers, metrics and suites that a suite or a call can name.

    For data sets and metrics, the kind of truth is shown, and for annotated data sets whether they are available.
    """
    from xaibench.runner import SUITES, load_suite

    for part in PartKind if kind is None else [kind]:
        if part is PartKind.suites:
            rows = [(name, load_suite(name)[0].title) for name in SUITES]
        else:
            registry = getattr(importlib.import_module(f"xaibench.{_PACKAGES[part]}"), part.value.upper())
            rows = [(name, _label(registry.resolve(name), root)) for name in registry]
        width = max(len(name) for name, _ in rows)
        typer.echo(typer.style(part.value, bold=True))
        for name, label in rows:
            typer.echo(f"  {name:<{width}}  {label}".rstrip())


_PACKAGES = {
    PartKind.datasets: "data",
    PartKind.models: "models",
    PartKind.explainers: "explainers",
    PartKind.metrics: "metrics",
}


def _label(part: object, root: Path | None) -> str:
    info = getattr(part, "info", None)
    if isinstance(info, MetricInfo):
        return f"{info.label}; truth: {info.own_truth or 'that of the masks'}"
    if not isinstance(info, DatasetInfo):
        return str(getattr(info, "label", ""))
    shape = "×".join(map(str, info.image_shape))
    chosen = getattr(part, "default_classes", None) or info.classes
    classes = " or ".join(chosen) if len(chosen) < 4 else f"{len(chosen)} classes"
    return f"{classes}, {shape}; truth: {info.truth}; {_readiness(part, root)}"


def _readiness(part: object, root: Path | None) -> str:
    from xaibench.data.annotated import AnnotatedSet, DataFileError, MissingDataError

    if not isinstance(part, AnnotatedSet):
        return "generated"
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
