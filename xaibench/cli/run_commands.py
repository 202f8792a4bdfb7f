"""The commands ``xaibench run``, ``report`` and ``compare``."""

from __future__ import annotations

import contextlib
import enum
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xaibench._version import __version__
from xaibench.cli.application import app
from xaibench.cli.options import described, takes_request
from xaibench.cli.terminal import (
    alarm,
    clear_errors,
    echo,
    hint,
    made_folder_of,
    print_table,
    progress_bars,
)
from xaibench.core.files import name_file_in_errors
from xaibench.core.messages import listed
from xaibench.core.process_settings import collect_rarely
from xaibench.core.progress import format_duration
from xaibench.core.truth_kinds import question_of
from xaibench.runner.request import RunRequest

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from xaibench.runner import Estimate


class EngineChoice(enum.StrEnum):
    """The engines, which run the jobs."""

    serial = enum.auto()
    processes = enum.auto()
    ray = enum.auto()


@app.command()
@takes_request
def run(
    request: RunRequest,
    engine: Annotated[
        EngineChoice, typer.Option(help="Run jobs in parallel processes, one after the other, or on a Ray cluster.")
    ] = EngineChoice.processes,
    address: Annotated[str | None, described("Address of the Ray cluster: auto, or HOST:PORT.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Estimate the cost, and stop.")] = False,
) -> None:
    """Run a suite: generate data, train, explain, score, report. A stopped run continues with the same command."""
    # Not while this process runs the jobs, whose large tensors could wait for a collection.
    garbage = collect_rarely() if engine != "serial" else contextlib.nullcontext()
    with clear_errors(goes_on=True), garbage:
        if engine == "processes" and not plan:
            from xaibench.tensors.workers import start_fork_server

            start_fork_server()
        from xaibench import runner

        if plan:
            _print_cost(runner.estimate(request))
            return
        echo(f"xaibench {__version__}: {request.suite}{' --quick' if request.quick else ''}")
        with progress_bars() as progress:
            result = runner.run(request, engine=str(engine), progress=progress, address=address)
        for name, advice in result.missing.items():
            echo(f"{hint(f'Left out: {name}.')}\n{textwrap.indent(advice, '  ')}\n")
        for line in (*result.beside, *(f"{name}: {said}" for name, said in result.notes.items())):
            echo(hint(line))
        for why in dict.fromkeys(result.inapplicable.values()):
            jobs = [job for job, said in result.inapplicable.items() if said == why]
            echo(f"{hint('Not applicable:')} {listed(jobs, 3)}: {why}")
        echo(f"{result.jobs} jobs, {format_duration(result.seconds)}; writing the report")
    with _report_helper(engine) as helper:
        _write_report(result.folder, helper=helper)
    if result.failures:
        echo(alarm(f"\n{len(result.failures)} jobs failed; the same command tries them again:"), err=True)
        for job, error in list(result.failures.items())[:20]:
            echo(f"  {job}: {error}", err=True)
        if len(result.failures) > 20:
            echo(f"  ... all in {result.folder / 'failures.csv'}", err=True)
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(help="A run folder, or its address, such as s3://bucket/run.")],
    out: Annotated[Path | None, described("Write to this folder. [default: the run folder]")] = None,
) -> None:
    """Write the tables, figures and page of a run folder again."""
    _write_report(folder, out)


@app.command()
def compare(
    folders: Annotated[
        list[str], typer.Argument(help="Run folders or their addresses; each is compared with the first.")
    ],
    out: Annotated[Path | None, described("Write all rows to this CSV file.")] = None,
) -> None:
    """Compare runs, and test the differences of their means (at 5 %, corrected for all comparisons).

    Scores of the same image are paired. If the runs have different images, the test is unpaired.
    """
    with clear_errors():
        from xaibench.runfolder.sanitize import quote_formula
        from xaibench.scores.run_comparison import compare_runs

        made_folder_of(out)
        table = compare_runs(folders)
        moved = table[table["better"].notna()]
        for run, rows in table.groupby("run", sort=False):
            mine = moved[moved["run"] == run]
            better = int(mine["better"].sum())
            echo(f"{run}: of {len(rows)} means, {better} better and {len(mine) - better} worse than {folders[0]}")
            if unpaired := sorted(set(rows[~rows["paired"]]["dataset"])):
                echo(f"  unpaired, as the images differ or are unknown: {', '.join(unpaired)}")
        if len(moved):
            echo()
            print_table(moved.drop(columns=["run", "p"] if len(folders) == 2 else ["p"]).head(40))
        if len(moved) > 40:
            echo(f"... {len(moved) - 40} more; --out FILE.csv has all.")
        if out is not None:
            with name_file_in_errors(out):
                table.map(quote_formula).to_csv(out, index=False)


def _print_cost(cost: Estimate) -> None:
    echo(cost.stages.round(1).to_string())
    echo(
        f"Roughly {format_duration(cost.seconds)} for the passes on {cost.workers} workers, without metrics; "
        f"{cost.stages['disk_mb'].sum() / 1024:.1f} GiB of disk."
    )
    if cost.unknown:
        echo(f"Explainers of unknown cost: {', '.join(cost.unknown)} ({sum(cost.unknown.values())} jobs).")


def _report_helper(engine: EngineChoice) -> AbstractContextManager[Executor | None]:
    """Return a context manager that gives a second process for the report, if that is quick to start."""
    if engine != "processes":
        return contextlib.nullcontext()
    from xaibench.runner.engines import helper_process

    return helper_process()


def _write_report(folder: str | Path, out: Path | None = None, helper: Executor | None = None) -> None:
    """Write the report, and print the ranking and the path of the page."""
    with clear_errors(), collect_rarely():
        from xaibench.report.page.write import make_report

        written = make_report(folder, out, helper)
        if written.warning:
            echo(alarm(f"\n{written.warning}"))
        for truth, table in written.ranked.items():
            echo(f"\n{question_of(truth)}" if truth else "")
            print_table(table)
        if written.notes:
            echo("\n" + "\n".join(written.notes))
        echo()
        print_table(written.best)
        echo(f"\nReport page: {typer.style(written.page.resolve(), bold=True)}")
