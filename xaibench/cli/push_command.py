"""``xaibench push``."""

from __future__ import annotations

import ast
import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from xaibench.cli.application import app
from xaibench.cli.options import described
from xaibench.cli.terminal import clear_errors, echo


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
            "--set", help="A parameter of the data set, such as n_samples=1000; repeatable.", metavar="NAME=VALUE"
        ),
    ] = None,
    license: Annotated[
        str | None,
        described("License, such as cc-by-4.0. [default: cc0-1.0 for generated data sets]"),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Make the repository public.")] = False,
    revision: Annotated[str | None, described("Branch. [default: main]", "--revision", "--branch")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Upload. Without it, the files are only listed.")] = False,
) -> None:
    """Upload a generated data set, your own images or the results of a run to the Hugging Face Hub.

    Log in first (hf auth login), or set HF_TOKEN. Nothing is uploaded without --yes.
    """
    with clear_errors(), tempfile.TemporaryDirectory(prefix="xaibench-push-") as temporary:
        from xaibench import hub
        from xaibench.data import DATASETS, load

        hub.check_repository(repo)  # before any data is generated or read
        folder = Path(temporary)
        if Path(source).expanduser().is_dir():
            if parameters:
                raise ValueError("--set is for data sets only; leave it out for the results of a run.")
            hub.prepare_run(Path(source).expanduser(), folder, license=license)
        else:
            info = getattr(DATASETS.resolve(source), "info", None)
            if info is not None:  # before any data is generated or read
                hub.choose_license(info, license)
            dataset = load(source, seed=seed, **_parse(parameters or []))
            # Data sets read from disk do not record the seed of their split.
            dataset = dataclasses.replace(dataset, parameters={"seed": seed, **dataset.parameters})
            hub.prepare_dataset(dataset, folder, license=license)
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            echo(f"{file.stat().st_size:>15,} bytes  {file.relative_to(folder).as_posix()}")
        if not yes:
            echo(f"Nothing was uploaded. To upload these files to {repo}, add --yes.")
            return
        echo(f"Uploaded: {hub.upload(folder, repo, public=public, revision=revision)}")


def _parse(assignments: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--set {text}: expected NAME=VALUE, such as n_samples=1000.")
        try:
            parameters[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):  # a string without quotes
            parameters[key] = value
    return parameters
