"""A suite: what is run, as one TOML file read into frozen dataclasses.

A suite names data sets, models, seeds, explainers and metrics with their parameters, and states every default once::

    name = "my-suite"
    title = "Two sets, one network"

    [data]                          # how each set is made
    seeds = [0]
    parameters = { n_samples = 10000 }      # handed to the data sets' loaders

    [training]
    seeds = [0, 1, 2]
    epochs = 500
    lr = 0.004

    [explaining]
    samples = 200                   # the first test samples; "all" for the whole test split
    trainings = "best"              # the one of lowest validation loss, or "all"

    [[cells]]                       # every data set with every model; a cell may change how it is made and trained
    datasets = ["xai-tris/rigid-white-8x8"]
    models = ["mlp", "cnn"]
    data = { alpha = 0.7 }
    training = { lr = 0.0004 }

    [explainers]                    # name = parameters; `use` when the name is not the part's own
    integrated_gradients = {}
    lime-500 = { use = "lime", n_samples = 500 }

    [metrics]
    emd_perf = {}

    [quick]                         # what `--quick` changes: any of the tables above
    training = { epochs = 10 }
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from xaibench.evaluation.protocol import PROTOCOLS, Protocol
from xaibench.registry import Registry
from xaibench.types import Output

#: The suites that come with the library: name -> file in ``xaibench/suites``.
SUITES = Registry(
    "suite",
    {
        "xai-tris-8x8": "xai-tris-8x8.toml",
        "xai-tris-8x8-paper": "xai-tris-8x8-paper.toml",
        "xai-tris-64x64": "xai-tris-64x64.toml",
        "xai-tris-64x64-paper": "xai-tris-64x64-paper.toml",
        "saliency-bench": "saliency-bench.toml",
        "pets-offline": "pets-offline.toml",
    },
)

#: How a network comes to its weights.
METHODS = ("fit", "head", "all", "none")

#: Parameters of a part: sorted pairs, so that they can be hashed; lists become tuples, tables become pairs.
Parameters = tuple[tuple[str, Any], ...]

_T = TypeVar("_T")


class SuiteError(ValueError):
    """A suite that cannot be run as it is written; the message names the file and the entry."""


@dataclass(frozen=True)
class Part:
    """A named part with its parameters, as a suite states it.

    Attributes:
        name: How it is called in the suite, the scores and the report.
        use: Registered name or ``"package.module:name"`` of the part itself.
        parameters: Keyword arguments.
    """

    name: str
    use: str
    parameters: Parameters = ()


@dataclass(frozen=True)
class Data:
    """How each data set is made: once for each seed, with the same parameters."""

    seeds: tuple[int, ...] = (0,)
    parameters: Parameters = ()


@dataclass(frozen=True)
class Training:
    """How each network is trained, once for each seed; see :func:`xaibench.models.fit`.

    ``stack`` networks of one data set and architecture are trained in one go, as one job. ``method`` is ``"fit"``
    (from scratch), ``"head"`` (the last layer of a pretrained network), ``"all"`` (the whole of one) or ``"none"`` (as
    it is).
    """

    seeds: tuple[int, ...] = (0,)
    epochs: int = 500
    lr: float = 0.004
    batch_size: int = 512
    loss: str = "logits"
    stack: int = 3
    method: str = "fit"


@dataclass(frozen=True)
class Explaining:
    """Which samples and networks are explained, and what of the network (see :func:`xaibench.explain`).

    ``output="default"`` leaves it to each explainer. ``scored="correct"`` restricts tables to the samples that every
    explained network classifies correctly; ``"all"`` takes all. ``protocol`` says how maps are cut by IoU, precision,
    recall and F1 (:mod:`xaibench.evaluation.protocol`).
    """

    samples: int | Literal["all"] = 200
    trainings: Literal["best", "all"] = "best"
    output: str = "default"
    seed: int = 0
    scored: Literal["correct", "all"] = "correct"
    protocol: Protocol = "published"


@dataclass(frozen=True)
class Cell:
    """Data sets and models that are combined, and what is different about their making and their training.

    A text in ``data`` may name variables of the environment, as ``images_dir = "$XAIBENCH_IMAGES"`` does. ``build``
    holds parameters of the models, such as ``fold = "pet"``; ``label`` names the cell's set in tables, where the same
    set stands in two cells.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    data: Parameters = ()
    training: Parameters = ()
    build: Parameters = ()
    label: str = ""


