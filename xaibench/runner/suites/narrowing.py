"""Change a suite for a run: other parts, fewer data sets or samples, and only data sets that are there."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from xaibench.component.parameters import Frozen
from xaibench.evaluation.protocol import PROTOCOLS, SIGNS
from xaibench.runner.parts import Kind, expand_variables, find_part, registry
from xaibench.runner.suites.schema import MODEL, Cell, NamedPart, OptionalCells, Suite, SuiteError
from xaibench.runner.suites.toml_writing import to_toml

#: The environment variable for the folder of photographs.
IMAGES = "XAIBENCH_IMAGES"


def narrowed(
    suite: Suite,
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    explainers: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    samples: int | Literal["all"] | None = None,
    finetune: str | None = None,
    protocol: str | None = None,
    sign: str | None = None,
    negatives: str | Sequence[str] | None = None,
    window: str | Sequence[float] | None = None,
    size: int | None = None,
) -> Suite:
    """Return the suite with some of its data sets, or with other parts, samples or training.

    Args:
        suite: The suite as written.
        datasets: Names or labels of the data sets to keep; None = all.
        models: Models to run. A model of the suite, also of its optional cells, runs in its own cells. Any other model
            replaces the models of every cell, or fills the place that a cell leaves open. None = all models of the
            suite, without its optional cells.
        explainers: Explainers to run. Explainers of the suite keep its parameters. Its controls are added, because maps
            are compared with them. None = all explainers of the suite.
        metrics: Metrics to run, in the same way; None = all metrics of the suite.
        samples: Number of test samples from the first one, or ``"all"``; None = the number in the suite.
        finetune: ``"head"`` or ``"all"``, for suites that train pretrained networks.
        protocol: ``"area"``, ``"scaled"`` or ``"published"`` (:mod:`xaibench.evaluation.protocol`).
        sign: ``"magnitude"`` or ``"signed"`` (:mod:`xaibench.evaluation.protocol`).
        negatives: The parameter ``negatives`` of the data sets.
        window: The parameter ``window`` of the data sets.
        size: The parameter ``size`` of the data sets, the side of the images in pixels; of mosaics, the side of each
            photograph in them.

    Raises:
        SuiteError: If a data set is not in the suite, ``finetune`` is given for networks that are not pretrained, the
            size is not a whole number above 0, or the suite leaves the model open and none is given.
    """
    lists = {"datasets": datasets, "models": models, "explainers": explainers, "metrics": metrics}
    for field, given in lists.items():
        if given is not None and (isinstance(given, str) or not given):
            raise SuiteError(f"{field} is {given!r}; expected a list of at least one name.")
    given_models = None if models is None else [registry("model").canonical(name) for name in models]
    suite = _with_optional(suite, given_models or [])
    cells: list[Cell] = list(suite.cells)
    if datasets is not None:
        cells = _choose_cells(suite, [registry("dataset").canonical(name) for name in datasets])
    if given_models is not None:
        cells = [chosen for cell in cells for chosen in _with_models(cell, given_models, cells)]
    elif any(MODEL in model for cell in cells for model in cell.models):
        raise SuiteError(
            f"{suite.name} leaves the model open; give one with --model NAME (models=[...] in Python), such as "
            "efficientnet_lite0 or one of your own, mine:network."
        )
    training, explaining = suite.training, suite.explaining
    if samples is not None:
        if samples != "all" and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
            raise SuiteError(f"samples is {samples!r}; expected a whole number of 1 or more, or 'all'.")
        cut = 0 if samples == "all" else explaining.samples_per_job  # the number is unknown before the set is loaded
        explaining = dataclasses.replace(explaining, samples=samples, samples_per_job=cut)
    if finetune is not None:
        if training.method not in ("head", "all"):
            raise SuiteError(
                f"{suite.name} trains no pretrained network (method {training.method!r}); leave finetune out."
            )
        if finetune not in ("head", "all"):
            raise SuiteError(f"finetune is {finetune!r}; expected 'head' or 'all'.")
        training = dataclasses.replace(training, method=finetune)
    if protocol is not None:
        if protocol not in PROTOCOLS:
            raise SuiteError(f"protocol is {protocol!r}; expected 'area', 'scaled' or 'published'.")
        explaining = dataclasses.replace(explaining, protocol=protocol)
    if sign is not None:
        if sign not in SIGNS:
            raise SuiteError(f"sign is {sign!r}; expected 'magnitude' or 'signed'.")
        explaining = dataclasses.replace(explaining, sign=sign)
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise SuiteError(f"size is {size!r}; expected a whole number of pixels, 1 or more.")
        cells = [_with_size(cell, size) for cell in cells]
    chosen = {"negatives": negatives, "window": window, "size": size}
    options = {name: value for name, value in chosen.items() if value is not None}
    kept = _choose_parts("metric", suite.metrics, metrics)
    explained = _choose_parts("explainer", suite.explainers, explainers)
    cells = _with_explainers(cells, [part.name for part in explained], suite)
    return dataclasses.replace(
        suite,
        cells=tuple(_with_metrics(cells, [metric.name for metric in kept], suite)),
        data=dataclasses.replace(suite.data, parameters=Frozen.keywords(suite.data.parameters, options)),
        training=training,
        explaining=explaining,
        explainers=explained,
        metrics=kept,
    )


def _with_optional(suite: Suite, models: Sequence[str]) -> Suite:
    """Move the optional cells of the models to the cells of the suite, and drop the other optional cells.

    Explainers of optional cells are used in these cells only. Every entry keeps its line number.
    """
    optional = suite.optional
    found = [cell for cell in optional.cells if set(cell.models) & set(models)]
    suite = dataclasses.replace(suite, optional=OptionalCells())
    if not found:
        return suite
    own, count = tuple(part.name for part in suite.explainers), len(suite.cells)
    cells = [dataclasses.replace(cell, explainers=cell.explainers or own) for cell in suite.cells]
    for cell in found:
        kept = tuple(name for name in cell.models if name in models)
        cells.append(dataclasses.replace(cell, models=kept, number=count + cell.number))
    lines = dict(suite.origin.lines)
    for path, line in suite.origin.lines.items():
        if path[:2] == ("optional", "explainers"):
            lines[path[1:]] = line
        elif path[:2] == ("optional", "cells") and len(path) > 2:
            lines["cells", count + int(path[2]), *path[3:]] = line
    return dataclasses.replace(
        suite,
        cells=tuple(cells),
        explainers=suite.explainers + tuple(part for part in optional.explainers if part.name not in own),
        origin=dataclasses.replace(suite.origin, lines=lines),
    )


def _with_models(cell: Cell, given: Sequence[str], every: Sequence[Cell]) -> Iterator[Cell]:
    """Yield the cell with the given models.

    Models of the cell are kept, and a place that it leaves open takes all of them. A model that is in no cell runs once
    per data set.
    """
    if left_open := [own for own in cell.models if MODEL in own]:
        models = tuple(own.replace(MODEL, model) for model in given for own in left_open)
        yield dataclasses.replace(cell, models=models)
        return
    known = {name for other in every for name in other.models}
    for dataset in cell.datasets:
        same = [c for c in every if dataset in c.datasets and (c.label, c.data) == (cell.label, cell.data)]
        models = tuple(model for model in given if model in cell.models or (model not in known and same[0] is cell))
        if models:
            yield dataclasses.replace(cell, datasets=(dataset,), models=models)


def _with_size(cell: Cell, size: int) -> Cell:
    """Set the size that a cell states for itself. A mosaic has ``side`` photographs per row."""
    if "size" not in cell.data:
        return cell
    return dataclasses.replace(cell, data=Frozen.keywords(cell.data, {"size": size * cell.data.get("side", 1)}))


def _with_metrics(cells: Sequence[Cell], kept: Sequence[str], suite: Suite) -> list[Cell]:
    """Restrict the metrics that cells name to the kept ones, and drop cells without metrics."""
    left = [(cell, tuple(name for name in cell.metrics if name in kept)) for cell in cells]
    found = [dataclasses.replace(cell, metrics=own) for cell, own in left if own or not cell.metrics]
    if not found:
        raise SuiteError(f"{suite.name} has no cell that is scored by {', '.join(kept)}; name other metrics.")
    return found


def _with_explainers(cells: Sequence[Cell], kept: Sequence[str], suite: Suite) -> list[Cell]:
    """Restrict the explainers that cells name to the kept ones, and add the new ones."""
    own = [part.name for part in suite.explainers]
    return [
        dataclasses.replace(
            cell, explainers=cell.explainers and tuple(n for n in kept if n in cell.explainers or n not in own)
        )
        for cell in cells
    ]


def _choose_parts(kind: Kind, own: Sequence[NamedPart], wanted: Sequence[str] | None) -> tuple[NamedPart, ...]:
    """Return the wanted parts, with the parameters of the suite if it has them; for explainers also its controls."""
    if wanted is None:
        return tuple(own)
    found: list[NamedPart] = []
    for name in wanted:
        use = registry(kind).canonical(name)
        called = [part for part in own if part.name == name] or [part for part in own if part.use == use]
        found += called or [NamedPart(use, use)]
    if kind == "explainer":
        found += [part for part in own if find_part("explainer", part.use).is_control]
    return tuple(dict.fromkeys(found))


def _choose_cells(suite: Suite, wanted: Sequence[str]) -> list[Cell]:
    known = {name for cell in suite.cells for name in (*cell.datasets, *([cell.label] if cell.label else []))}
    for name in wanted:
        if name not in known:
            raise SuiteError(f"{suite.name} has no data set {name!r}; it has: {', '.join(sorted(known))}.")
    kept = []
    for cell in suite.cells:
        names = cell.datasets if cell.label in wanted else tuple(name for name in cell.datasets if name in wanted)
        if names:
            kept.append(dataclasses.replace(cell, datasets=names))
    return kept


def narrowed_text(text: str, suite: Suite, changed: bool) -> str:
    """Return the TOML of the suite: as written, or with the changes of :func:`narrowed`."""
    if not changed:
        return text
    tables = tomllib.loads(text)
    for unused in ("quick", "optional"):
        tables.pop(unused, None)
    tables["training"] = tables.get("training", {}) | {"method": suite.training.method}
    if suite.data.parameters:
        tables["data"] = tables.get("data", {}) | {"parameters": dict(suite.data.parameters)}
    how = suite.explaining
    names = ("protocol", "sign", "samples", "samples_per_job")
    tables["explaining"] = tables.get("explaining", {}) | {name: getattr(how, name) for name in names}
    tables["cells"] = [_cell_table(cell) for cell in suite.cells]
    tables["explainers"] = {part.name: _part_table("explainer", part) for part in suite.explainers}
    tables["metrics"] = {part.name: _part_table("metric", part) for part in suite.metrics}
    return "# As run, with the changes of the command line.\n" + to_toml(tables)


def _part_table(kind: Kind, part: NamedPart) -> dict[str, Any]:
    own = registry(kind).canonical(part.name) == part.use
    return ({} if own else {"use": part.use}) | dict(part.parameters)


def _cell_table(cell: Cell) -> dict[str, Any]:
    table: dict[str, Any] = {"label": cell.label} if cell.label else {}
    table |= {"datasets": list(cell.datasets), "models": list(cell.models)}
    table |= {name: list(names) for name in ("explainers", "metrics") if (names := getattr(cell, name))}
    return table | {name: dict(values) for name in ("data", "training", "build") if (values := getattr(cell, name))}


def without_missing(suite: Suite) -> tuple[Suite, dict[str, str]]:
    """Drop the data sets that are not there.

    Annotated sets are looked up in their folders. Sets that need photographs are there if a folder of them is given.

    Returns:
        The suite, and ``{data set: how to get it}`` of the dropped sets.

    Raises:
        SuiteError: If no data set is there; tells how to get them.
    """
    from xaibench.data.annotated import AnnotatedSet, MissingDataError

    missing = {name: _NO_IMAGES for cell in suite.cells if _needs_images(cell) for name in cell.datasets}
    for name in dict.fromkeys(name for cell in suite.cells for name in cell.datasets):
        part = registry("dataset").resolve(name)
        if isinstance(part, AnnotatedSet):
            root = expand_variables(suite.data.parameters).get("root")
            try:
                part.find(root)
            except MissingDataError as error:
                missing[name] = str(error)
    cells = [
        dataclasses.replace(cell, datasets=tuple(name for name in cell.datasets if name not in missing))
        for cell in suite.cells
    ]
    kept = tuple(cell for cell in cells if cell.datasets)
    if not kept:
        raise SuiteError(f"{suite.name}: none of its data sets is there.\n\n" + "\n\n".join(missing.values()))
    return dataclasses.replace(suite, cells=kept), missing


_NO_IMAGES = (
    f"It needs photographs: give a folder of them with --images DIR (images= in Python, or the variable {IMAGES}). "
    "The paper used the 50,000 validation images of ImageNet-1k. If there are fewer than samples, they are repeated."
)


def _needs_images(cell: Cell) -> bool:
    return IMAGES not in os.environ and any(value in (f"${IMAGES}", f"${{{IMAGES}}}") for value in cell.data.values())
