"""``xaibench push``."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.terminal import clear_errors

if TYPE_CHECKING:
    from xaibench.data import Dataset
    from xaibench.hub import Remote, Target


@app.command()
def push(
    source: Annotated[
        str, typer.Argument(help="A run folder, or a data set: xai-tris/..., folder:DIR.", metavar="RUN|DATASET")
    ],
    repo: Annotated[str, typer.Argument(help="Dataset repository on the Hugging Face Hub: OWNER/NAME.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data set.")] = 0,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter of the data set, such as n_samples=1000; repeatable.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    license: Annotated[
        str | None,
        typer.Option(
            "--license",
            help="License, such as cc-by-4.0. [default: cc0-1.0 for generated data sets]",
            show_default=False,
        ),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", "--branch", help="Branch. [default: main]", show_default=False)
    ] = None,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request instead of changing the branch.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the uploaded files in this new or empty folder.", show_default=False)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be uploaded, without contacting the Hub.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Upload without confirmation.")] = False,
) -> None:
    """Upload a generated data set, your own images or the results of a run to the Hugging Face Hub, with a card.

    Log in first (hf auth login), or set HF_TOKEN. The files are listed, and nothing is uploaded without confirmation.
    """
    with clear_errors(), contextlib.ExitStack() as stack:
        from xaibench import hub

        target = hub.Target(repo.removeprefix("hf://"), private, revision, create_pr)
        is_run = _is_run(source)
        if is_run and parameters:
            raise ValueError("--set is for data sets only; leave it out for the results of a run.")
        if not is_run:
            _check_license(source, license)
        folder = (
            _make_empty_folder(out)
            if out
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xaibench-push-")))
        )
        remote = None if dry_run else hub.inspect_remote(target)
        if is_run:
            hub.prepare_run(source, folder, license=license, repo=target.repo)
        else:
            dataset = _load_dataset(source, seed, parameters or ())
            hub.prepare_dataset(dataset, folder, license=license, repo=target.repo)
        _print_plan(folder, target, remote)
        if remote is None:
            typer.echo("Nothing was uploaded (--dry-run).")
            return
        if not yes and not _confirm_upload():
            typer.echo("Nothing was uploaded.")
            raise typer.Exit(1)
        page = hub.upload(folder, target, remote, message=f"Upload {'results' if is_run else 'data set'}")
        typer.echo(f"Uploaded: {page}")
        at = f"@{revision}" if revision else ""
        call = "hub.load_results" if is_run else "load"
        typer.echo(f'Load it with: xaibench.{call}("hf://{target.repo}{at}")')


def _confirm_upload() -> bool:
    try:
        return typer.confirm("Upload?")
    except typer.Abort:  # no terminal, or Ctrl-C
        typer.echo()
        return False


def _is_run(source: str) -> bool:
    from xaibench.report import RunFolderError

    folder = Path(source).expanduser()
    if not folder.is_dir():
        return False
    if not (folder / "scores.parquet").is_file():
        raise RunFolderError(
            f"{source} is a folder without scores.parquet; expected a run folder. For your own images and masks use "
            f"folder:{source}, for a data set written by xaibench parquet:{source}."
        )
    return True


def _check_license(name: str, license: str | None) -> None:
    """Check the license, if possible, before any data is generated or read."""
    from xaibench.data import DATASETS
    from xaibench.hub.license import choose_license

    info = getattr(DATASETS.resolve(name), "info", None)
    if info is not None:
        choose_license(info, license)


def _load_dataset(name: str, seed: int, given: list[str] | tuple[str, ...]) -> Dataset:
    from xaibench.data import load

    parameters: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--set {text}: expected NAME=VALUE, such as n_samples=1000.")
        try:
            parameters[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):  # a string without quotes
            parameters[key] = value
    dataset = load(name, seed=seed, **parameters)
    # Data sets read from disk do not record the seed of their split.
    return dataclasses.replace(dataset, parameters={"seed": seed, **dataset.parameters})


def _make_empty_folder(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--out {folder}: expected a new or an empty folder, because everything in it is uploaded.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _print_plan(folder: Path, target: Target, remote: Remote | None) -> None:
    from xaibench.hub.uploading import list_files

    names = list_files(folder)
    sizes = [(folder / name).stat().st_size for name in names]
    for name, size in zip(names, sizes, strict=True):
        typer.echo(f"{size:>15,} bytes  {name}")
    gone = [name for name in remote.replaced if name not in names] if remote else []
    for name in gone:
        typer.echo(f"{'removed':>21}  {name}")
    branch = "a pull request" if target.create_pr else f"the branch {target.revision or 'main'}"
    state = ""
    if remote is not None:
        kind = "private" if remote.private else "public"
        state = f", {kind}, {'existing' if remote.exists else 'new'}; as {remote.user} at {remote.endpoint}"
    elif target.private:
        state = ", private"
    typer.echo(f"{sum(sizes):,} bytes in {len(names)} files, to {branch} of the dataset {target.repo}{state}")
