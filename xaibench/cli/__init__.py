"""The command line: ``xaibench run``, ``report`` and ``list``.

Exit codes: 0 all went well, 1 jobs failed (they are listed) or the disk gave out, 2 bad arguments.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Never

import typer

from xaibench._version import __version__

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Is this saliency map right? Benchmarks for visual explanations of image classifiers.",
    epilog="Start with: xaibench run xai-tris-8x8 --quick",
)


class Kind(enum.StrEnum):
    """What can be listed."""

    datasets = enum.auto()
    models = enum.auto()
    explainers = enum.auto()
    metrics = enum.auto()
    suites = enum.auto()


class EngineChoice(enum.StrEnum):
    """Where jobs run."""

    serial = enum.auto()
    processes = enum.auto()


def _version(value: bool) -> None:
    if value:
        typer.echo(f"xaibench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="A built-in suite (see: xaibench list suites), or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="The run folder. [default: runs/SUITE]", show_default=False)] = None,
    engine: Annotated[EngineChoice, typer.Option(help="Jobs side by side, or one after the other.")] = (
        EngineChoice.processes
    ),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one a CPU]", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A small form of the suite, to try it in a minute.")] = False,
) -> None:
    """Run a suite: generate, train, explain, score, report. Stop it at any time: the same command goes on."""
    with _clear_errors():
        from xaibench import runner

        typer.echo(f"xaibench {__version__}: {suite}{' --quick' if quick else ''}")
        with _progress() as progress:
            result = runner.run(
                suite, out, engine=str(engine), workers=workers, device=device, quick=quick, progress=progress
            )
        typer.echo(f"{result.jobs} jobs, {_duration(result.seconds)}; writing the report")
    _finish(result.folder)
    if result.failures:
        typer.echo(f"\n{len(result.failures)} jobs failed; the same command tries them again:", err=True)
        for job, error in list(result.failures.items())[:20]:
            typer.echo(f"  {job}: {error}", err=True)
        if len(result.failures) > 20:
            typer.echo(f"  ... all in {result.folder / 'failures.csv'}", err=True)
        raise typer.Exit(1)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Write the tables, figures and page of a run folder anew."""
    _finish(folder)


@app.command(name="list")
def list_parts(kind: Annotated[Kind | None, typer.Argument(help="What to list; all when left out.")] = None) -> None:
    """List the data sets, models, explainers, metrics and suites that a suite or a call can name."""
    from xaibench.runner import SUITES, load_suite

    for part in Kind if kind is None else [kind]:
        if part is Kind.suites:
            rows = [(name, load_suite(name)[0].title) for name in SUITES]
        else:
            registry = getattr(importlib.import_module(f"xaibench.{_PACKAGE[part]}"), part.value.upper())
            rows = [(name, _label(registry.resolve(name))) for name in registry]
        width = max(len(name) for name, _ in rows)
        typer.echo(typer.style(part.value, bold=True))
        for name, label in rows:
            typer.echo(f"  {name:<{width}}  {label}".rstrip())


_PACKAGE = {Kind.datasets: "data", Kind.models: "models", Kind.explainers: "explainers", Kind.metrics: "metrics"}


def _label(part: object) -> str:
    info = getattr(part, "info", None)
    if hasattr(info, "classes"):
        return " or ".join(getattr(info, "classes", ())) + f", {'×'.join(map(str, info.image_shape))}"  # type: ignore[union-attr]
    return str(getattr(info, "label", ""))


def _finish(folder: Path) -> None:
    """Write the report, and say in the terminal what came out and where the page is."""
    with _clear_errors():
        from xaibench.report import best_methods, write_report

        page = write_report(folder)
        typer.echo(_table(best_methods(folder)))
        typer.echo(f"\nReport page: {page.resolve()}")


def _table(table: pd.DataFrame) -> str:
    with_numbers = table.map(lambda value: f"{value:.3f}" if isinstance(value, float) else str(value))
    rows = [list(map(str, with_numbers.columns)), *with_numbers.to_numpy().tolist()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n" + "\n".join([typer.style(lines[0], bold=True), *lines[1:]])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """One bar a stage, on a terminal; a line now and then elsewhere."""
    from tqdm import tqdm

    bars: dict[str, tqdm[Never]] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            interval = 0.1 if sys.stderr.isatty() else 15.0
            bars[stage] = tqdm(total=total, desc=f"{stage:>8}", position=len(bars), unit="job", mininterval=interval)
        bars[stage].update(done - bars[stage].n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """What a user can mend is said in a line, not a traceback."""
    from xaibench.registry import UnknownNameError
    from xaibench.report import RunFolderError
    from xaibench.runner import ArgumentError, StoreError, SuiteError

    try:
        yield
    except (UnknownNameError, SuiteError, ArgumentError, RunFolderError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    except StoreError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.echo("\nStopped. The same command goes on where this one was.", err=True)
        raise typer.Exit(130) from None


def main() -> None:
    """Entry point of the ``xaibench`` command."""
    app()