@dataclass(frozen=True)
class Suite:
    """Everything a run is made of. Read one with :func:`load_suite`."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    explainers: tuple[Part, ...]
    metrics: tuple[Part, ...]
    data: Data = field(default_factory=Data)
    training: Training = field(default_factory=Training)
    explaining: Explaining = field(default_factory=Explaining)
    citation: str = ""


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
        raise SuiteError(f"{origin} is not valid TOML: {error}") from error
    changes = tables.pop("quick", None)
    if quick:
        if changes is None:
            raise SuiteError(f"{origin} has no [quick] table, so there is no quick form of it; run it without --quick.")
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
    values["cells"] = tuple(_table(Cell, cell, f"{origin}, [[cells]] number {i + 1}") for i, cell in enumerate(cells))
    for name in ("explainers", "metrics"):
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
    if explaining.trainings not in ("best", "all"):
        raise SuiteError(f'{origin}: explaining.trainings is {explaining.trainings!r}; expected "best" or "all".')
    if explaining.output not in ("default", *get_args(Output)):
        known = ", ".join(("default", *get_args(Output)))
        raise SuiteError(f"{origin}: explaining.output is {explaining.output!r}; expected one of {known}.")
    choices = {
        "training.method": (training.method, METHODS),
        "explaining.scored": (explaining.scored, ("correct", "all")),
        "explaining.protocol": (explaining.protocol, PROTOCOLS),
    }
    for name, (given, known_ones) in choices.items():
        if given not in known_ones:
            raise SuiteError(f"{origin}: {name} is {given!r}; expected one of {', '.join(known_ones)}.")
    for name, seeds in (("data", suite.data.seeds), ("training", training.seeds)):
        if not seeds or len(set(seeds)) < len(seeds):
            raise SuiteError(f"{origin}: {name}.seeds is {list(seeds)}; expected one or more different whole numbers.")


def check_variables(suite: Suite) -> None:
    """Look whether the variables of the environment that the suite's data name are set.

    Raises:
        SuiteError: If one is not; names it and where it stands.
    """
    places = [("[data] parameters", suite.data.parameters)]
    places += [(f"the cell of {', '.join(cell.datasets)}", cell.data) for cell in suite.cells]
    for place, parameters in places:
        for name, value in parameters:
            for variable in re.findall(r"\$\{?(\w+)", value) if isinstance(value, str) else ():
                if variable not in os.environ:
                    raise SuiteError(
                        f"{suite.name}, {place}: {name} is {value!r}, but the environment has no {variable}. Set it "
                        f"({variable}=... xaibench run ...), or run a copy of the suite without these data sets."
                    )


def _read(source: str | Path) -> tuple[str, str]:
    name = str(source)
    path = Path(name).expanduser()
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise SuiteError(f"cannot read the suite {path}: {error}. Known suites: {', '.join(SUITES)}.") from error
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
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise SuiteError(f"{where}: unknown entry {name!r}; {hint}known: {', '.join(fields)}.")
    missing = [
        name
        for name, f in fields.items()
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise SuiteError(f"{where}: {', '.join(missing)} missing.")
    return kind(**{name: _typed(value, str(fields[name].type), f"{where}: {name}") for name, value in values.items()})


def _typed(value: Any, annotation: str, where: str) -> Any:
    """``value`` frozen and checked against the (string) annotation of its field."""
    if annotation == "Parameters":
        return freeze(value)
    if annotation == "tuple[int, ...]" and isinstance(value, int) and not isinstance(value, bool):
        value = list(range(value))
    expected = {
        "str": str,
        "int": int,
        "float": (int, float),
        "tuple[int, ...]": (list, tuple),
        "tuple[str, ...]": (list, tuple),
    }.get(annotation)
    wrong_items = annotation == "tuple[int, ...]" and not all(type(item) is int for item in value)
    if (expected and not isinstance(value, expected)) or isinstance(value, bool) or wrong_items:  # type: ignore[arg-type]
        raise SuiteError(f"{where} is {value!r}; expected {annotation}.")
    if annotation.startswith("int | Literal") and value != "all" and not isinstance(value, int):
        raise SuiteError(f'{where} is {value!r}; expected a whole number or "all".')
    return freeze(value) if isinstance(value, list) else value


def _part(name: str, table: Any, where: str) -> Part:
    if not isinstance(table, Mapping):
        raise SuiteError(f"{where}: {name} is {table!r}; expected a table of parameters, such as {name} = {{}}.")
    parameters = dict(table)
    use = parameters.pop("use", name)
    return Part(name, use, freeze(parameters))


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def freeze(value: Any) -> Any:
    """``value`` with tables as sorted pairs and lists as tuples, so that it can be hashed and compared.

    Example:
        >>> freeze({"b": [1, 2], "a": 0.5})
        (('a', 0.5), ('b', (1, 2)))
    """
    if isinstance(value, Mapping):
        return tuple(sorted((key, freeze(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value


def thaw(parameters: Parameters) -> dict[str, Any]:
    """Frozen parameters as keyword arguments; nested tables stay pairs, lists stay tuples."""
    return dict(parameters)


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
        for header, table in [(f"[[{name}]]", t) for t in value] if isinstance(value, list) else [(f"[{name}]", value)]:
            lines += ["", header, *(f"{_key(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | str) else repr(value)
