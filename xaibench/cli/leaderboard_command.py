"""``xaibench leaderboard``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xaibench.cli.application import app
from xaibench.cli.terminal import clear_errors, hint


@app.command(name="leaderboard")
def write_leaderboard(
    folder: Annotated[
        str,
        typer.Argument(help="A results repository: METHOD/SUITE@VERSION below it; or hf://OWNER/NAME.", metavar="DIR"),
    ],
    out: Annotated[Path, typer.Option(help="The site: a new folder, or one from before, which is replaced.")] = Path(
        "site"
    ),
    title: Annotated[str, typer.Option(help="Of the site.")] = "Saliency maps, compared",
    first: Annotated[
        str, typer.Option(help="The suite of the first page. [default: the one of most methods]", show_default=False)
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="A result that cannot be shown is an error; else it is left out.")
    ] = False,
) -> None:
    """Build the leaderboard of a results repository: a static site, which needs no server."""
    with clear_errors():
        from xaibench import leaderboard

        built = leaderboard.write_site(folder, out, strict=strict, title=title, first=first, progress=typer.echo)
    for one in built.left_out:
        typer.echo(f"{hint(f'Left out: {one.name}.')} {one.reason}", err=True)
    suites = f"{built.suites} suite{'s' * (built.suites != 1)}"
    typer.echo(f"{built.methods} method{'s' * (built.methods != 1)} on {suites}: {built.page}")
