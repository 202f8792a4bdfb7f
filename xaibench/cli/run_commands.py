"""``xaibench run`` and ``xaibench report``."""

from __future__ import annotations

import enum
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench._version import __version__
from xaibench.cli.application import app
from xaibench.cli.completion import completer
from xaibench.cli.terminal import (
    Images,
    Root,
    alarm,
    clear_errors,
    hint,
    made_folder_of,
    names,
    print_table,
    progress_bars,
)
from xaibench.core.atomic_files import written_to
from xaibench.core.messages import listed
from xaibench.core.progress import format_duration
from xaibench.core.truths import question_of

if TYPE_CHECKING:
    from xaibench.runner import Estimate


class EngineChoice(enum.StrEnum):
    """Where jobs run."""

    serial = enum.auto()
    processes = enum.auto()
    ray = enum.auto()


@app.command()
def run(
    suite: Annotated[
        str,
        typer.Argument(
            help="A built-in suite (see: xaibench list suites), or a TOML file.", autocompletion=completer("suites")
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The run folder. [default: runs/SUITE]", show_default=False)] = None,
    engine: Annotated[EngineChoice, typer.Option(help="Jobs side by side, or one after the other.")] = (
        EngineChoice.processes
    ),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one a CPU]", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A small form of the suite, to try it in a minute.")] = False,
    root: Root = None,
    images: Images = None,
    datasets: Annotated[
        str | None,
        typer.Option(
            help="Only these sets, such as pet,pascal.",
            show_default=False,
            autocompletion=completer("datasets", several=True),
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="These, as the suite has them or instead of its own: vit,resnet50; mosaic and photographs need one.",
            show_default=False,
            autocompletion=completer("models", several=True),
        ),
    ] = None,
    explainers: Annotated[
        str | None,
        typer.Option(
            help="Instead of the suite's, beside its controls: mine:squared,gradcam; yours are module:name.",
            show_default=False,
            autocompletion=completer("explainers", several=True),
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Instead of the suite's, such as iou,hit.",
            show_default=False,
            autocompletion=completer("metrics", several=True),
        ),
    ] = None,
    samples: Annotated[
        str | None, typer.Option(help="The first so many test samples of each set, or all.", show_default=False)
    ] = None,
    finetune: Annotated[
        str | None, typer.Option(help="head or all, of suites with pretrained networks.", show_default=False)
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="How maps are cut by IoU and its kin: scaled or published.", show_default=False)
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Rank them among the suite's published scores, not run again: published.", show_default=False
        ),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="Where results lie: a folder or a URL. [default: OUT/store]", show_default=False)
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="The Ray cluster: auto, or HOST:PORT.", show_default=False)
    ] = None,
    device_workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the GPUs.", show_default=False)
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it will cost, and stop.")] = False,
) -> None:
    """Run a suite: generate, train, explain, score, report. Stop it at any time: the same command goes on."""
    with clear_errors(goes_on=True):
        from xaibench import runner

        request = runner.RunRequest(
            suite,
            out,
            quick=quick,
            store=store,
            workers=workers,
            device=device,
            device_workers=device_workers,
            root=root,
            images=images,
            datasets=names(datasets),
            models=names(model),
            explainers=names(explainers),
            metrics=names(metrics),
            samples=_count(samples),
            finetune=finetune,
            protocol=protocol,
            against=against,
        )
        if plan:
            _say_cost(runner.estimate(request, say=typer.echo))
            return
        typer.echo(f"xaibench {__version__}: {suite}{' --quick' if quick else ''}")
        with progress_bars() as progress:
            result = runner.run(request, engine=str(engine), progress=progress, address=address)
        for name, advice in result.missing.items():
            typer.echo(f"{hint(f'Left out: {name}.')}\n{textwrap.indent(advice, '  ')}\n")
        for line in (*result.beside, *(f"{name}: {said}" for name, said in result.notes.items())):
            typer.echo(hint(line))
        for why in dict.fromkeys(result.inapplicable.values()):
            jobs = [job for job, said in result.inapplicable.items() if said == why]
            typer.echo(f"{hint('Not applicable:')} {listed(jobs, 3)}: {why}")
        typer.echo(f"{result.jobs} jobs, {format_duration(result.seconds)}; writing the report")
    _finish(result.folder)
    if result.failures:
        typer.echo(alarm(f"\n{len(result.failures)} jobs failed; the same command tries them again:"), err=True)
        for job, error in list(result.failures.items())[:20]:
            typer.echo(f"  {job}: {error}", err=True)
        if len(result.failures) > 20:
            typer.echo(f"  ... all in {result.folder / 'failures.csv'}", err=True)
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(help="A run folder, or its address, such as s3://bucket/run.")],
    out: Annotated[
        Path | None, typer.Option(help="Write to this folder. [default: the run folder]", show_default=False)
    ] = None,
) -> None:
    """Write the tables, figures and page of a run folder anew."""
    _finish(folder, out)


