"""``xaibench prepare`` and ``xaibench show``."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.options import described, option
from xaibench.cli.terminal import (
    clear_errors,
    count_bar,
    echo,
    given,
    hint,
    made_folder_of,
    print_table,
)
from xaibench.core.files import data_root, name_file_in_errors
from xaibench.registry.parameters import named_parameters

if TYPE_CHECKING:
    from xaibench.data.annotated import AnnotatedSet


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A data set (see: xaibench list datasets), folder:DIR or volumes:DIR.")],
    root: Annotated[Path | None, option("root")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download it, if its license permits.")] = False,
    workers: Annotated[int | None, described("Number of processes. [default: one per CPU]", min=1)] = None,
    negatives: Annotated[str | None, option("negatives")] = None,
    window: Annotated[str | None, option("window")] = None,
) -> None:
    """Check a data set and list what is missing, download it where permitted, build its indices, and count its samples.

    Of a folder of your own, every image and mask is read.

    The command can be interrupted; the same command continues.
    """
    with clear_errors(goes_on=True):
        from xaibench.data.disk.annotated_set import DirectorySet

        part = _resolve_annotated(name)
        if part is None:
            return
        folder = part.find(root, download=download)
        echo(f"{part.info.name}: found in {folder}")
        for line, found in part.list_contents(data_root(root)):
            if not found:
                echo(hint(f"missing: {line}"))
        with count_bar("preparing") as progress:
            part.prepare(folder, workers=workers or os.cpu_count() or 1, progress=progress)
        options = given(negatives=negatives, window=window)
        print_table(_count_table(part, folder, options))
        if isinstance(part, DirectorySet):
            _read_all(part, options)
        if part.info.published:
            echo("Published: " + ", ".join(f"{count:,} {what}" for what, count in part.info.published))
        if part.info.benchmark_size:
            echo(f"In Saliency-Bench (April 2025): {part.info.benchmark_size:,} images")
        echo(f"License: {part.info.license}")


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="A data set (see: xaibench list datasets), folder:DIR, volumes:DIR or published:DIR.")
    ],
    root: Annotated[Path | None, option("root")] = None,
    out: Annotated[Path, typer.Option(help="Image file to write; the suffix sets the format.")] = Path("sheet.png"),
    count: Annotated[int, typer.Option(min=1, help="Number of samples.")] = 16,
    classes: Annotated[str | None, described("Only these classes, such as dog,cat.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the sample selection.")] = 0,
    size: Annotated[int | None, option("size")] = None,
    negatives: Annotated[str | None, option("negatives")] = None,
    window: Annotated[str | None, option("window")] = None,
) -> None:
    """Draw a sheet of images with outlined masks and class names."""
    with clear_errors():
        from xaibench import data
        from xaibench.data.annotated import AnnotatedSet
        from xaibench.plots.maps import sheet

        made_folder_of(out)
        part = data.DATASETS.resolve(name)
        parameters: dict[str, Any] = {}
        if "n_samples" in named_parameters(part):  # generate only as many as are shown
            parameters = {"n_samples": max(100, 10 * count)}
        if isinstance(part, AnnotatedSet):
            parameters = {"root": root, "classes": classes, "splits": (0.0, 0.0, 1.0), **given(size=size)}
        dataset = data.load(name, seed=seed, **parameters, **given(negatives=negatives, window=window))
        images, masks, targets = dataset.test[_balanced_indices(dataset.test.targets.tolist(), count, seed)]
        labels = [dataset.classes[target] for target in targets.tolist()]
        with name_file_in_errors(out):
            sheet(images.numpy(), masks.numpy(), labels).savefig(out)
        echo(f"{len(labels)} samples of {dataset.info.name}: {out.resolve()}")


def _resolve_annotated(name: str) -> AnnotatedSet | None:
    """Return the annotated set of this name; for a generated set, compare it with the published one and return None."""
    from xaibench.benchmarks.checksums import check_published, published_checksum
    from xaibench.data import DATASETS, load
    from xaibench.data.annotated import AnnotatedSet

    part = DATASETS.resolve(name)
    if isinstance(part, AnnotatedSet):
        return part
    echo(f"{name} is generated when it is loaded; no preparation is needed.")
    if not getattr(getattr(part, "info", None), "how_to_get", ""):
        dataset = load(name, seed=0)
        if mismatch := check_published(dataset):
            echo(mismatch, err=True)
            raise typer.Exit(1)
        if digest := published_checksum(dataset):
            echo(f"With seed 0, it is the published data set (SHA-256 {digest}).")
    return None


def _read_all(images: AnnotatedSet, options: dict[str, Any]) -> None:
    """Read every image and mask as the other commands do, and state whether the set can be split."""
    scaled = "size" in inspect.signature(images).parameters
    parameters: dict[str, Any] = {"size": 32} | options if scaled else options
    samples = images(splits=(0.0, 0.0, 1.0), **parameters).test
    batch = 16 if scaled else 1  # volumes may be large
    with count_bar("reading", unit="image") as progress:
        for start in range(0, len(samples), batch):
            samples[start : start + batch]
            progress(min(start + batch, len(samples)), len(samples))
    try:
        images(**parameters)
    except ValueError as error:
        echo(hint(f"It cannot be divided into train, validation and test: {error}"))


def _count_table(part: AnnotatedSet, folder: Path, options: dict[str, Any]) -> Any:
    import pandas as pd

    counts = part.counts(folder, **options)
    rows = [(name, annotated, samples - annotated) for name, (annotated, samples) in counts.items()]
    rows.append(("total", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    return pd.DataFrame(rows, columns=["class", "samples", "without annotation"])


def _balanced_indices(targets: list[int], count: int, seed: int) -> list[int]:
    """Return up to ``count`` indices that alternate between classes, in random order within each class."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(targets))
    turn: dict[int, int] = {}
    ranked = []
    for index in order.tolist():
        turn[targets[index]] = turn.get(targets[index], 0) + 1
        ranked.append((turn[targets[index]], targets[index], index))
    return [index for _, _, index in sorted(ranked)[:count]]
