"""A suite made to fit: other parts, fewer sets or samples, and without the sets that are not there."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from xaibench.runner.plan.part_facts import Kind, part_info, registry
from xaibench.runner.suites.suite_tables import MODEL, Cell, NamedPart, OptionalCells, Suite, SuiteError, with_variables
from xaibench.runner.suites.toml_writing import to_toml

#: The variable of the environment that names the folder of photographs.
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
) -> Suite:
    """The suite with some of its data sets, with other parts, of other samples, or with another training.

    Args:
        suite: As written.
        datasets: Names or labels of the sets to keep; None = all.
        models: Those of the suite's, as their cells are written, one among its optional cells too; a model that these
            data sets' cells do not have stands instead of theirs, or in the place that a cell leaves open. None = the
            suite's own, without the optional ones.
        explainers: Instead of the suite's own, whose parameters they have where they are among them; its controls stay,
            since maps are judged beside them. None = those.
        metrics: Instead of the suite's own, likewise; None = those.
        samples: The first so many test samples, or ``"all"``; None = as the suite says.
        finetune: ``"head"`` or ``"all"``, of suites that train pretrained networks.
        protocol: How maps are cut, ``"scaled"`` or ``"published"``.

    Raises:
        SuiteError: If a set is not in the suite, its networks are not pretrained ones, or it leaves the network open
            and none is given.
    """
    lists = {"datasets": datasets, "models": models, "explainers": explainers, "metrics": metrics}
    for what, given in lists.items():
        if given is not None and (isinstance(given, str) or not given):
            raise SuiteError(f"{what} is {given!r}; expected a list of at least one name.")
    asked = None if models is None else [registry("model").canonical(name) for name in models]
    suite = _with_optional(suite, asked or [])
    cells: list[Cell] = list(suite.cells)
    if datasets is not None:
        cells = _chosen(suite, [registry("dataset").canonical(name) for name in datasets])
    if asked is not None:
        cells = [chosen for cell in cells for chosen in _of_models(cell, asked, cells)]
    elif any(MODEL in model for cell in cells for model in cell.models):
        raise SuiteError(
            f"{suite.name} leaves the network open; give one with --model NAME (models=[...] in Python), such as "
            "efficientnet_lite0 or one of your own, mine:network."
        )
    training, explaining = suite.training, suite.explaining
    if samples is not None:
        if samples != "all" and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
            raise SuiteError(f"samples is {samples!r}; expected a whole number of 1 or more, or 'all'.")
        cut = 0 if samples == "all" else explaining.samples_per_job  # how many all are, nobody knows beforehand
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
        if protocol not in ("scaled", "published"):
            raise SuiteError(f"protocol is {protocol!r}; expected 'scaled' or 'published'.")
        explaining = dataclasses.replace(explaining, protocol=protocol)  # type: ignore[arg-type]
    kept = _parts("metric", suite.metrics, metrics)
    explained = _parts("explainer", suite.explainers, explainers)
    cells = _of_explainers(cells, [part.name for part in explained], suite)
    return dataclasses.replace(
        suite,
        cells=tuple(_of_metrics(cells, [metric.name for metric in kept], suite)),
        training=training,
        explaining=explaining,
        explainers=explained,
        metrics=kept,
    )


def _with_optional(suite: Suite, models: Sequence[str]) -> Suite:
    """The suite without its optional cells, or with those of the models among its own.

    What explains in them explains in no other cell, and each entry keeps its line.
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


