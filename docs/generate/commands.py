"""Generate the page of the command line: every command with examples, arguments and options."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

HEAD = """# Command line

Look up a command, its arguments and options. Exit codes: 0 success; 1 failed jobs or missing data; 2 bad arguments.
"""

_LINES = (Path(__file__).parent / "commands.sh").read_text(encoding="utf-8").splitlines(keepends=True)[1:]
#: Examples of each command; tests check each line against the program.
EXAMPLES = {
    name: "".join(["\n", *lines]) for name, lines in itertools.groupby(_LINES, key=lambda line: line.split()[1])
}


def page() -> str:
    """Return the page in Markdown."""
    from typer.main import get_command

    from xaibench.cli import app

    group: Any = get_command(app)
    return HEAD + "\n".join(_command(name, command) for name, command in sorted(group.commands.items()))


def _command(name: str, command: Any) -> str:
    if hasattr(command, "commands"):
        inside = sorted(command.commands.items())
        head = f"## `xaibench {name}`\n\n{command.help}\n\n```sh{EXAMPLES[name]}```\n\n"
        return head + "\n".join(_command(f"{name} {one}", own).replace("## ", "### ", 1) for one, own in inside)
    given = [one.name.upper() for one in command.params if one.param_type_name == "argument"]
    lines = [f"## `xaibench {name}`", "", command.help, "", f"    xaibench {' '.join([name, *given])} [OPTIONS]", ""]
    if name in EXAMPLES:
        lines += [f"```sh{EXAMPLES[name]}```", ""]
    rows = [_parameter(one) for one in command.params if one.name != "help"]
    return "\n".join([*lines, "| argument | meaning |", "|---|---|", *rows, ""])


def _parameter(one: Any) -> str:
    names = one.opts if one.param_type_name == "option" else [one.name.upper()]
    shown = one.show_default and not one.required and one.default not in (None, False)
    default = f" Default: `{getattr(one.default, 'value', one.default)}`." if shown else ""
    return f"| {', '.join(f'`{name}`' for name in names)} | {one.help}{default} |"