@app.command()
def compare(
    folders: Annotated[
        list[str], typer.Argument(help="Run folders or their addresses; each is compared with the first.")
    ],
    out: Annotated[Path | None, typer.Option(help="Write all rows to this CSV file.", show_default=False)] = None,
) -> None:
    """Put runs side by side: what moved, and whether it is more than chance (5 %, corrected for all comparisons).

    Scores of the same image are paired; where the runs' images differ, all of one are compared with all of the other.
    """
    with clear_errors():
        from xaibench.report.numbers.run_comparison import compare_runs

        made_folder_of(out)
        table = compare_runs(folders)
        moved = table[table["better"].notna()]
        for run, rows in table.groupby("run", sort=False):
            mine = moved[moved["run"] == run]
            better = int(mine["better"].sum())
            typer.echo(f"{run}: of {len(rows)} means, {better} better and {len(mine) - better} worse than {folders[0]}")
            if unpaired := sorted(set(rows[~rows["paired"]]["dataset"])):
                typer.echo(f"  without pairs, as the images differ or are not said: {', '.join(unpaired)}")
        if len(moved):
            typer.echo()
            print_table(moved.drop(columns=["run", "p"] if len(folders) == 2 else ["p"]).head(40))
        if len(moved) > 40:
            typer.echo(f"... {len(moved) - 40} more; --out FILE.csv has all.")
        if out is not None:
            with written_to(out):
                table.to_csv(out, index=False)


def _say_cost(found: Estimate) -> None:
    table = found.stages.assign(
        **{name: found.stages[name].map(format_duration) for name in ("work_seconds", "longest_seconds")}
    )
    typer.echo(table.rename(columns={"work_seconds": "work", "longest_seconds": "longest job"}).round(1).to_string())
    beyond = f", and what {found.unmeasured} jobs of unknown cost take" if found.unmeasured else ""
    typer.echo(
        f"{format_duration(found.seconds)}{beyond}; on {found.workers} workers, {found.memory_mb / 1024:.1f} GiB of "
        f"memory at most, {found.disk_mb / 1024:.1f} GiB of disk"
    )


def _count(text: str | None) -> Any:
    """A number where it is one; the runner refuses other words than ``all``."""
    return int(text) if text is not None and text.isdecimal() else text


def _finish(folder: str | Path, out: Path | None = None) -> None:
    """Write the report, and say in the terminal what came out and where the page is."""
    with clear_errors():
        from xaibench.report import best_methods, ranked_methods, write_report

        page = write_report(folder, out)
        ranked = ranked_methods(folder)
        for truth, table in ranked.items():
            typer.echo(f"\n{question_of(truth)}" if truth else "")
            print_table(table)
        typer.echo()
        print_table(best_methods(folder))
        typer.echo(f"\nReport page: {typer.style(page.resolve(), bold=True)}")
