"""Change a suite for a run: other parts, fewer data sets or samples, and only data sets that are there."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import tomli_w

from xaibench.registry.component import Component, registry
from xaibench.registry.parameters import Frozen
from xaibench.runner.parts import ExplainerPart, MetricPart, expand_variables
from xaibench.runner.suites.parsing import read_table
from xaibench.runner.suites.schema import MODEL, Cell, Data, OptionalCells, Suite, SuiteError, Training, errors_of

_P = TypeVar("_P", ExplainerPart, MetricPart)

#: The environment variable for the folder of photographs.
IMAGES = "XAIBENCH_IMAGES"

_VARIABLE = re.compile(r"\$\{?(\w+)")


def narrowed(suite: Suite, **choices: Any) -> Suite:
    """Return the suite with some of its data sets, or with other parts, samples or training.

    A model of the suite, also of its optional cells, runs in its own cells. Any other model replaces the models of
    every cell, or fills the place that a cell leaves open. Optional cells are dropped if no model of theirs is chosen.

    Args:
        suite: The suite as written.
        **choices: The fields of :class:`~xaibench.runner.RunRequest` that change the suite, as far as they are stated.

    Raises:
        SuiteError: If a data set is not in the suite, ``finetune`` is stated for networks that are not pretrained, a
            value cannot be used, or the suite leaves the model open and none is stated.
    """
    choices = {name: value for name, value in choices.items() if value is not None}
    for name in ("datasets", "models", "explainers", "metrics"):
        if isinstance(names := choices.get(name, ["all"]), str) or not names:
            raise SuiteError(f"{name} is {names!r}; expected a list of at least one name.", parameter=name)
    wanted_models = [registry("model").canonical(name) for name in choices["models"]] if "models" in choices else None
    suite = _with_optional(suite, wanted_models or [])
    cells: list[Cell] = list(suite.cells)
    if "datasets" in choices:
        cells = _choose_cells(suite, [registry("dataset").canonical(name) for name in choices["datasets"]])
    if wanted_models is not None:
        cells = [chosen for cell in cells for chosen in _with_models(cell, wanted_models, cells)]
    elif any(MODEL in model for cell in cells for model in cell.models):
        raise SuiteError(
            f"{suite.name} leaves the model open; give one with --model NAME (models=[...] in Python), such as "
            "efficientnet_lite0 or one of your own, mine:network.",
            parameter="models",
        )
    finetune, size = choices.get("finetune"), choices.get("size")
    if finetune not in (None, "head", "all"):
        raise SuiteError(f"finetune is {finetune!r}; expected 'head' or 'all'.", parameter="finetune")
    if finetune and suite.training.method not in ("head", "all"):
        raise SuiteError(
            f"{suite.name} trains no pretrained network (method {suite.training.method!r}); leave finetune out.",
            parameter="finetune",
        )
    explaining: dict[str, Any] = {name: choices[name] for name in ("samples", "protocol", "sign") if name in choices}
    if choices.get("samples") == "all":  # the number is unknown before the set is loaded
        explaining["samples_per_job"] = 0
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise SuiteError(f"size is {size!r}; expected a whole number of pixels, 1 or more.", parameter="size")
        cells = [_with_size(cell, size) for cell in cells]
    parameters: dict[str, Any] = {name: choices[name] for name in ("negatives", "window", "size") if name in choices}
    chosen_explainers, chosen_metrics = suite.explainers, suite.metrics
    if "explainers" in choices:
        chosen_explainers = _choose_parts(ExplainerPart, suite.explainers, choices["explainers"])
        cells = _with_explainers(cells, [part.name for part in chosen_explainers], suite)
    if "metrics" in choices:
        chosen_metrics = _choose_parts(MetricPart, suite.metrics, choices["metrics"])
        cells = _with_metrics(cells, [metric.name for metric in chosen_metrics], suite)
    if bool(chosen_explainers) != bool(chosen_metrics):
        missing = "metrics" if chosen_explainers else "explainers"
        raise SuiteError(f"{suite.name} only trains networks; state {missing}, too, or neither.", parameter=missing)
    return replace(
        suite,
        cells=tuple(cells),
        data=replace(suite.data, parameters=Frozen.keywords(suite.data.parameters, parameters)),
        training=_change(suite, suite.training, {"method": finetune} if finetune else {}),
        explaining=_change(suite, suite.explaining, explaining),
        explainers=chosen_explainers,
        metrics=chosen_metrics,
    )


def _change(suite: Suite, settings: Any, values: dict[str, Any]) -> Any:
    """Return settings with other values, which are checked as an entry of the suite is."""
    table = "[training]" if isinstance(settings, Training) else "[explaining]"
    return read_table(type(settings), vars(settings) | values, suite.source, table=table)


def _with_optional(suite: Suite, models: Sequence[str]) -> Suite:
    """Move the optional cells of the models to the cells of the suite, and drop the other optional cells.

    Explainers of optional cells are used in these cells only.
    """
    optional = suite.optional
    suite = replace(suite, optional=OptionalCells())
    wanted = [cell for cell in optional.cells if set(cell.models) & set(models)]
    if not wanted:
        return suite
    names = tuple(part.name for part in suite.explainers)
    cells = [replace(cell, explainers=cell.explainers or names) for cell in suite.cells]
    cells += [replace(cell, models=tuple(name for name in cell.models if name in models)) for cell in wanted]
    added = tuple(part for part in optional.explainers if part.name not in names)
    return replace(suite, cells=tuple(cells), explainers=suite.explainers + added)


def _with_models(cell: Cell, wanted: Sequence[str], every: Sequence[Cell]) -> Iterator[Cell]:
    """Yield the cell with the wanted models.

    Models of the cell are kept, and a place that it leaves open takes all of them. A model that is in no cell runs once
    per data set.
    """
    if left_open := [name for name in cell.models if MODEL in name]:
        models = tuple(name.replace(MODEL, model) for model in wanted for name in left_open)
        yield replace(cell, models=models)
        return
    known = {name for other in every for name in other.models}
    for dataset in cell.datasets:
        same = [c for c in every if dataset in c.datasets and (c.label, c.data) == (cell.label, cell.data)]
        models = tuple(model for model in wanted if model in cell.models or (model not in known and same[0] is cell))
        if models:
            yield replace(cell, datasets=(dataset,), models=models)


def _with_size(cell: Cell, size: int) -> Cell:
    """Set the size that a cell states for itself. A mosaic has ``side`` photographs per row."""
    if "size" not in cell.data:
        return cell
    return replace(cell, data=Frozen.keywords(cell.data, {"size": size * cell.data.get("side", 1)}))


def _with_metrics(cells: Sequence[Cell], chosen: Sequence[str], suite: Suite) -> list[Cell]:
    """Restrict the metrics that cells name to the chosen ones, and drop cells without metrics."""
    left = [(cell, tuple(name for name in cell.metrics if name in chosen)) for cell in cells]
    scored = [replace(cell, metrics=names) for cell, names in left if names or not cell.metrics]
    if not scored:
        raise SuiteError(
            f"{suite.name} has no cell that is scored by {', '.join(chosen)}; name other metrics.", parameter="metrics"
        )
    return scored


def _with_explainers(cells: Sequence[Cell], chosen: Sequence[str], suite: Suite) -> list[Cell]:
    """Restrict the explainers that cells name to the chosen ones, and add the new ones."""
    old = [part.name for part in suite.explainers]

    def restrict(names: tuple[str, ...]) -> tuple[str, ...]:
        return names and tuple(name for name in chosen if name in names or name not in old)

    return [replace(cell, explainers=restrict(cell.explainers)) for cell in cells]


def _choose_parts(kind: type[_P], parts: tuple[_P, ...], wanted: Sequence[str]) -> tuple[_P, ...]:
    """Return the wanted parts, with the parameters of the suite if it has them; for explainers also its controls."""
    chosen: list[_P] = []
    for name in wanted:
        use = registry(kind.kind).canonical(name)
        chosen += (
            [part for part in parts if part.name == name]
            or [part for part in parts if part.use == use]
            or [kind(use, use, table=f"[{kind.kind}s.{use}]")]
        )
    if kind is ExplainerPart:
        chosen += [part for part in parts if part.info.control]
    return tuple(dict.fromkeys(chosen))


def _choose_cells(suite: Suite, wanted: Sequence[str]) -> list[Cell]:
    known = {name for cell in suite.cells for name in (*cell.datasets, cell.label) if name}
    for name in wanted:
        if name not in known:
            raise SuiteError(
                f"{suite.name} has no data set {name!r}; it has: {', '.join(sorted(known))}.", parameter="datasets"
            )
    labeled = [cell for cell in suite.cells if cell.label in wanted]
    cells = [
        cell if cell in labeled else replace(cell, datasets=tuple(name for name in cell.datasets if name in wanted))
        for cell in suite.cells
    ]
    return [cell for cell in cells if cell.datasets]


def write_suite(suite: Suite) -> str:
    """Return a suite as TOML, with all settings of training and explaining."""
    return tomli_w.dumps(_to_tables(suite))


def _to_tables(value: Any) -> Any:
    if isinstance(value, Frozen):
        return dict(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Component):
        uses = {part.name: {} if part.use == part.name else {"use": part.use} for part in value}
        return {part.name: uses[part.name] | dict(part.parameters) for part in value}
    if isinstance(value, tuple):
        return [_to_tables(item) for item in value]
    if dataclasses.is_dataclass(value):
        stated = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
        return {
            name: _to_tables(entry)
            for name, entry in stated.items()
            if entry not in ("", (), Frozen(), OptionalCells())
        }
    return value


def without_missing(suite: Suite, *, download: bool = False) -> tuple[Suite, dict[str, str]]:
    """Replace environment variables in the names of data sets, and drop the data sets that are not there.

    Annotated sets are looked up in their folders. Sets that need photographs are there if a folder of them is stated.

    Args:
        suite: The suite.
        download: Download the annotated sets that are missing and whose license allows that.

    Returns:
        The suite, and ``{data set: how to get it}`` of the dropped sets.

    Raises:
        SuiteError: If no data set is there, or an environment variable is not set; describes how to get or set them.
    """
    from xaibench.data.annotated import AnnotatedSet, MissingDataError

    cells: list[Cell] = []
    missing: dict[str, str] = {}
    for cell in suite.cells:
        _check_variables(suite, cell, "datasets", " ".join(cell.datasets))
        cells.append(replace(cell, datasets=tuple(map(os.path.expandvars, cell.datasets))))
        values = list(cell.data.values())
        if IMAGES not in os.environ and (f"${IMAGES}" in values or f"${{{IMAGES}}}" in values):
            missing |= dict.fromkeys(cells[-1].datasets, _NO_IMAGES)
        for name in cells[-1].datasets:
            with errors_of(suite.source, cell.table, "datasets"):
                part = registry("dataset").resolve(name)
            if isinstance(part, AnnotatedSet):
                root = expand_variables(suite.data.parameters).get("root")
                try:
                    with errors_of(suite.source, "[data] parameters", "root"):
                        part.find(root, download=download)
                except MissingDataError as error:
                    missing[name] = f"{str(error).splitlines()[0]} {_advice(name, error.download)}"
    if missing:
        cells = [replace(cell, datasets=tuple(name for name in cell.datasets if name not in missing)) for cell in cells]
    suite = replace(suite, cells=tuple(cell for cell in cells if cell.datasets))
    if not suite.cells:
        raise SuiteError(f"{suite.name}: none of its data sets is there.\n\n" + "\n\n".join(missing.values()))
    for name, value in suite.data.parameters.items():
        _check_variables(suite, suite.data, f"parameters.{name}", value)
    for cell in suite.cells:
        for name, value in cell.data.items():
            _check_variables(suite, cell, f"data.{name}", value)
    return suite, missing


def _advice(name: str, download: str) -> str:
    if download:
        return f"--download (download=True in Python) gets it: {download}."
    return f"xaibench prepare {name} lists the steps by which to get it."


def _check_variables(suite: Suite, owner: Cell | Data, entry: str, value: object) -> None:
    for variable in _VARIABLE.findall(value) if isinstance(value, str) else ():
        if variable not in os.environ:
            option = "--root DIR (root= in Python), or " if variable == "XAIBENCH_DATA" else ""
            raise SuiteError(
                f"{value} needs the environment variable {variable}, which is not set. Give {option}{variable}=... "
                "xaibench run ..., or run a copy of the suite without these data sets.",
                suite=suite.source,
                table=getattr(owner, "table", "[data]"),
                parameter=entry,
            )


_NO_IMAGES = (
    f"It needs photographs: give a folder of them with --images DIR (images= in Python, or the variable {IMAGES}). "
    "The paper used the 50,000 validation images of ImageNet-1k. If there are fewer than samples, they are repeated."
)