def _of_models(cell: Cell, given: Sequence[str], every: Sequence[Cell]) -> Iterator[Cell]:
    """What is run of a cell with the given models.

    Those that it has, as it is written; others in the place that it leaves open. A model that no cell has stands once
    for each data set, instead of the cells' own.
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


def _of_metrics(cells: Sequence[Cell], kept: Sequence[str], suite: Suite) -> list[Cell]:
    """The cells that some of the metrics score; of those that a cell names, what is left."""
    left = [(cell, tuple(name for name in cell.metrics if name in kept)) for cell in cells]
    found = [dataclasses.replace(cell, metrics=own) for cell, own in left if own or not cell.metrics]
    if not found:
        raise SuiteError(f"{suite.name} has no cell that is scored by {', '.join(kept)}; name other metrics.")
    return found


def _of_explainers(cells: Sequence[Cell], kept: Sequence[str], suite: Suite) -> list[Cell]:
    """The cells; of those that name explainers, with what is kept of them and what is none of the suite's."""
    own = [part.name for part in suite.explainers]
    return [
        dataclasses.replace(
            cell, explainers=cell.explainers and tuple(n for n in kept if n in cell.explainers or n not in own)
        )
        for cell in cells
    ]


def _parts(kind: Kind, own: Sequence[NamedPart], wanted: Sequence[str] | None) -> tuple[NamedPart, ...]:
    """The parts of these names, as the suite has them where it has them; of explainers also the suite's controls."""
    if wanted is None:
        return tuple(own)
    found: list[NamedPart] = []
    for name in wanted:
        use = registry(kind).canonical(name)
        called = [part for part in own if part.name == name] or [part for part in own if part.use == use]
        found += called or [NamedPart(use, use)]
    if kind == "explainer":
        found += [part for part in own if getattr(part_info(kind, part.use), "control", False)]
    return tuple(dict.fromkeys(found))


def _chosen(suite: Suite, wanted: Sequence[str]) -> list[Cell]:
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
    """The TOML of the suite as run: as written, or with what :func:`narrowed` has changed."""
    if not changed:
        return text
    tables = tomllib.loads(text)
    for unused in ("quick", "optional"):
        tables.pop(unused, None)
    tables["training"] = tables.get("training", {}) | {"method": suite.training.method}
    how = suite.explaining
    changed_now = {"protocol": how.protocol, "samples": how.samples, "samples_per_job": how.samples_per_job}
    tables["explaining"] = tables.get("explaining", {}) | changed_now
    tables["cells"] = [_cell_table(cell) for cell in suite.cells]
    tables["explainers"] = {part.name: _part_table("explainer", part) for part in suite.explainers}
    tables["metrics"] = {part.name: _part_table("metric", part) for part in suite.metrics}
    return "# As run, with what the command line has changed.\n" + to_toml(tables)


def _part_table(kind: Kind, part: NamedPart) -> dict[str, Any]:
    own = registry(kind).canonical(part.name) == part.use
    return ({} if own else {"use": part.use}) | dict(part.parameters)


def _cell_table(cell: Cell) -> dict[str, Any]:
    table: dict[str, Any] = {"label": cell.label} if cell.label else {}
    table |= {"datasets": list(cell.datasets), "models": list(cell.models)}
    table |= {name: list(names) for name in ("explainers", "metrics") if (names := getattr(cell, name))}
    return table | {name: dict(values) for name in ("data", "training", "build") if (values := getattr(cell, name))}


def without_missing(suite: Suite) -> tuple[Suite, dict[str, str]]:
    """The suite without the sets that are not there, and for each of those, how to get it.

    Annotated sets are looked for where they lie; sets on photographs are there if a folder of these is given.

    Raises:
        SuiteError: If none of its sets is there; says how to get them.
    """
    from xaibench.data.annotated import AnnotatedSet, MissingDataError

    missing = {name: _NO_IMAGES for cell in suite.cells if _lacks_images(cell) for name in cell.datasets}
    for name in dict.fromkeys(name for cell in suite.cells for name in cell.datasets):
        part = registry("dataset").resolve(name)
        if isinstance(part, AnnotatedSet):
            root = with_variables(dict(suite.data.parameters)).get("root")
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
    f"It lies on photographs: give a folder of them with --images DIR (images= in Python, or the variable {IMAGES}). "
    "The paper took the 50,000 validation images of ImageNet-1k; where there are fewer than samples, each is repeated."
)


def _lacks_images(cell: Cell) -> bool:
    return IMAGES not in os.environ and any(value in (f"${IMAGES}", f"${{{IMAGES}}}") for value in cell.data.values())
