"""Options that are fields of a request, such as :class:`~xaibench.runner.RunRequest`, with the help that it states.

The other commands with the same options take their help from here, too.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from xaibench.cli.completion import completer
from xaibench.runner.request import RunRequest

#: Names that can be completed.
_COMPLETED = ("datasets", "models", "explainers", "metrics")
_SMALLEST = {"workers": 1, "device_workers": 1, "size": 8, "budget": 2}
#: Fields with a path or something else, such as a URL.
_NOT_ONLY_PATHS = ("store", "against")


@functools.cache
def help_of(request: type) -> Mapping[str, str]:
    """Return the description of each field from the docstring of a request, without markup."""
    text = inspect.cleandoc(request.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    plain = {name: re.sub(r" \(:\w+:`.*?`\)|``", "", re.sub(r"\s+", " ", entry)) for name, entry in entries}
    lists = {name for name, declared in get_type_hints(request).items() if declared == Sequence[str] | None}
    return plain | {
        name: re.sub(r"( \[default.*)?$", r" Separated by commas.\1", plain[name], count=1) for name in lists
    }


def described(help: str, *flags: str, **settings: Any) -> Any:
    """Return an option whose help describes its default."""
    return typer.Option(*flags, help=help, show_default=False, **settings)


def option(name: str, default: object = None, request: type = RunRequest) -> Any:
    """Return the option for a field of a request.

    Args:
        name: The field.
        default: Its default, which is shown unless the help describes it.
        request: The class of the request.
    """
    flag = "--model" if name == "models" else f"--{name.replace('_', '-')}"
    complete = completer(name, several=True) if name in _COMPLETED else None
    shown = default is not None and not isinstance(default, bool)
    return typer.Option(
        flag, help=help_of(request)[name], min=_SMALLEST.get(name), autocompletion=complete, show_default=shown
    )


def _parameter(field: dataclasses.Field[Any], declared: Any, request: type) -> inspect.Parameter:
    """Return the parameter of a command for a field of the request."""
    name, default, kind = field.name, field.default, declared
    keyword = functools.partial(inspect.Parameter, name, inspect.Parameter.KEYWORD_ONLY)
    if default is dataclasses.MISSING:
        if field is dataclasses.fields(request)[0]:
            complete = completer("suites") if request is RunRequest else None
            argument = typer.Argument(help=help_of(request)[name], autocompletion=complete)
            return keyword(annotation=Annotated[str, argument])
        return keyword(annotation=Annotated[str, option(name, None, request)])
    if declared not in (bool, str, int, float, Path, int | None):
        kind = Path | None if Path in get_args(declared) and name not in _NOT_ONLY_PATHS else str | None
    return keyword(default=default, annotation=Annotated[kind, option(name, default, request)])


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command whose first argument is a request, so that it takes the fields of the request as options."""
    signature = inspect.signature(command, eval_str=True)
    first, *own = signature.parameters.values()
    request, types = first.annotation, get_type_hints(first.annotation)
    fields = dataclasses.fields(request)

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        values = {one.name: _read_value(types[one.name], options.pop(one.name)) for one in fields}
        command(request(**values), **options)

    every = [_parameter(one, types[one.name], request) for one in fields]
    every += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    with_options.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in every}
    return with_options


def _read_value(declared: Any, value: Any) -> Any:
    if declared == Sequence[str] | None:
        return names(value)
    if int in get_args(declared) and isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    return value


def names(text: str | None) -> list[str] | None:
    """Split ``"a, b"`` into names; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
