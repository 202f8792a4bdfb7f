"""The Typer application to which the other modules add commands."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from xaibench._version import __version__
from xaibench.core.messages import printable


@contextlib.contextmanager
def _printable_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):  # an error of usage
            error.message = printable(message, "\n")  # type: ignore[attr-defined]
        raise


class _Commands(TyperGroup):
    """Commands whose errors of usage repeat what was typed without its control characters."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _printable_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _printable_errors():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
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
