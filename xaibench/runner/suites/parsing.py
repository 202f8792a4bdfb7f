"""Turn parsed TOML into a suite. Errors name the entry and its line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar, get_args

from xaibench.component.parameters import Frozen, annotations_of, check_types, is_of_type
from xaibench.core.checks import ParameterError
from xaibench.core.messages import unknown
from xaibench.runner.parts import Kind, registry
from xaibench.runner.suites.entry_locations import Origin, Place
from xaibench.runner.suites.schema import (
    METHODS,
    Cell,
    Data,
    Explaining,
    NamedPart,
    OptionalCells,
    Suite,
    SuiteError,
    Training,
)

_T = TypeVar("_T")


def parse_suite(tables: Mapping[str, Any], origin: Origin | str = "the suite") -> Suite:
    """Turn parsed TOML into a :class:`Suite`. Parts are listed under their registered names.

    Args:
        tables: The tables, as ``tomllib`` returns them.
        origin: The file, for error messages.

    Returns:
        The suite. Its parts are built later, by :func:`xaibench.runner.plan.plan.make_plan`.

    Raises:
        SuiteError: If an entry is unknown, missing or of the wrong type.
    """
    if isinstance(origin, str):
        origin = Origin(origin)
    values = dict(tables)
    for name, kind in (("data", Data), ("training", Training), ("explaining", Explaining)):
        values[name] = _table(kind, values.get(name, {}), origin.place(f"[{name}]", name))
    values["cells"] = _cells(values.get("cells", []), origin, "cells")
    kinds: dict[str, Kind] = {"explainers": "explainer", "metrics": "metric"}
    for name, part_kind in kinds.items():
        values[name] = _parts(part_kind, values.get(name, {}), origin, name)
        if not values[name]:
            raise SuiteError(f"{origin.name} names no {name}; add a table [{name}] with at least one entry.")
    if not values["cells"]:
        raise SuiteError(f"{origin.name} names no data sets and models; add a table [[cells]].")
    values["optional"] = _optional(values.get("optional", {}), origin)
    suite = dataclasses.replace(_table(Suite, values, origin.place()), origin=origin)
    _check(suite)
    return suite


def _optional(table: Any, origin: Origin) -> OptionalCells:
    """Read the cells and explainers that are run on request."""
    if not isinstance(table, Mapping):
        raise SuiteError(f"{origin.place('', 'optional')}: optional is {table!r}; expected tables [[optional.cells]].")
    values = dict(table)
    values["cells"] = _cells(values.get("cells", []), origin, "optional", "cells")
    values["explainers"] = _parts("explainer", values.get("explainers", {}), origin, "optional", "explainers")
    return _table(OptionalCells, values, origin.place("[optional]", "optional"))


def _cells(tables: Any, origin: Origin, *path: str) -> tuple[Cell, ...]:
    if not isinstance(tables, list | tuple):
        raise SuiteError(
            f"{origin.place('', *path)}: {path[-1]} is {tables!r}; expected one or more tables [[{'.'.join(path)}]]."
        )
    return tuple(_cell(table, number, origin, path) for number, table in enumerate(tables))


def _parts(kind: Kind, tables: Any, origin: Origin, *path: str) -> tuple[NamedPart, ...]:
    if not isinstance(tables, Mapping):
        name = path[-1]
        raise SuiteError(
            f"{origin.place('', *path)}: {name} is {tables!r}; expected a table, such as {name} = {{ NAME = {{}} }}."
        )
    place = origin.place(f"[{'.'.join(path)}]", *path)
    return tuple(_part(kind, key, table, place) for key, table in tables.items())


def _cell(table: Any, number: int, origin: Origin, path: tuple[str, ...]) -> Cell:
    place = origin.place(f"[[{'.'.join(path)}]] number {number + 1}", *path, number)
    cell = _table(Cell, table, place)
    inside = Place(origin, (*place.path, "training"), f"{place.words}, training")
    training = _table(Training, cell.training, inside)
    stated = {
        name: getattr(training, name) for name in cell.training
    }  # after conversion, such as of seeds = 3 to [0, 1, 2]
    return dataclasses.replace(
        cell,
        datasets=tuple(registry("dataset").canonical(name) for name in cell.datasets),
        models=tuple(registry("model").canonical(name) for name in cell.models),
        training=Frozen(stated),
        number=number,
    )


def _check(suite: Suite) -> None:
    """Check numbers and choices. Parts are checked when the jobs are planned."""
    origin, explaining = suite.origin, suite.explaining
    _check_seeds(suite.data.seeds, origin.place("", "data"), "data")
    _check_training(suite.training, origin.place("", "training"))
    for cell in suite.cells:
        place = origin.place(f"[[cells]] number {cell.number + 1}", "cells", cell.number, "training")
        _check_training(suite.training_of(cell), place)
        named = [metric.name for metric in suite.metrics]
        if undefined := [name for name in cell.metrics if name not in named]:
            metrics = origin.place(place.words, "cells", cell.number, "metrics")
            raise SuiteError(unknown(f"{metrics}: [metrics] has no", undefined[0], named))

    def refuse(name: str, expected: str, more: str = "") -> NoReturn:
        given = f"explaining.{name} is {getattr(explaining, name)!r}{more}"
        raise SuiteError(f"{origin.place('', 'explaining', name)}: {given}; expected {expected}.")

    if explaining.samples != "all" and explaining.samples < 1:
        refuse("samples", "1 or more")
    if explaining.samples_per_job < 0 or (explaining.samples_per_job and explaining.samples == "all"):
        more = f", with explaining.samples = {explaining.samples!r}"
        refuse("samples_per_job", "a number of 1 or more, with a number of samples, or 0 for one job", more)
    if explaining.seed < 0:
        refuse("seed", "0 or more")
    if not 0 <= explaining.min_accuracy <= 100:
        refuse("min_accuracy", "a percentage from 0 to 100")


def _check_training(training: Training, place: Place) -> None:
    from xaibench.models.training.fitting import Loss

    _check_seeds(training.seeds, place, "training")
    choices: dict[str, tuple[str, ...]] = {
        "method": METHODS,
        # Networks are built in float32; the precision of explanations is a field of Explaining.
        "precision": ("float32", "tf32", "bfloat16"),
        "loss": get_args(Loss),
    }
    expected = {name: f"one of {', '.join(known)}" for name, known in choices.items()}
    wrong = [name for name, known in choices.items() if getattr(training, name) not in known]
    wrong += [name for name in ("epochs", "batch_size", "stack") if getattr(training, name) < 1]
    wrong += [] if 0 < training.lr < math.inf else ["lr"]
    for name in wrong:
        given = f"training.{name} is {getattr(training, name)!r}"
        least = "a number above 0" if name == "lr" else "1 or more"
        raise SuiteError(f"{place.of(name)}: {given}; expected {expected.get(name, least)}.")


def _check_seeds(seeds: tuple[int, ...], place: Place, table: str) -> None:
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise SuiteError(
            f"{place.of('seeds')}: {table}.seeds is {list(seeds)}; expected one or more different whole numbers, none "
            "below 0."
        )


def _table(kind: type[_T], values: Any, place: Place) -> _T:
    """Build a dataclass from a TOML table, whose entries are checked against the fields."""
    if not isinstance(values, Mapping):
        raise SuiteError(f"{place}: expected a table, got {values!r}.")
    fields = {f.name: f for f in dataclasses.fields(kind) if f.compare}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise SuiteError(unknown(f"{place.of(name)}: unknown entry", name, fields))
    missing = [
        name
        for name, f in fields.items()
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise SuiteError(f"{place}: {', '.join(missing)} missing; add {'it' if len(missing) == 1 else 'them'}.")
    types = annotations_of(kind)
    return kind(**{name: _convert(name, value, types[name], place) for name, value in values.items()})


def _convert(name: str, value: Any, annotation: Any, place: Place) -> Any:
    """Check a value against the type of its field; lists become tuples, and tables of parameters are frozen."""
    where = f"{place.of(name)}: {name}"
    if annotation is Frozen:
        if not isinstance(value, Mapping):
            example = "{ n_samples = 1000 }"
            raise SuiteError(f"{where} is {value!r}; expected a table of parameters, such as {example}.")
        return _frozen(value, where)
    if annotation == tuple[int, ...] and is_of_type(value, int):
        value = list(range(value))
    try:
        check_types({name: value}, {name: annotation})
    except ParameterError as error:
        raise SuiteError(f"{place.of(name)}: {error}") from error
    return tuple(value) if isinstance(value, list) else value


def _part(kind: Kind, name: str, table: Any, place: Place) -> NamedPart:
    where = str(place.of(name))
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where}: {name} is {table!r}; expected a table of parameters, such as {name} = {{}}.")
    parameters = dict(table)
    use = parameters.pop("use", name)
    if not isinstance(use, str):
        raise SuiteError(f"{where}: {name}.use is {use!r}; expected the name of a part, or 'package.module:name'.")
    return NamedPart(name, registry(kind).canonical(use), _frozen(parameters, f"{place.of(name)}: {name}"))


def _frozen(table: Mapping[str, Any], where: str) -> Frozen:
    try:
        return Frozen(table)
    except TypeError as error:  # only for tables from Python
        raise SuiteError(f"{where}: {error}") from error
