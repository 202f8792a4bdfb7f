"""``xaibench submit``."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.completion import completer
from xaibench.cli.terminal import Images, Root, clear_errors, hint, progress_bars

if TYPE_CHECKING:
    from xaibench.leaderboard.submission import Trial


@app.command(name="submit")
def submit_method(
    method: Annotated[
        str, typer.Argument(help="mypackage.module:name, method.py, method.py:name, or a listed explainer.")
    ],
    suite: Annotated[
        str, typer.Option(help="A built-in suite, or a TOML file.", autocompletion=completer("suites"))
    ] = "xai-tris-8x8",
    out: Annotated[Path, typer.Option(help="Results repository to write to.")] = Path("results"),
    name: Annotated[
        str, typer.Option(help="Name of the method. [default: name of the function]", show_default=False)
    ] = "",
    label: Annotated[str, typer.Option(help="Display name. [default: the name]", show_default=False)] = "",
    author: Annotated[list[str] | None, typer.Option(help="Name of an author; repeatable.", show_default=False)] = None,
    citation: Annotated[str, typer.Option(help="Citation, as text or a .bib file.", show_default=False)] = "",
    license: Annotated[
        str, typer.Option("--license", help="License of code and scores, such as mit.", show_default=False)
    ] = "",
    homepage: Annotated[str, typer.Option(help="Web address, https://...", show_default=False)] = "",
    repository: Annotated[str, typer.Option(help="Address of the source repository.", show_default=False)] = "",
    commit: Annotated[str, typer.Option(help="Commit in that repository.", show_default=False)] = "",
    tuned_on: Annotated[
        list[str] | None,
        typer.Option(help="A metric or suite that the method was tuned on; repeatable.", show_default=False),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", help="A parameter of the method; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run the small form of the suite, as a test.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes. [default: one per CPU]", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    root: Root = None,
    images: Images = None,
    publish: Annotated[
        str, typer.Option(help="A results repository on the Hugging Face Hub, OWNER/NAME.", show_default=False)
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="With --publish: only show what would be sent.")
    ] = True,
) -> None:
    """Run a suite with your own method, and write the result with everything needed to verify it.

    Nothing is sent unless --publish OWNER/NAME --no-dry-run is given, which opens a pull request there.
    """
    with clear_errors(goes_on=True):
        from xaibench.leaderboard.submission import SubmissionInfo, submit

        info = SubmissionInfo(
            *(name, label, tuple(author or ()), _read_citation(citation), license, homepage, repository, commit),
            tuned_on=tuple(tuned_on or ()),
        )
        given = dict(_parse_parameter(text) for text in parameters or ())
        with progress_bars() as progress:
            folder = submit(
                method,
                suite,
                out,
                info=info,
                parameters=given,
                quick=quick,
                progress=progress,
                on_trial=_print_trial,
                workers=workers,
                device=device,
                root=root,
                images=images,
            )
        _print_means(folder)
        _print_missing(info)
        if publish:
            _publish(out, folder, publish, dry_run)
        else:
            _print_next_steps(out, folder)


def _print_trial(trial: Trial) -> None:
    typer.echo(f"Trial: {1e3 * trial.seconds:.1f} ms per image of 8×8 pixels.")
    for network, why in trial.refused.items():
        typer.echo(f"{hint(f'Does not support {network}:')} {why}")
    for remark in trial.remarks:
        typer.echo(hint(f"Note: {remark}."))


def _print_means(folder: Path) -> None:
    from xaibench.leaderboard.score_files import metric_means

    typer.echo("\nMeans over the samples that the networks classify correctly, each cell counting once:")
    for metric, row in metric_means(folder).iterrows():
        better = "higher" if row["higher_is_better"] else "lower"
        typer.echo(f"  {metric!s:24} {row['mean']:8.3f}  ({better} is better; {int(row['cells'])} cells)")
    typer.echo()


def _print_missing(info: Any) -> None:
    missing = [f"--{name}" for name in ("author", "citation", "license") if not _is_given(info, name)]
    if missing:
        typer.echo(hint(f"Not given: {', '.join(missing)}. Run the same command with them to rewrite the result."))


def _is_given(info: Any, name: str) -> bool:
    return bool(getattr(info, {"author": "authors", "license": "license"}.get(name, name)))


def _print_next_steps(out: Path, folder: Path) -> None:
    place = folder.relative_to(out)
    typer.echo(
        f"Written: {folder}\n\nTo publish it:\n"
        f"  xaibench results check {folder}\n"
        f"  xaibench results verify {folder}\n"
        f"then add the folder {place} to a results repository by a pull request\n"
        f"(on the Hub: the same command with --publish OWNER/NAME --no-dry-run), and see it with\n"
        f"  xaibench leaderboard {out} --out site"
    )


def _publish(out: Path, folder: Path, repository: str, dry_run: bool) -> None:
    import shutil
    import tempfile

    from xaibench import hub

    target = hub.Target(repository.removeprefix("hf://"), create_pr=True)
    place = folder.relative_to(out)
    typer.echo(f"{'Would open' if dry_run else 'Opening'} a pull request on {target.repo} with {place}/:")
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        typer.echo(f"  {file.stat().st_size:>12,} bytes  {place / file.relative_to(folder)}")
    if dry_run:
        typer.echo("Nothing was sent (--dry-run).")
        return
    with tempfile.TemporaryDirectory(prefix="xaibench-submit-") as temporary:
        shutil.copytree(folder, Path(temporary) / place)
        page = hub.upload(Path(temporary), target, hub.look(target), message=f"Add {place}")
    typer.echo(f"Opened: {page}")


def _read_citation(citation: str) -> str:
    return Path(citation).read_text(encoding="utf-8") if citation.endswith(".bib") else citation


def _parse_parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set {text!r}: expected NAME=VALUE, such as n_samples=100.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
