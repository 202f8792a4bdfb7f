"""What the commands say in the terminal: tables, bars, errors in a line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.core.progress import ProgressBar, shows_bars

if TYPE_CHECKING:
    import pandas as pd
    from tqdm import tqdm


#: The option ``--root`` of all commands that read annotated sets.
Root = Annotated[
    Path | None,
    typer.Option(help="The folder below which annotated sets lie. [default: $XAIBENCH_DATA]", show_default=False),
]

#: The option ``--images`` of all commands that run a suite.
Images = Annotated[
    Path | None,
    typer.Option(help="The photographs that IMAGENET sets lie on. [default: $XAIBENCH_IMAGES]", show_default=False),
]


def hint(text: str) -> str:
    """What is to be noticed, in yellow."""
    return typer.style(text, fg="yellow")


def alarm(text: str) -> str:
    """What went wrong, in red."""
    return typer.style(text, fg="red", bold=True)


def names(text: str | None) -> list[str] | None:
    """The names in ``"a, b"``; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def print_table(table: pd.DataFrame) -> None:
    """Print a table, its head in bold; numbers with three decimals."""
    with_numbers = table.map(lambda value: f"{value:.3f}" if isinstance(value, float) else str(value))
    rows = [list(map(str, with_numbers.columns)), *with_numbers.to_numpy().tolist()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    # What knows no network steps back.
    shown = [typer.style(line, dim=True) if "(control)" in line else line for line in lines[1:]]
    typer.echo("\n".join([typer.style(lines[0], bold=True), *shown]))


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int, float], None]]:
    """One progress bar per stage of a run, for the ``progress`` argument of :func:`xaibench.runner.run`.

    A bar shows the share of the stage's work; its label counts the jobs. The time of a stage starts with the first
    result of the stage before it.
    """
    bars: dict[str, tqdm[Any]] = {}
    start = time.time()

    def show(stage: str, done: int, total: int, share: float) -> None:
        nonlocal start
        if not shows_bars():
            return
        if stage not in bars:
            from tqdm.auto import tqdm

            layout = "{desc}: {percentage:3.0f}%{postfix} |{bar}| [{elapsed}<{remaining}]"
            bars[stage] = tqdm(
                total=1.0,
                desc=f"{stage:>8}",
                position=len(bars),
                bar_format=layout,
                postfix=f"{done}/{total} jobs",
            )
            bars[stage].start_t, start = start, time.time()
        bar = bars[stage]
        bar.set_postfix_str(f"{done}/{total} jobs", refresh=False)
        bar.update(share - bar.n)
        bar.refresh()
        if done == total:
            bar.close()

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()


@contextlib.contextmanager
def count_bar(description: str, unit: str = "file", **options: Any) -> Iterator[Callable[[int, int], None]]:
    """Progress bar for a ``progress(done, total)`` callback; ``options`` are tqdm's."""
    bar: ProgressBar | None = None

    def show(done: int, total: int) -> None:
        nonlocal bar
        bar = bar or ProgressBar(description, total, unit, keep=True, options=options)
        bar.advance(done - bar.done)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


@contextlib.contextmanager
def clear_errors(*, goes_on: bool = False) -> Iterator[None]:
    """What a user can mend is said in a line, not a traceback (which ``python -X dev -m xaibench`` shows).

    Args:
        goes_on: Whether the same command goes on where it was stopped.
    """
    from xaibench.core.registry import UnknownNameError
    from xaibench.data.annotated import DataFileError, MissingDataError
    from xaibench.evaluation.map_files import MapFileError
    from xaibench.report import RunFolderError
    from xaibench.runner import ArgumentError, DataChangedError, StoreError, SuiteError

    try:
        yield
    except (UnknownNameError, SuiteError, ArgumentError, RunFolderError, MapFileError) as error:
        typer.echo(f"{alarm('Error:')} {error}", err=True)
        raise typer.Exit(2) from error
    except (StoreError, DataChangedError, MissingDataError, DataFileError) as error:
        typer.echo(f"{alarm('Error:')} {error}", err=True)
        raise typer.Exit(1) from error
    except (ValueError, TypeError, ImportError, OSError) as error:  # said by a part, by a package, or by the system
        if sys.flags.dev_mode:
            raise
        typer.echo(f"{alarm('Error:')} {_in_words(error)}", err=True)
        raise typer.Exit(1 if isinstance(error, OSError) else 2) from error
    except KeyboardInterrupt:
        typer.echo(f"\nStopped.{' The same command goes on where this one was.' if goes_on else ''}", err=True)
        raise typer.Exit(130) from None


def _in_words(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    if error.filename is None:
        return error.strerror
    return f"{os.fspath(error.filename)}: {error.strerror}. Give another path, or change what is there."


def made_folder_of(file: Path | None) -> None:
    """Make the folder in which ``file`` will be written, before anything is computed that could be lost."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
