"""From parsed TOML to a suite, with an error that names the entry and its line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar, get_args

from xaibench.core.frozen import Frozen
from xaibench.core.messages import unknown
from xaibench.core.vocabulary import Output, Precision
from xaibench.evaluation.protocol import PROTOCOLS
from xaibench.runner.plan.part_facts import Kind, registry
from xaibench.runner.suites.entry_places import Origin, Place
from xaibench.runner.suites.suite_tables import (
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

#: The types of entries as error messages say them.
_IN_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple[int, ...]": "a list of whole numbers",
    "tuple[str, ...]": "a list of texts",
}

_T = TypeVar("_T")


def parse_suite(tables: Mapping[str, Any], origin: Origin | str = "the suite") -> Suite:
    """Turn parsed TOML into a :class:`Suite`, with every part under its listed name, however it was written.

    Args:
        tables: As ``tomllib`` reads them.
        origin: Where they are from, for error messages.

    Returns:
        The suite. Its parts are not built yet (:func:`xaibench.runner.plan.planning.make_plan` does).

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
    """What is run on request, read as the suite's own cells and explainers are."""
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
    stated = {name: getattr(training, name) for name in cell.training}  # seeds = 3 is seeds = [0, 1, 2] by now
    return dataclasses.replace(
        cell,
        datasets=tuple(registry("dataset").canonical(name) for name in cell.datasets),
        models=tuple(registry("model").canonical(name) for name in cell.models),
        training=Frozen(stated),
        number=number,
    )


def _check(suite: Suite) -> None:
    """Look at numbers and choices; parts are looked at when the jobs are planned."""
    origin, explaining = suite.origin, suite.explaining
    _check_seeds(suite.data.seeds, origin.place("", "data"), "data")
    _check_training(suite.training, origin.place("", "training"))
    for cell in suite.cells:
        place = origin.place(f"[[cells]] number {cell.number + 1}", "cells", cell.number, "training")
        _check_training(suite.training_of(cell), place)
        named = [metric.name for metric in suite.metrics]
        if strange := [name for name in cell.metrics if name not in named]:
            of_metrics = origin.place(place.words, "cells", cell.number, "metrics")
            raise SuiteError(unknown(f"{of_metrics}: [metrics] has no", strange[0], named))

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
    choices: dict[str, tuple[str, ...]] = {
        "trainings": ("best", "all"),
        "output": ("default", *get_args(Output)),
        "precision": ("own", *get_args(Precision)),
        "scored": ("correct", "all"),
        "protocol": PROTOCOLS,
    }
    for name, known in choices.items():
        if getattr(explaining, name) not in known:
            refuse(name, f"one of {', '.join(known)}")


def _check_training(training: Training, place: Place) -> None:
    from xaibench.models.training.fitting import Loss

    _check_seeds(training.seeds, place, "training")
    choices: dict[str, tuple[str, ...]] = {
        "method": METHODS,
        # A network is built in float32; in which it is explained is another matter.
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
    """Build the dataclass ``kind`` from a TOML table; entries are checked against its fields."""
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
    typed = {n: _typed(value, str(fields[n].type), f"{place.of(n)}: {n}") for n, value in values.items()}
    return kind(**typed)


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
        "bool": bool,
        "tuple[int, ...]": (list, tuple),
        "tuple[str, ...]": (list, tuple),
    }.get(annotation)
    of = {"tuple[int, ...]": int, "tuple[str, ...]": str}.get(annotation)
    wrong = bool(expected) and not isinstance(value, expected)  # type: ignore[arg-type]
    if (
        wrong
        or isinstance(value, bool) != (annotation == "bool")
        or (of and not all(type(item) is of for item in value))
    ):
        raise SuiteError(f"{where} is {value!r}; expected {_IN_WORDS.get(annotation, annotation)}.")
    if annotation.startswith("int | Literal") and value != "all" and not isinstance(value, int):
        raise SuiteError(f'{where} is {value!r}; expected a whole number or "all".')
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
    except TypeError as error:  # of tables that come from Python
        raise SuiteError(f"{where}: {error}") from error
