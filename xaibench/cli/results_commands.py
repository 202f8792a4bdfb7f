"""``xaibench results`` and ``xaibench leaderboard``: fill, check, verify and show a results repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xaibench.cli.application import app
from xaibench.cli.options import described, names, option
from xaibench.cli.terminal import alarm, clear_errors, echo, hint, progress_bars

results = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, verify and add results of methods.")
app.add_typer(results, name="results")


@results.command(name="add")
def add_results(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Results repository.")] = Path("results"),
    methods: Annotated[str | None, described("Only these explainers. [default: all]")] = None,
) -> None:
    """Write a result per explainer of a run: its scores, and result.json, whose authors and license you fill in."""
    with clear_errors():
        from xaibench.leaderboard.run_splitting import split_run

        for folder in split_run(run, out, methods=names(methods)):
            echo(folder)


@results.command(name="check")
def check_results(
    folder: Annotated[str, typer.Argument(help="A results repository, one result in it, or hf://OWNER/NAME.")],
) -> None:
    """Check that results are valid and have exactly the rows of their suite, without running anything."""
    with clear_errors():
        from xaibench.leaderboard.checks import check
        from xaibench.leaderboard.repository import find_results, open_repository

        refused = 0
        with open_repository(folder) as repository:
            for result in find_results(repository):
                problems = check(result)
                refused += bool(problems)
                echo(f"{alarm('refused') if problems else 'ok':7}  {'/'.join(result.absolute().parts[-2:])}")
                for problem in problems:
                    echo(f"         {problem}")
        if refused:
            raise typer.Exit(1)


@results.command(name="verify")
def verify_results(
    folder: Annotated[Path, typer.Argument(help="A results repository, or one result.")],
    explainers: Annotated[
        str | None,
        described("Methods outside the library that may be executed, such as mine.py:squared; install them first."),
    ] = None,
    datasets: Annotated[
        str | None,
        described("Verify only these data sets; nothing is recorded then."),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Only results that are not in verified.csv.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write the outcome to verified.csv.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes; 1 uses this process. [default: one per CPU]"),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, auto, cuda, ...; results from a CPU are bit-identical on a CPU only.")
    ] = "cpu",
    root: Annotated[Path | None, option("root")] = None,
    work: Annotated[
        Path | None,
        described("Keep the runs in this folder; later runs reuse its networks."),
    ] = None,
) -> None:
    """Run methods again and compare the scores. THIS EXECUTES THE METHODS, with your rights.

    Prints one row of verified.csv per result.
    """
    with clear_errors(goes_on=work is not None):
        import tempfile

        from xaibench.leaderboard.repository import describe_error, find_results, find_verification, record_verification
        from xaibench.leaderboard.verification import verify

        failed = 0
        with tempfile.TemporaryDirectory(prefix="xaibench-verify-") as temporary:
            base = work or Path(temporary)
            for result in find_results(folder):
                name = "/".join(result.absolute().parts[-2:])
                try:
                    if new and find_verification(result) is not None:
                        continue
                    with progress_bars() as progress:
                        outcome = verify(
                            result,
                            explainers=names(explainers) or (),
                            datasets=names(datasets),
                            work=base / name,
                            store=base / "store",
                            device=device,
                            root=root,
                            progress=progress,
                            **({"engine": "serial"} if workers == 1 else {"workers": workers}),
                        )
                except Exception as error:  # go on with the other results
                    failed += 1
                    echo(f"{alarm('refused')}  {name}\n         {describe_error(error)}")
                    continue
                bad = outcome.verdict == "differs"
                failed += bad
                echo(f"{alarm(outcome.verdict) if bad else outcome.verdict}  {name}")
                if outcome.largest_difference:
                    echo(f"         largest difference {outcome.largest_difference:g} ({outcome.where})")
                if outcome.ignores:
                    echo(f"         the maps do not depend on the {' and the '.join(outcome.ignores)}")
                echo(f"         {outcome.to_csv()}")
                if record and datasets is None:
                    record_verification(result.absolute().parent.parent, outcome)
        if failed:
            raise typer.Exit(1)


@app.command(name="leaderboard")
def write_leaderboard(
    folder: Annotated[
        str,
        typer.Argument(
            help="Results repository: a folder with METHOD/SUITE@VERSION, or hf://OWNER/NAME.", metavar="DIR"
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the site: new, or an existing site, which is replaced.")] = Path(
        "site"
    ),
    title: Annotated[str, typer.Option(help="Title of the site.")] = "Saliency maps, compared",
    first: Annotated[str, described("Suite of the first page. [default: the one with most methods]")] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if a result cannot be shown, instead of leaving it out.")
    ] = False,
) -> None:
    """Write the leaderboard of a results repository as a static site, which needs no server."""
    with clear_errors():
        from xaibench import leaderboard

        built = leaderboard.write_site(folder, out, strict=strict, title=title, first=first, progress=echo)
    for one in built.left_out:
        echo(f"{hint(f'Left out: {one.name}.')} {one.reason}", err=True)
    suites = f"{built.suites} suite{'s' * (built.suites != 1)}"
    echo(f"{built.methods} method{'s' * (built.methods != 1)} on {suites}: {built.page}")
