"""Reading a suite from its TOML file, with an error that names the entry, and writing one."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_args

from xaibench.core.frozen import Frozen
from xaibench.core.messages import unknown
from xaibench.core.registry import Registry
from xaibench.core.vocabulary import Output, Precision
from xaibench.evaluation.protocol import PROTOCOLS
from xaibench.runner.suites.suite_tables import (
    METHODS,
    Cell,
    Data,
    Explaining,
    NamedPart,
    Suite,
    SuiteError,
    Training,
)

#: The suites that come with the library: name -> file in ``xaibench/suites``, where whatever lies is one.
SUITES = Registry(
    "suite",
    {
        name.removesuffix(".toml"): name
        for name in sorted(file.name for file in resources.files("xaibench.suites").iterdir())
        if name.endswith(".toml")
    },
    own="A suite of your own is given as a path that ends in .toml.",
)

#: The types of entries as error messages say them.
_IN_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "tuple[int, ...]": "a list of whole numbers",
    "tuple[str, ...]": "a list of texts",
}

_T = TypeVar("_T")


def load_suite(source: str | Path, *, quick: bool = False) -> tuple[Suite, str]:
    """Read a built-in suite by name, or a TOML file by path.

    Args:
        source: Name of a suite, or path of a ``.toml`` file.
        quick: Apply the suite's ``[quick]`` table, which makes it small enough to try.

    Returns:
        The suite, and its text as run: the TOML source, or the changed tables when ``quick``.

    Raises:
        UnknownNameError: If no suite has that name.
        SuiteError: If the file cannot be read, or an entry of it is unknown, missing or of the wrong type.

    Example:
        >>> suite, _ = load_suite("xai-tris-8x8")
        >>> suite.training.epochs, suite.explaining.samples
        (500, 200)
    """
    text, origin = _read(source)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{origin} is not valid TOML: {error}.") from error
    changes = tables.pop("quick", None)
    if quick:
        if changes is None:
            raise SuiteError(f"{origin} has no [quick] table, so there is no quick form of it; run it without --quick.")
        if not isinstance(changes, Mapping):
            raise SuiteError(f"{origin}: quick is {changes!r}; expected a table [quick].")
        tables = _merged(tables, changes)
        tables["name"] = f"{tables.get('name', '')}-quick"
        text = f"# The quick form of {origin}, as run.\n" + to_toml(tables)
    return parse_suite(tables, origin), text


def parse_suite(tables: Mapping[str, Any], origin: str = "the suite") -> Suite:
    """Turn parsed TOML into a :class:`Suite`; see :func:`load_suite` for the errors."""
    values = dict(tables)
    for name, kind in (("data", Data), ("training", Training), ("explaining", Explaining)):
        values[name] = _table(kind, values.get(name, {}), f"{origin}, [{name}]")
    cells = values.get("cells", [])
    if not isinstance(cells, list | tuple):
        raise SuiteError(f"{origin}: cells is {cells!r}; expected one or more tables [[cells]].")
    values["cells"] = tuple(_table(Cell, cell, f"{origin}, [[cells]] number {i + 1}") for i, cell in enumerate(cells))
    for i, cell in enumerate(values["cells"]):
        _table(Training, dict(cell.training), f"{origin}, [[cells]] number {i + 1}, training")
    for name in ("explainers", "metrics"):
        if not isinstance(values.get(name, {}), Mapping):
            raise SuiteError(
                f"{origin}: {name} is {values[name]!r}; expected a table, such as {name} = {{ NAME = {{}} }}."
            )
        values[name] = tuple(_part(key, table, f"{origin}, [{name}]") for key, table in values.get(name, {}).items())
        if not values[name]:
            raise SuiteError(f"{origin} names no {name}; add a table [{name}] with at least one entry.")
    if not cells:
        raise SuiteError(f"{origin} names no data sets and models; add a table [[cells]].")
    suite = _table(Suite, values, origin)
    _check(suite, origin)
    return suite


def _check(suite: Suite, origin: str) -> None:
    training, explaining = suite.training, suite.explaining
    counts = {"training.epochs": training.epochs, "training.batch_size": training.batch_size}
    counts["training.stack"] = training.stack
    if explaining.samples != "all":
        counts["explaining.samples"] = explaining.samples
    for name, value in counts.items():
        if value < 1:
            raise SuiteError(f"{origin}: {name} is {value}; expected 1 or more.")
    if explaining.samples_per_job < 0 or (explaining.samples_per_job and explaining.samples == "all"):
        raise SuiteError(
            f"{origin}: explaining.samples_per_job is {explaining.samples_per_job}, with explaining.samples = "
            f"{explaining.samples!r}; expected a number of 1 or more, with a number of samples, or 0 for one job."
        )
    if explaining.trainings not in ("best", "all"):
        raise SuiteError(f'{origin}: explaining.trainings is {explaining.trainings!r}; expected "best" or "all".')
    if explaining.output not in ("default", *get_args(Output)):
        known = ", ".join(("default", *get_args(Output)))
        raise SuiteError(f"{origin}: explaining.output is {explaining.output!r}; expected one of {known}.")
    choices = {
        "training.method": (training.method, METHODS),
        # A network is built in float32; in which it is explained is another matter.
        "training.precision": (training.precision, ("float32", "tf32", "bfloat16")),
        "explaining.precision": (explaining.precision, ("own", *get_args(Precision))),
        "explaining.scored": (explaining.scored, ("correct", "all")),
        "explaining.protocol": (explaining.protocol, PROTOCOLS),
    }
    for name, (given, known_ones) in choices.items():
        if given not in known_ones:
            raise SuiteError(f"{origin}: {name} is {given!r}; expected one of {', '.join(known_ones)}.")
    for name, seeds in (("data", suite.data.seeds), ("training", training.seeds)):
        if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise SuiteError(
                f"{origin}: {name}.seeds is {list(seeds)}; expected one or more different whole numbers, none below 0."
            )
    if explaining.seed < 0:
        raise SuiteError(f"{origin}: explaining.seed is {explaining.seed}; expected 0 or more.")


def _read(source: str | Path) -> tuple[str, str]:
    name = str(source)
    path = Path(name).expanduser()
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise SuiteError(f"Cannot read the suite {path}: {reason}. Known suites: {', '.join(SUITES)}.") from error
    if ":" in name:
        raise SuiteError(
            f"{name!r} is no suite; give the name of one ({', '.join(SUITES)}) or a path that ends in .toml."
        )
    text = resources.files("xaibench.suites").joinpath(SUITES.target(name)).read_text(encoding="utf-8")
    return text, SUITES.canonical(name)


def _table(kind: type[_T], values: Any, where: str) -> _T:
    """Build the dataclass ``kind`` from a TOML table; entries are checked against its fields."""
    if not isinstance(values, Mapping):
        raise SuiteError(f"{where}: expected a table, got {values!r}.")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise SuiteError(unknown(f"{where}: unknown entry", name, fields))
    missing = [
        name
        for name, f in fields.items()
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise SuiteError(f"{where}: {', '.join(missing)} missing; add {'it' if len(missing) == 1 else 'them'}.")
    return kind(**{name: _typed(value, str(fields[name].type), f"{where}: {name}") for name, value in values.items()})


def _typed(value: Any, annotation: str, where: str) -> Any:
    """``value`` frozen and checked against the (string) annotation of its field."""
    if annotation == "Frozen":
        if not isinstance(value, Mapping):
            raise SuiteError(f"{where} is {value!r}; expected a table of parameters, such as {{ n_samples = 1000 }}.")
        return _frozen(value, where)
    if annotation == "tuple[int, ...]" and isinstance(value, int) and not isinstance(value, bool):
        value = list(range(value))
    expected = {
        "str": str,
        "int": int,
        "float": (int, float),
        "tuple[int, ...]": (list, tuple),
        "tuple[str, ...]": (list, tuple),
    }.get(annotation)
    of = {"tuple[int, ...]": int, "tuple[str, ...]": str}.get(annotation)
    wrong = bool(expected) and not isinstance(value, expected)  # type: ignore[arg-type]
    if wrong or isinstance(value, bool) or (of and not all(type(item) is of for item in value)):
        raise SuiteError(f"{where} is {value!r}; expected {_IN_WORDS.get(annotation, annotation)}.")
    if annotation.startswith("int | Literal") and value != "all" and not isinstance(value, int):
        raise SuiteError(f'{where} is {value!r}; expected a whole number or "all".')
    return tuple(value) if isinstance(value, list) else value


def _part(name: str, table: Any, where: str) -> NamedPart:
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where}: {name} is {table!r}; expected a table of parameters, such as {name} = {{}}.")
    parameters = dict(table)
    use = parameters.pop("use", name)
    if not isinstance(use, str):
        raise SuiteError(f"{where}: {name}.use is {use!r}; expected the name of a part, or 'package.module:name'.")
    return NamedPart(name, use, _frozen(parameters, f"{where}: {name}"))


def _frozen(table: Mapping[str, Any], where: str) -> Frozen:
    try:
        return Frozen(table)
    except TypeError as error:  # of tables that come from Python
        raise SuiteError(f"{where}: {error}") from error


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def to_toml(tables: Mapping[str, Any]) -> str:
    """Write plain tables as TOML: scalars first, then tables, then arrays of tables.

    Example:
        >>> print(to_toml({"name": "s", "data": {"seeds": [0]}}))
        name = "s"
        <BLANKLINE>
        [data]
        seeds = [0]
        <BLANKLINE>
    """
    lines = [f"{_key(k)} = {_value(v)}" for k, v in tables.items() if not _is_table(v)]
    for name, value in tables.items():
        if not _is_table(value):
            continue
        key = _key(name)
        for header, table in [(f"[[{key}]]", t) for t in value] if isinstance(value, list) else [(f"[{key}]", value)]:
            lines += ["", header, *(f"{_key(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    tables = value if isinstance(value, list) and value else [value]
    return all(isinstance(table, Mapping) for table in tables)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return _text(value) if isinstance(value, str) else str(value).lower()  # true, nan
