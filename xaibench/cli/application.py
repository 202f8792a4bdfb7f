"""The Typer application to which the other modules add commands."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from xaibench._version import __version__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Is this saliency map right? Benchmarks for visual explanations of image classifiers.",
    epilog="Start with: xaibench run xai-tris-8x8 --quick",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"xaibench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    # By default there are colors on a terminal, and none in files and pipes.
    if os.environ.get("NO_COLOR"):
        context.color = False
    elif os.environ.get("FORCE_COLOR"):
        context.color = True
