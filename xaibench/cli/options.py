"""Options that are fields of a :class:`~xaibench.runner.RunRequest`, with the types and the help that it states.

The other commands with the same options take their help from here, too.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from xaibench.cli.completion import completer
from xaibench.runner.request import RunRequest

_FIELDS = {field.name: field for field in dataclasses.fields(RunRequest)}
_TYPES = get_type_hints(RunRequest)
#: Names that can be completed.
_COMPLETED = ("datasets", "models", "explainers", "metrics")
_SMALLEST = {"workers": 1, "device_workers": 1, "size": 8}
#: Fields with a path or something else, such as a URL.
_NOT_ONLY_PATHS = ("store", "against")


def _describe_fields() -> dict[str, str]:
    """Return the description of each field from the docstring of the request, without markup."""
    text = inspect.cleandoc(RunRequest.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    plain = {name: re.sub(r"\s+", " ", entry).replace("``", "") for name, entry in entries}
    lists = {name: " Separated by commas." for name, declared in _TYPES.items() if declared == Sequence[str] | None}
    return {name: re.sub(r" \(:\w+:`.*?`\)", "", entry) + lists.get(name, "") for name, entry in plain.items()}


HELP = _describe_fields()


def described(help: str, *flags: str, **settings: Any) -> Any:
    """Return an option whose help describes its default."""
    return typer.Option(*flags, help=help, show_default=False, **settings)


def option(name: str, help: str = "") -> Any:
    """Return the option for a field of the request.

    Args:
        name: The field.
        help: Another description than that of the field.
    """
    flag = "--model" if name == "models" else f"--{name.replace('_', '-')}"
    complete = completer(name, several=True) if name in _COMPLETED else None
    shown = isinstance(_FIELDS[name].default, str)
    return typer.Option(
        flag, help=help or HELP[name], min=_SMALLEST.get(name), autocompletion=complete, show_default=shown
    )


def _parameter(name: str) -> inspect.Parameter:
    """Return the parameter of a command for a field of the request."""
    declared, default = _TYPES[name], _FIELDS[name].default
    if default is dataclasses.MISSING:
        argument = typer.Argument(help=HELP[name], autocompletion=completer("suites"))
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, argument])
    kind: Any = str | None
    if declared in (bool, str, int | None):
        kind = declared
    elif Path in declared.__args__ and name not in _NOT_ONLY_PATHS:
        kind = Path | None
    annotation = Annotated[kind, option(name)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command whose first argument is a request, so that it takes the fields of the request as options."""
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        values = {name: _read_value(name, options.pop(name)) for name in _FIELDS}
        command(RunRequest(**values), **options)

    own = list(signature.parameters.values())[1:]
    every = [*map(_parameter, _FIELDS), *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)]
    with_options.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in every}
    return with_options


def _read_value(name: str, value: Any) -> Any:
    if _TYPES[name] == Sequence[str] | None:
        return names(value)
    if name == "samples" and value and re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    return value


def names(text: str | None) -> list[str] | None:
    """Split ``"a, b"`` into names; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
