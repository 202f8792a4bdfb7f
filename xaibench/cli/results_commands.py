"""``xaibench results``: a repository of results is filled, checked, verified, and given fresh seeds."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.terminal import Images, Root, alarm, clear_errors, hint, names, progress_bars

results = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Results of methods: check, verify, add.")
app.add_typer(results, name="results")

_Seconds = Annotated[float, typer.Option(min=1, help="The longest that a method may take for one batch of images.")]
_Memory = Annotated[float, typer.Option(min=0.5, help="The most memory that a method may hold, in GiB.")]
_Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes; 1 is none beside this. [default: one a CPU]"),
]
_Device = Annotated[
    str, typer.Option(help="cpu, auto, cuda, ...; what was made on a CPU is equal to the bit on a CPU alone.")
]
_Work = Annotated[
    Path | None,
    typer.Option(help="Keep the run here; the next one takes its networks over.", show_default=False),
]


_Install = Annotated[
    bool,
    typer.Option("--install", help="Get the packages that a method needs, as wheels, for its sandbox alone."),
]


def _engine(workers: int | None) -> dict[str, Any]:
    """One worker is this process, which is warm after the first of many methods."""
    return {"engine": "serial"} if workers == 1 else {"workers": workers}


@results.command()
def check(
    folder: Annotated[str, typer.Argument(help="A results repository, or one result in it; or hf://OWNER/NAME.")],
) -> None:
    """See without running anything whether results are whole, unchanged, and could be what they say they are."""
    with clear_errors():
        from xaibench.leaderboard.checks import check
        from xaibench.leaderboard.manifest import find_results
        from xaibench.leaderboard.repository import open_repository

        bad = 0
        with open_repository(folder) as repository:
            for place in find_results(repository):
                faults = check(place)
                earlier = bool(faults) and not check(place, earlier=True)
                bad += bool(faults) and not earlier
                said = "earlier" if earlier else alarm("refused") if faults else "ok"
                typer.echo(f"{said:7}  {str(place).replace(str(repository), folder.rstrip('/'), 1)}")
                for fault in faults:
                    typer.echo(f"         {fault}")
        if bad:
            raise typer.Exit(1)


@results.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A results repository, or one result.")],
    seconds: _Seconds = 600,
    memory: _Memory = 8,
    bound: Annotated[
        float, typer.Option(min=0, help="How far a cell's mean may be off where scores are not equal to the bit.")
    ] = 0.02,
    datasets: Annotated[
        str | None, typer.Option(help="Only these sets: quicker, and not written down.", show_default=False)
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Only results that have no verdict yet.")] = False,
    clone: Annotated[
        bool, typer.Option("--clone", help="Fetch the commit that a result names, and compare its code first.")
    ] = False,
    workers: _Workers = None,
    device: _Device = "cpu",
    root: Root = None,
    images: Images = None,
    install: _Install = False,
    work: _Work = None,
) -> None:
    """Run methods again, each in a sandbox without network, and compare the scores; writes verification.json."""
    with clear_errors(goes_on=work is not None):
        from xaibench.leaderboard.manifest import find_results, read_verification
        from xaibench.leaderboard.sandbox.sandbox import sandbox_kind
        from xaibench.leaderboard.verification_runs import verify_all

        if sandbox_kind() != "bubblewrap":
            typer.echo(
                hint("Without bubblewrap (bwrap) the sandbox stops accidents, not adversaries: apt install bubblewrap.")
            )
        bad = 0
        places = [place for place in find_results(folder) if not new or not read_verification(place)]
        if not places:
            typer.echo(f"Every result in {folder} has a verdict.")
        for one in verify_all(
            places,
            work=work,
            workers=workers,
            clone=clone,
            bars=progress_bars,
            seconds=seconds,
            memory_gb=memory,
            bound=bound,
            datasets=names(datasets),
            device=device,
            install=install,
            root=root,
            images=images,
        ):
            found = one.verification
            if found is None:
                bad += 1
                said = alarm("refused" if one.refused else "failed")
                typer.echo(f"{said}  {one.folder}\n         {one.refused or one.failed}")
                continue
            bad += found.verdict == "differs"
            said = alarm(found.verdict) if found.verdict == "differs" else found.verdict
            typer.echo(f"{said}  {one.folder}")
            most = "undefined" if found.largest_difference is None else f"{found.largest_difference:.2g}"
            typer.echo(
                f"         {found.equal_rows:,} of {found.rows:,} scores equal to the bit; largest difference of a "
                f"cell's mean {most} ({found.where}); sandbox: {found.sandbox}"
            )
        if bad:
            raise typer.Exit(1)


@results.command()
def add(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="The results repository.")] = Path("results"),
    methods: Annotated[
        str | None, typer.Option(help="Only these of its explainers. [default: all]", show_default=False)
    ] = None,
) -> None:
    """Write a result for each explainer of a run."""
    with clear_errors():
        from xaibench.leaderboard.run_splitting import split_run

        for folder in split_run(run, out, methods=names(methods)):
            typer.echo(folder)


@results.command()
def manifest_schema() -> None:
    """Print the JSON Schema of result.json."""
    from xaibench.leaderboard.manifest import manifest_schema

    typer.echo(json.dumps(manifest_schema(), indent=2))


@results.command()
def commit(
    folder: Annotated[Path, typer.Argument(help="The results repository.")],
    name: Annotated[str, typer.Argument(help="Of the round.")],
    suite: Annotated[str, typer.Option(help="A suite of generated data.")],
    deadline: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], help="The last day to hand in a method.")],
    secret: Annotated[Path, typer.Option(help="Where the seed is kept; not in the repository.")],
) -> None:
    """Promise fresh seeds by their hash: nobody can tune a method on data that nobody has seen."""
    with clear_errors():
        from xaibench.leaderboard.rounds import commit_round

        made = commit_round(folder, name, suite, deadline.date(), secret)
        typer.echo(f"{made.commitment}  round {made.name} of {made.suite}, until {made.deadline}")
        typer.echo(f"Publish {folder / 'rounds.json'} now; keep {secret} to yourself until the deadline is over.")


@results.command()
def reveal(
    folder: Annotated[Path, typer.Argument(help="The results repository.")],
    secret: Annotated[Path, typer.Argument(help="The file that commit left.")],
) -> None:
    """Show the seed of a round once its deadline is over."""
    with clear_errors():
        from xaibench.leaderboard.rounds import reveal_round

        shown = reveal_round(folder, secret)
        typer.echo(
            f"Round {shown.name}: seed {shown.seed}, as promised. Run it: xaibench results fresh {folder} {shown.name}"
        )


@results.command()
def fresh(
    folder: Annotated[Path, typer.Argument(help="The results repository.")],
    name: Annotated[str, typer.Argument(help="Of the round, whose seed is shown.")],
    seconds: _Seconds = 600,
    memory: _Memory = 8,
    workers: _Workers = None,
    device: _Device = "cpu",
    install: _Install = False,
    work: _Work = None,
) -> None:
    """Run every method on the fresh data of a round, each in its sandbox."""
    with clear_errors(goes_on=work is not None):
        from xaibench.leaderboard.fresh_runs import run_round

        limits = {"seconds": seconds, "memory_gb": memory}
        run_round(
            folder, name, work=work, said=typer.echo, device=device, install=install, **limits, **_engine(workers)
        )
