"""``xaibench results``: fill, check and verify a results repository, and run rounds of fresh seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from xaibench.cli.application import app
from xaibench.cli.terminal import Root, alarm, clear_errors, names, progress_bars

if TYPE_CHECKING:
    from xaibench.leaderboard.verdicts import Verification

results = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, verify and add results of methods.")
app.add_typer(results, name="results")

_Seconds = Annotated[float, typer.Option(min=1, help="Time limit per batch of images, in seconds.")]
_Memory = Annotated[float, typer.Option(min=0.5, help="Memory limit of a method, in GiB.")]
_Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes; 1 uses this process. [default: one per CPU]"),
]
_Device = Annotated[str, typer.Option(help="cpu, auto, cuda, ...; results from a CPU are bit-identical on a CPU only.")]
_Work = Annotated[
    Path | None,
    typer.Option(help="Keep the run in this folder; later runs reuse its networks.", show_default=False),
]


_Install = Annotated[
    bool,
    typer.Option("--install", help="Install packages that a method requires, as wheels, for its sandbox only."),
]


def _engine(workers: int | None) -> dict[str, Any]:
    """Use the current process for one worker, and worker processes otherwise."""
    return {"engine": "serial"} if workers == 1 else {"workers": workers}


@results.command(name="check")
def check_results(
    folder: Annotated[str, typer.Argument(help="A results repository, one result in it, or hf://OWNER/NAME.")],
) -> None:
    """Check that results are complete, unmodified and consistent with their suite, without running anything."""
    with clear_errors():
        from xaibench.leaderboard.checks import check
        from xaibench.leaderboard.manifest import find_results
        from xaibench.leaderboard.repository import open_repository

        bad = 0
        with open_repository(folder) as repository:
            places = find_results(repository)
            for place in places:
                faults = check(place)
                earlier = bool(faults) and not check(place, earlier=True)
                bad += bool(faults) and not earlier
                said = "earlier" if earlier else alarm("refused") if faults else "ok"
                typer.echo(f"{said:7}  {str(place).replace(str(repository), folder.rstrip('/'), 1)}")
                for fault in faults:
                    typer.echo(f"         {fault}")
            if len(places) > 1:
                _print_sizes(places)
        if bad:
            raise typer.Exit(1)


def _print_sizes(places: Sequence[Path]) -> None:
    by_suite: dict[str, list[list[int]]] = {}
    for place in places:
        sizes = [file.stat().st_size for file in place.rglob("*") if file.is_file()]
        by_suite.setdefault(place.name.partition("@")[0], []).append(sizes)
    for suite, found in sorted(by_suite.items()):
        count, total = sum(map(len, found)), sum(map(sum, found))
        typer.echo(f"{suite}: {len(found)} results, {count} files, {total / 1e6:.1f} MB")


@results.command(name="show")
def show_result(folder: Annotated[Path, typer.Argument(help="One result.")]) -> None:
    """Print the manifest of a result: method, authors, citation, suite, versions, code."""
    with clear_errors():
        from xaibench.leaderboard.manifest import read_manifest

        # Characters beyond ASCII are escaped, so that nothing in it acts on the terminal.
        typer.echo(json.dumps(json.loads(read_manifest(folder).to_json()), indent=2))


@results.command(name="verify")
def verify_results(
    folder: Annotated[Path, typer.Argument(help="A results repository, or one result.")],
    seconds: _Seconds = 600,
    memory: _Memory = 8,
    datasets: Annotated[
        str | None,
        typer.Option(help="Verify only these data sets; faster, but no verdict is written.", show_default=False),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Only results without a verdict.")] = False,
    clone: Annotated[
        bool, typer.Option("--clone", help="First fetch the commit that a result names and compare its code.")
    ] = False,
    workers: _Workers = None,
    device: _Device = "cpu",
    root: Root = None,
    install: _Install = False,
    work: _Work = None,
) -> None:
    """Run methods again, each in a sandbox without network, and compare the scores; writes verdicts."""
    with clear_errors(goes_on=work is not None):
        from xaibench.leaderboard.manifest import find_results
        from xaibench.leaderboard.verdicts import find_record
        from xaibench.leaderboard.verification_runs import verify_all

        def has_verdict(place: Path) -> bool:
            record = find_record(place, signed=False)
            return record is not None and record.verification is not None

        bad = 0
        places = [place for place in find_results(folder) if not new or not has_verdict(place)]
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
            datasets=names(datasets),
            device=device,
            install=install,
            root=root,
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
            equal = f"{found.equal_rows:,} of {found.rows:,} scores bit-identical"
            most = "undefined" if found.largest_difference is None else f"{found.largest_difference:.2g}"
            more = "" if found.largest_difference == 0 else f"; largest difference of a score {most} ({found.where})"
            typer.echo(f"         {equal}{more}")
            typer.echo(f"         {_dependence(found)}")
        if bad:
            raise typer.Exit(1)


def _dependence(found: Verification) -> str:
    words = {"weights": "randomized weights", "training": "another training", "image": "another image"}
    shares = ", ".join(f"{found.changed[key]:.0%} by {word}" for key, word in words.items() if key in found.changed)
    ignored = f"; the maps do not depend on the {' and the '.join(found.ignores)}" if found.ignores else ""
    control = ", so that the method is a control" if "network" in found.ignores else ""
    return f"maps changed: {shares or 'not measured'}{ignored}{control}"


@results.command(name="receive")
def receive_results(
    folder: Annotated[Path, typer.Argument(help="Results repository.")],
) -> None:
    """Record today as the day on which new results were received; deadlines of rounds count by this record."""
    with clear_errors():
        from xaibench.leaderboard.manifest import find_results
        from xaibench.leaderboard.verdicts import receive

        for place in receive(find_results(folder)):
            typer.echo(f"received  {place}")


@results.command(name="sign")
def sign_results(
    folder: Annotated[Path, typer.Argument(help="Results repository.")],
    key: Annotated[Path, typer.Option(help="Private key of a keeper, as ssh-keygen writes it.")],
) -> None:
    """Sign `verdicts.json`; it counts only if a key in the file `keepers` has signed it."""
    with clear_errors():
        from xaibench.leaderboard.verdicts import sign_records

        file = sign_records(folder, key)
        typer.echo(f"signed  {file}" if file else "There is nothing to sign.")


@results.command(name="add")
def add_results(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Results repository.")] = Path("results"),
    methods: Annotated[
        str | None, typer.Option(help="Only these explainers. [default: all]", show_default=False)
    ] = None,
) -> None:
    """Write a result for each explainer of a run."""
    with clear_errors():
        from xaibench.leaderboard.run_splitting import split_run

        for folder in split_run(run, out, methods=names(methods)):
            typer.echo(folder)


@results.command(name="export")
def export_results(
    folder: Annotated[str, typer.Argument(help="A results repository, or hf://OWNER/NAME.")],
    dataset: Annotated[str, typer.Option(help="The data set repository of the results on the Hub, OWNER/NAME.")],
    format: Annotated[Literal["hf"], typer.Option("--format", help="hf: Community Evals of the Hub.")] = "hf",
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("records"),
) -> None:
    """Write eval.yaml and a record per method and metric, as Hugging Face's Community Evals has them."""
    with clear_errors():
        from xaibench.leaderboard.hub_records import export_hub_records

        files, left_out = export_hub_records(folder, out, dataset)
        typer.echo(f"{out}: {len(files) - 1} records and eval.yaml")
        for one in left_out:
            typer.echo(f"{alarm('left out')}  {one.name}: {one.reason}")


