"""``xaibench prepare`` and ``xaibench show``."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.terminal import Root, clear_errors, count_bar, made_folder_of, print_table
from xaibench.core.files import name_file_in_errors

if TYPE_CHECKING:
    from xaibench.data.annotated import AnnotatedSet


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="An annotated set (see: xaibench list datasets), or folder:DIR.")],
    root: Root = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch it, where the license lets us.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one a CPU]", show_default=False)
    ] = None,
) -> None:
    """Check a set, download it where that is allowed, build what is slow to build, and count what there is.

    Stop it at any time: the same command goes on.
    """
    with clear_errors(goes_on=True):
        part = _annotated(name)
        base = None if root is None else root.expanduser()
        if download:
            _download(part, base)
        folder = part.find(base)
        typer.echo(f"{part.info.name}: found in {folder}")
        with count_bar("preparing") as progress:
            part.prepare(folder, workers=workers or os.cpu_count() or 1, progress=progress)
        print_table(_counts(part, folder))
        if part.info.published:
            typer.echo("Published: " + ", ".join(f"{count:,} {what}" for what, count in part.info.published))
        if part.info.benchmark_size:
            typer.echo(f"In Saliency-Bench (April 2025): {part.info.benchmark_size:,} images")
        typer.echo(f"License: {part.info.license}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A data set (see: xaibench list datasets), folder:DIR or published:DIR.")],
    root: Root = None,
    out: Annotated[Path, typer.Option(help="The picture to write; its suffix decides the format.")] = Path("sheet.png"),
    count: Annotated[int, typer.Option(min=1, help="Samples.")] = 16,
    classes: Annotated[str | None, typer.Option(help="Only these, such as dog,cat.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Which samples.")] = 0,
    size: Annotated[int, typer.Option(min=8, help="Side of the images, of sets that are scaled.")] = 224,
) -> None:
    """Draw a sheet of a set's images, with what is important outlined and the class below, to look at."""
    with clear_errors():
        from xaibench import data
        from xaibench.data.annotated import AnnotatedSet
        from xaibench.report.figures.sample_sheets import sheet

        made_folder_of(out)
        part = data.DATASETS.resolve(name)
        parameters: dict[str, Any] = {}
        if "n_samples" in inspect.signature(part).parameters:  # of what is made, no more than is shown
            parameters = {"n_samples": max(100, 10 * count)}
        if isinstance(part, AnnotatedSet):
            parameters = {"root": root, "classes": classes, "size": size, "splits": (0.0, 0.0, 1.0)}
        dataset = data.load(name, seed=seed, **parameters)
        images, masks, targets = dataset.test[_spread(dataset.test.targets.tolist(), count, seed)]
        labels = [dataset.classes[target] for target in targets.tolist()]
        with name_file_in_errors(out):
            sheet(images.numpy(), masks.numpy(), labels).savefig(out)
        typer.echo(f"{len(labels)} samples of {dataset.info.name}: {out.resolve()}")


def _annotated(name: str) -> AnnotatedSet:
    from xaibench.data import DATASETS
    from xaibench.data.annotated import AnnotatedSet

    part = DATASETS.resolve(name)
    if not isinstance(part, AnnotatedSet):
        typer.echo(f"{name} is generated when it is loaded; there is nothing to prepare.")
        raise typer.Exit
    return part


def _download(part: AnnotatedSet, root: Path | None) -> None:
    from xaibench.data.annotated import MissingDataError, data_root

    base = data_root(root)
    if base is None:
        raise MissingDataError(
            "Download it to which folder? Give --root DIR or set the environment variable XAIBENCH_DATA."
        )
    try:
        part.find(base)
    except MissingDataError:
        base.mkdir(parents=True, exist_ok=True)
        with count_bar("downloading", unit="B", unit_scale=True) as progress:
            part.download(base, progress=progress)


def _counts(part: AnnotatedSet, folder: Path) -> Any:
    import pandas as pd

    counts = part.counts(folder)
    rows = [(name, annotated, samples - annotated) for name, (annotated, samples) in counts.items()]
    rows.append(("total", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    return pd.DataFrame(rows, columns=["class", "samples", "without annotation"])


def _spread(targets: list[int], count: int, seed: int) -> list[int]:
    """Up to ``count`` indices, the classes taking turns, each in random order."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(targets))
    turn: dict[int, int] = {}
    ranked = []
    for index in order.tolist():
        turn[targets[index]] = turn.get(targets[index], 0) + 1
        ranked.append((turn[targets[index]], targets[index], index))
    return [index for _, _, index in sorted(ranked)[:count]]
