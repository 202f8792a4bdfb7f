"""The built-in suites, and reading a suite from a TOML file. Errors name the table and the entry."""

from __future__ import annotations

import dataclasses
import math
import operator
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import tomli_w

from xaibench.benchmarks import benchmark_files
from xaibench.core.checks import ParameterError
from xaibench.core.files import check_regular
from xaibench.core.messages import unknown
from xaibench.registry.component import registry
from xaibench.registry.parameters import Frozen, annotations_of, check_types, is_of_type
from xaibench.registry.table import Registry
from xaibench.runner.parts import ExplainerPart, MetricPart
from xaibench.runner.suites.schema import Cell, Suite, SuiteError, Training

_T = TypeVar("_T")
_P = TypeVar("_P", ExplainerPart, MetricPart)

#: Largest number of seeds that a suite can state as a number.
_MAX_SEEDS = 100_000

_ONE_OR_MORE = (1, math.inf, "1 or more")
#: Bounds of numbers, wherever they are: the lowest and the highest, and their description.
_BOUNDS = {
    "epochs": _ONE_OR_MORE,
    "batch_size": _ONE_OR_MORE,
    "stack": _ONE_OR_MORE,
    "lr": (math.ulp(0), sys.float_info.max, "a number above 0"),
    "samples": (1, math.inf, "a whole number of 1 or more, or 'all'"),
    "samples_per_job": (0, math.inf, "1 or more, or 0 for one job"),
    "seed": (0, math.inf, "0 or more"),
    "min_accuracy": (0, 100, "a percentage from 0 to 100"),
}


def parse_suite(tables: Mapping[str, Any], source: str = "the suite") -> Suite:
    """Turn parsed TOML into a :class:`Suite`. Parts are listed under their registered names.

    Args:
        tables: The tables, as ``tomllib`` returns them.
        source: The file, for error messages.

    Returns:
        The suite. Its parts are built later, by :func:`xaibench.runner.plan.plan.make_plan`.

    Raises:
        SuiteError: If an entry is unknown, missing or of the wrong type.
    """
    suite = dataclasses.replace(read_table(Suite, tables, source), source=source)
    needed: dict[str, tuple[Any, ...]] = {"cells": suite.cells}
    if suite.explainers or suite.metrics:  # without both, networks are only trained
        needed |= {"explainers": suite.explainers, "metrics": suite.metrics}
    for name, entries in needed.items():
        if not entries:
            raise SuiteError(f"The suite has no {name}; add at least one.", suite=source, table=_heading(name))
    known = {"explainers": suite.explainers + suite.optional.explainers, "metrics": suite.metrics}
    for cell in suite.cells:
        for entry, parts in known.items():
            for name in getattr(cell, entry):
                if name not in (names := [part.name for part in parts]):
                    message = unknown(f"[{entry}] has no", name, names)
                    raise SuiteError(message, suite=source, table=cell.table, parameter=entry)
    if suite.explaining.samples == "all" and suite.explaining.samples_per_job:
        message = "samples_per_job needs a number of samples; state samples, or leave it out."
        raise SuiteError(message, suite=source, table="[explaining]", parameter="samples_per_job")
    return suite


def read_table(kind: type[_T], values: Any, source: str, path: str = "", table: str = "") -> _T:
    """Build a dataclass of the suite from a TOML table, whose entries are checked against the fields.

    Args:
        kind: The dataclass.
        values: The table.
        source: The file, for error messages.
        path: Path of the table, such as ``"optional.cells"``; empty for the file.
        table: Its heading in error messages.

    Raises:
        SuiteError: If an entry is unknown, missing, of the wrong type or out of bounds.
    """

    def refuse(message: str, parameter: str = "") -> NoReturn:
        raise SuiteError(message, suite=source, table=table, parameter=parameter)

    if not isinstance(values, Mapping):
        refuse(f"got {values!r}, expected a table.")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.compare}  # type: ignore[arg-type]
    types, read = annotations_of(kind), {}
    for name, value in values.items():
        if name not in fields:
            refuse(unknown("unknown entry", name, fields), name)
        read[name] = _convert(name, value, types[name], source, path, table)
        if name == "seeds" and (not read[name] or len(set(read[name])) < len(read[name]) or min(read[name]) < 0):
            refuse(f"seeds is {value!r}; expected one or more different whole numbers, none below 0.", name)
        low, high, expected = _BOUNDS.get(name, (0, 0, ""))
        if expected and read[name] != "all" and not low <= read[name] <= high:
            refuse(f"{name} is {value!r}; expected {expected}.", name)
    absent = [field for name, field in fields.items() if name not in read]
    if missing := [f.name for f in absent if f.default is f.default_factory is dataclasses.MISSING]:
        refuse(f"{', '.join(missing)} missing; add {'it' if len(missing) == 1 else 'them'}.")
    return kind(**read)