@results.command(name="schema")
def print_schema() -> None:
    """Print the JSON Schema of the manifest of a result."""
    from xaibench.leaderboard.manifest import manifest_schema

    typer.echo(json.dumps(manifest_schema(), indent=2))


@results.command(name="commit")
def commit_fresh_seed(
    folder: Annotated[Path, typer.Argument(help="Results repository.")],
    name: Annotated[str, typer.Argument(help="Name of the round.")],
    suite: Annotated[str, typer.Option(help="A suite of generated data.")],
    deadline: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], help="Last day of submissions.")],
    secret: Annotated[Path, typer.Option(help="New file for the seed, outside the repository.")],
) -> None:
    """Commit to fresh seeds by publishing their hash, so that no method can be tuned on the data."""
    with clear_errors():
        from xaibench.leaderboard.rounds import commit_round

        made = commit_round(folder, name, suite, deadline.date(), secret)
        typer.echo(f"{made.commitment}  round {made.name} of {made.suite}, until {made.deadline}")
        typer.echo(f"Publish {folder / 'rounds.json'} now; keep {secret} secret until the deadline has passed.")


@results.command(name="reveal")
def reveal_fresh_seed(
    folder: Annotated[Path, typer.Argument(help="Results repository.")],
    secret: Annotated[Path, typer.Argument(help="File written by commit.")],
) -> None:
    """Reveal the seed of a round after its deadline."""
    with clear_errors():
        from xaibench.leaderboard.rounds import reveal_round

        shown = reveal_round(folder, secret)
        typer.echo(
            f"Round {shown.name}: seed {shown.seed} matches its commitment. Run it: xaibench results fresh "
            f"{folder} {shown.name}"
        )


@results.command(name="fresh")
def run_fresh_round(
    folder: Annotated[Path, typer.Argument(help="Results repository.")],
    name: Annotated[str, typer.Argument(help="Name of the round; its seed must be revealed.")],
    seconds: _Seconds = 600,
    memory: _Memory = 8,
    workers: _Workers = None,
    device: _Device = "cpu",
    install: _Install = False,
    work: _Work = None,
) -> None:
    """Run every method on the fresh data of a round, each in a sandbox."""
    with clear_errors(goes_on=work is not None):
        from xaibench.leaderboard.fresh_runs import run_round

        limits = {"seconds": seconds, "memory_gb": memory}
        run_round(
            folder, name, work=work, on_message=typer.echo, device=device, install=install, **limits, **_engine(workers)
        )
