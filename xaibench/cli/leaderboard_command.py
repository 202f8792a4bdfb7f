"""``xaibench leaderboard``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xaibench.cli.application import app
from xaibench.cli.options import described
from xaibench.cli.terminal import clear_errors, echo, hint


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
