"""``xaibench networks``: the trained networks that come with the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xaibench.cli.application import app
from xaibench.cli.completion import completer
from xaibench.cli.options import described, names
from xaibench.cli.terminal import clear_errors, echo, print_table, progress_bars

networks = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List and check the published networks.")
app.add_typer(networks, name="networks")


@networks.command(name="list")
def list_networks() -> None:
    """List the published networks by suite, data set and model, with their accuracy."""
    with clear_errors():
        from xaibench.runner.published_networks import published_records

        table = published_records()
        columns = ["suite", "dataset", "model"]
        grouped = table.groupby(columns, sort=False)["test_accuracy"]
        print_table(grouped.agg(networks="size", lowest="min", mean="mean", highest="max").reset_index())


@networks.command(name="check")
def check_networks(
    suite: Annotated[str, typer.Argument(help="A suite with published networks.", autocompletion=completer("suites"))],
    out: Annotated[Path | None, described("Folder of the two runs. [default: runs/SUITE-retrained]")] = None,
    datasets: Annotated[
        str | None,
        described("Only these data sets.", autocompletion=completer("datasets", several=True)),
    ] = None,
    models: Annotated[
        str | None,
        described("Only these models.", "--model", autocompletion=completer("models", several=True)),
    ] = None,
    workers: Annotated[
        int | None,
        described("Number of processes; 1 uses this process. [default: one per CPU]", min=1),
    ] = None,
) -> None:
    """Train the networks of a suite again, and show what changes: accuracy, and the order of the methods.

    Training on another machine gives other weights: rounding errors grow over the epochs.
    """
    with clear_errors(goes_on=True):
        from xaibench import runner
        from xaibench.scores.results import read_run
        from xaibench.scores.run_comparison import compare_trainings

        base = Path("runs") / f"{suite}-retrained" if out is None else out
        found = []
        for name, train in (("published", False), ("trained", True)):
            echo(f"{suite}, {name} networks")
            with progress_bars() as progress:
                result = runner.run(
                    suite,
                    base / name,
                    store=base / "store",
                    datasets=names(datasets),
                    models=names(models),
                    train=train,
                    progress=progress,
                    **({"engine": "serial"} if workers == 1 else {"workers": workers}),
                )
            if result.failures:
                job, error = next(iter(result.failures.items()))
                echo(f"{len(result.failures)} jobs failed; the first: {job}: {error}", err=True)
                raise typer.Exit(1)
            found.append(read_run(result.folder))
        table = compare_trainings(*found)
        print_table(table.round(3))
        accuracy = (table["accuracy_trained"] - table["accuracy"]).abs().max()
        echo(
            f"\nLargest difference of an accuracy: {accuracy:.1f} points. Kendall's tau of the methods' orders: median "
            f"{table['tau'].median():.2f}, lowest {table['tau'].min():.2f}."
        )
        table.to_csv(base / "retraining.csv", index=False)
        echo(f"All rows: {base / 'retraining.csv'}")
