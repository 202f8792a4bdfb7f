"""Terminal output of the commands: tables, progress bars, one-line errors."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from xaibench.core.messages import printable
from xaibench.core.process_settings import equal_warnings_once
from xaibench.core.progress import ProgressBar, shows_bars

if TYPE_CHECKING:
    import pandas as pd
    from tqdm import tqdm


#: Bold, dim, red and yellow text, and their end.
_STYLES = re.compile(r"(\x1b\[(?:0|1|2|31|33)m)")


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a text; characters that are not printed are replaced by their codes, except those of our own styles.

    Args:
        text: The text, which may contain names of files and other text of strangers.
        err: Print to stderr.
    """
    pieces = _STYLES.split(str(text))
    typer.echo("".join(piece if i % 2 else printable(piece, "\n") for i, piece in enumerate(pieces)), err=err)


def hint(text: str) -> str:
    """Style text as a hint, in yellow."""
    return typer.style(text, fg="yellow")


def alarm(text: str) -> str:
    """Style text as an error, in red."""
    return typer.style(text, fg="red", bold=True)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def print_table(table: pd.DataFrame) -> None:
    """Print a table with a bold header, and numbers with three decimals."""
    with_numbers = table.map(lambda value: f"{value:.3f}" if isinstance(value, float) else str(value))
    rows = [list(map(str, with_numbers.columns)), *with_numbers.to_numpy().tolist()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    # Controls are dimmed.
    shown = [typer.style(line, dim=True) if "(control)" in line else line for line in lines[1:]]
    echo("\n".join([typer.style(lines[0], bold=True), *shown]))


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show one progress bar per stage; yield a ``progress`` callback of :func:`xaibench.runner.run`."""
    with contextlib.ExitStack() as open_bars:
        bars: dict[str, tqdm[Any]] = {}

        def show(stage: str, done: int, total: int) -> None:
            if not shows_bars():
                return
            from tqdm.auto import tqdm

            if stage not in bars:
                bars[stage] = open_bars.enter_context(
                    tqdm(total=total, desc=f"{stage:>8}", unit="job", position=len(bars))
                )
            bars[stage].update(done - bars[stage].n)

        yield show


@contextlib.contextmanager
def count_bar(description: str, unit: str = "file", **options: Any) -> Iterator[Callable[[int, int], None]]:
    """Show one progress bar for ``progress(done, total)`` from its first call; ``options`` are passed to tqdm."""
    bar: ProgressBar | None = None
    with contextlib.ExitStack() as stack:

        def show(done: int, total: int) -> None:
            nonlocal bar
            bar = bar or stack.enter_context(ProgressBar(description, total, unit, keep=True, options=options))
            bar.advance(done - bar.done)

        yield show


@contextlib.contextmanager
def clear_errors(*, goes_on: bool = False) -> Iterator[None]:
    """Print errors that a user can fix as one line instead of a traceback (``python -X dev -m xaibench`` shows it).

    Args:
        goes_on: Whether an interrupted command can be continued by running it again.
    """
    try:
        with equal_warnings_once():
            yield
    except KeyboardInterrupt:
        echo(f"\nStopped.{' Run the same command again to continue.' if goes_on else ''}", err=True)
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):  # raised by a command, with what to print
        raise
    except Exception as error:
        known = _exit_code(error)
        if known is None and (
            sys.flags.dev_mode or not isinstance(error, (ValueError, TypeError, ImportError, OSError))
        ):
            raise
        echo(f"{alarm('Error:')} {error if known is not None else _error_text(error)}", err=True)
        raise typer.Exit(known or (1 if isinstance(error, OSError) else 2)) from error


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an error of the library; None for errors of a part, a package, or the system."""
    # Imported if there is an error: they take two seconds, in which a command can start its processes.
    from xaibench.data.annotated import DataFileError, MissingDataError
    from xaibench.evaluation.map_files import MapFileError
    from xaibench.registry.table import UnknownNameError
    from xaibench.runfolder.schema import RunFolderError
    from xaibench.runner import ArgumentError, DataChangedError, StoreError, SuiteError
    from xaibench.runner.published_networks import NetworkFileError

    if isinstance(error, (UnknownNameError, SuiteError, ArgumentError, RunFolderError, MapFileError)):
        return 2
    if isinstance(error, (StoreError, DataChangedError, MissingDataError, DataFileError, NetworkFileError)):
        return 1
    return None


def _error_text(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    if error.filename is None:
        return error.strerror
    return f"{os.fspath(error.filename)}: {error.strerror}. Give another path, or change what is there."


def made_folder_of(file: Path | None) -> None:
    """Create the parent folder of ``file`` before anything is computed that could be lost."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