def _convert(name: str, value: Any, annotation: Any, source: str, path: str, table: str) -> Any:
    """Check a value against the type of its field; lists become tuples, and tables of parameters are frozen."""
    inner = f"{path}.{name}" if path else name
    if dataclasses.is_dataclass(annotation):
        return read_table(annotation, value, source, inner, f"[{inner}]")  # type: ignore[arg-type]
    try:
        if annotation is Frozen:
            return _freeze(name, value)
        if annotation in (tuple[ExplainerPart, ...], tuple[MetricPart, ...]):
            kind, parts = annotation.__args__[0], _freeze(name, value).items()
            return tuple(_read_part(kind, key, entry, source, f"[{inner}.{key}]") for key, entry in parts)
        if annotation == tuple[Cell, ...]:
            check_types({name: value}, {name: list[dict[str, object]]})
            return tuple(_read_cell(one, source, inner, number) for number, one in enumerate(value, 1))
        if annotation == tuple[int, ...] and is_of_type(value, int):
            if value > _MAX_SEEDS:
                raise ParameterError(f"{name} is {value}; expected at most {_MAX_SEEDS:,}.", parameter=name)
            return tuple(range(value))
        check_types({name: value}, {name: annotation})
    except ParameterError as error:
        raise SuiteError(str(error), suite=source, table=table or _heading(inner), parameter=name) from error
    return tuple(value) if isinstance(value, list) else value


def _read_cell(values: Any, source: str, path: str, number: int) -> Cell:
    table = f"[[{path}]] {number}"
    cell = read_table(Cell, values, source, path, table)
    for name in ("datasets", "models"):
        if not getattr(cell, name):
            raise SuiteError(f"{name} is []; add at least one.", suite=source, table=table, parameter=name)
    training = read_table(Training, cell.training, source, f"{path}.training", f"{table} training")
    return dataclasses.replace(
        cell,
        datasets=tuple(map(registry("dataset").canonical, cell.datasets)),
        models=tuple(map(registry("model").canonical, cell.models)),
        training=Frozen({name: getattr(training, name) for name in cell.training}),  # seeds = 3 is now [0, 1, 2]
        table=table,
    )


def _read_part(kind: type[_P], name: str, values: Any, source: str, table: str) -> _P:
    try:
        parameters = dict(_freeze(name, values))
        use = parameters.pop("use", name)
        check_types({"use": use}, {"use": str})
    except ParameterError as error:
        raise SuiteError(str(error), suite=source, table=table) from error
    return kind(name, registry(kind.kind).canonical(use), Frozen(parameters), table)


def _freeze(name: str, values: Any) -> Frozen:
    if not isinstance(values, Mapping):
        raise ParameterError(
            f"{name} is {values!r}; expected a table, such as {name} = {{ n_samples = 1000 }}.", parameter=name
        )
    try:
        return Frozen(values)
    except TypeError as error:  # only for tables from Python
        raise ParameterError(f"{name}: {error}", parameter=name) from error


def _heading(path: str) -> str:
    return f"[[{path}]]" if path.endswith("cells") else f"[{path}]"


#: The built-in suites, name -> file: all TOML files in the folders ``xaibench/benchmarks/*/suites``.
SUITES = Registry(
    "suite",
    {file.stem: str(file) for file in sorted(benchmark_files("suites/*.toml"), key=operator.attrgetter("name"))},
    own="A suite of your own is given as a path that ends in .toml.",
)


def load_suite(source: str | Path, *, quick: bool = False) -> tuple[Suite, str]:
    """Read a built-in suite by name, or a TOML file by path.

    Args:
        source: Name of a suite, or path of a ``.toml`` file.
        quick: Apply the suite's ``[quick]`` table, which makes it small.

    Returns:
        The suite, and its TOML: the source, or with ``quick`` the changed tables.

    Raises:
        UnknownNameError: If no suite has that name.
        SuiteError: If the file cannot be read, or an entry of it is unknown, missing or of the wrong type.

    Example:
        >>> suite, _ = load_suite("xai-tris-8x8")
        >>> suite.training.epochs, suite.explaining.samples
        (500, 100)
    """
    text, name = _read(source)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and thousands of brackets
        raise SuiteError(f"The file is not valid TOML: {error}.", suite=name) from error
    changes = tables.pop("quick", None)
    if quick:
        if not isinstance(changes, Mapping):
            raise SuiteError(
                "there is no quick form; add a table, or run it without --quick.", suite=name, table="[quick]"
            )
        tables = _merge(tables, changes)
        tables["name"] = f"{tables.get('name', '')}-quick"
        text = f"# The quick form of {name}, as run.\n" + tomli_w.dumps(tables)
    return parse_suite(tables, name), text


def suite_file(source: str | Path) -> Path | None:
    """Return the path of a suite; None if ``source`` is the name of a built-in suite."""
    path = Path(source).expanduser()
    return path if path.suffix == ".toml" or path.is_file() else None


def _read(source: str | Path) -> tuple[str, str]:
    name = str(source)
    if path := suite_file(source):
        try:
            check_regular(path)
            return path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise SuiteError(f"Cannot read the suite {path}: {reason}. Known suites: {', '.join(SUITES)}.") from error
    if ":" in name:
        raise SuiteError(
            f"{name!r} is not a suite; give the name of one ({', '.join(SUITES)}) or a path that ends in .toml."
        )
    return Path(SUITES.target(name)).read_text(encoding="utf-8"), SUITES.canonical(name)


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
