"""The results of a run's jobs, gathered into the tables of the run folder.

Everything here is read from the store in the order of the plan, so the same suite and seeds give the same files to the
bit, however the run went.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runner.plan.job_base import Job
from xaibench.runner.plan.jobs import DataJob, ExplainJob, Network, ScoreJob
from xaibench.runner.plan.part_facts import part_info
from xaibench.runner.plan.planning import CellPlan, Plan
from xaibench.runner.stages.disk_samples import is_on_disk, write_visual
from xaibench.runner.stages.execution import (
    chosen_training,
    has_maps,
    read_correct,
    read_maps,
    read_test_samples,
    read_trainings,
)
from xaibench.runner.stages.sample_gallery import Gallery
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import write_atomic
from xaibench.runner.suites.suite_tables import NamedPart

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

#: A network counts as having learned its task from this test accuracy (in percent) on (XAI-TRIS, section 4.1).
LEARNED = 80.0


def collect(plan: Plan, store: Store, out: Path, failures: Mapping[Job, str]) -> None:
    """Write the run folder's tables: scores, accuracies, trainings, failures, parts and maps to look at.

    Args:
        plan: The jobs of the suite.
        store: Their results; those of failed jobs are missing, and so are their rows.
        out: The run folder.
        failures: Jobs that failed, and why.
    """
    data, trained = store.keys("data"), store.keys("train")
    cells = [cell for cell in plan.cells if _trained(cell, data, trained)]
    correct = _correct(cells, store, plan.suite.explaining.scored)
    write_atomic(out / "scores.parquet", functools.partial(_write_scores, cells, store, correct, out / ".merged"))
    trainings = [row for cell in cells for row in _training_rows(cell, store)]
    write_atomic(out / "trainings.csv", _csv(trainings, _TRAINING_COLUMNS))
    write_atomic(out / "accuracy.csv", _csv(_accuracy_rows(cells, trainings, store), _ACCURACY_COLUMNS))
    failed = [{"job": str(job), "stage": job.stage, "error": error} for job, error in failures.items()]
    write_atomic(out / "failures.csv", _csv(failed, ("job", "stage", "error")))
    write_atomic(out / "parts.json", json.dumps(_parts(plan), indent=2, ensure_ascii=False).encode())
    on_disk = [cell for cell in cells if is_on_disk(cell, store)]
    _write_examples([cell for cell in cells if cell not in on_disk], store, correct, out / "examples.safetensors")
    _write_gallery(cells, store, correct, out)
    if on_disk:
        write_visual([(_place(cell)[0], cell) for cell in on_disk], store, out)


def _trained(cell: CellPlan, data: Container[str], trained: Container[str]) -> bool:
    return cell.data.key in data and all(job.key in trained for job in cell.trainings)


def _correct(cells: Iterable[CellPlan], store: Store, scored: str) -> dict[DataJob, torch.Tensor]:
    """For each data set ``[n_test]`` bool: the samples that every explained network classifies correctly, or all."""
    correct: dict[DataJob, torch.Tensor] = {}
    for cell in cells:
        for network in cell.networks:
            right = read_correct(store, network)
            right = right | (scored == "all")
            correct[cell.data] = correct[cell.data] & right if cell.data in correct else right
    return correct


def _place(cell: CellPlan) -> tuple[str, str]:
    """Scenario and background of a cell; a set without is its own scenario, under the cell's label where it has one."""
    info = part_info("dataset", cell.data.name)
    scenario = cell.label or getattr(info, "scenario", "") or cell.data.name
    return scenario, getattr(info, "background", "") or "-"


def _write_scores(
    cells: Iterable[CellPlan], store: Store, correct: Mapping[DataJob, torch.Tensor], merged: Path, path: Path
) -> None:
    """One row group a cell, so that memory does not grow with the suite."""
    import pyarrow.parquet as pq

    marks = store.keys("score")
    with pq.ParquetWriter(path, _score_schema(), write_page_checksum=True) as writer:
        for cell in cells:
            table = cell_scores(cell, store, correct[cell.data].numpy(), marks, merged)
            if len(table):
                writer.write_table(table)


def cell_scores(cell: CellPlan, store: Store, correct: Any, marks: Mapping[str, str], merged: Path) -> pa.Table:
    """All scores of one cell; those that were merged before, and whose files are what they were, are not read again.

    Args:
        cell: The cell.
        store: Where its scores are; those of failed jobs are missing.
        correct: ``[n_test]`` bool.
        marks: ``store.keys("score")``.
        merged: Folder of the cells that were merged before.

    Raises:
        CorruptResultError: If one of them is damaged; it is set aside first.
    """
    shards = [(network, score) for network, score in cell.scores if score.key in marks]
    rows = [_constants(cell, network, score, store) for network, score in shards]
    keys = [score.key for _, score in shards]
    state = json.dumps([rows, [(key, marks[key]) for key in keys], correct.tobytes().hex()])
    identity = hashlib.sha256(state.encode()).hexdigest()
    path = merged / f"{cell.data.key}-{cell.model.replace(':', '.')}.parquet"
    table = _read_merged(path, identity)
    if table is None:
        table = _merge(rows, list(store.load_tables("score", keys)), correct)
        _keep_merged(path, identity, table)
    return table


#: Columns that are the same for every row of a shard, but for ``sample``, ``correct``, ``value`` and ``reason``.
_CONSTANT = (
    "dataset",
    "scenario",
    "background",
    "model",
    "seed",
    "explainer",
    "metric",
    "higher_is_better",
    "data_seed",
)


#: Columns of a shard that are rows of the scores; one of a metric with curves has these beside.
_OWN = ("sample", "value", "reason")


def _constants(cell: CellPlan, network: Network, score: ScoreJob, store: Store) -> tuple[Any, ...]:
    info = part_info("metric", score.metric.use)
    return (
        cell.label or cell.data.name,
        *_place(cell),
        cell.model,
        chosen_training(store, network)[1],
        score.explain.explainer.name,
        score.metric.name,
        bool(info.higher_is_better) if info else True,
        cell.data.seed,
    )


def _score_schema() -> pa.Schema:
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    columns = [(name, text) for name in ("dataset", "scenario", "background", "model")]
    columns += [("seed", whole), ("explainer", text), ("sample", whole), ("correct", pa.bool_()), ("metric", text)]
    columns += [("value", pa.float64()), ("higher_is_better", pa.bool_()), ("reason", text), ("data_seed", whole)]
    return pa.schema(columns)


def _merge(rows: list[tuple[Any, ...]], shards: list[pa.Table], correct: Any) -> pa.Table:
    """The rows of all shards, with their constants repeated."""
    import numpy as np
    import pyarrow as pa

    schema = _score_schema()
    if not shards:
        return schema.empty_table()
    which = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    own = pa.concat_tables([shard.select(_OWN).replace_schema_metadata() for shard in shards])
    columns = {name: own[name].cast(schema.field(name).type) for name in _OWN}
    columns["correct"] = pa.array(correct[own["sample"].to_numpy()])
    for name, values in zip(_CONSTANT, zip(*rows, strict=True), strict=True):
        columns[name] = pa.array(values, schema.field(name).type).take(pa.array(which))
    return pa.table([columns[name] for name in schema.names], schema)


def _read_merged(path: Path, identity: str) -> pa.Table | None:
    """A cell that was merged before; None when it is another one, not there, or damaged."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            same = (file.schema_arrow.metadata or {}).get(b"identity") == identity.encode()
            return file.read(use_threads=False).replace_schema_metadata() if same else None
    except (OSError, ValueError):
        return None


def _keep_merged(path: Path, identity: str, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    marked = table.replace_schema_metadata({"identity": identity})
    write_atomic(path, lambda partial: pq.write_table(marked, partial, write_page_checksum=True))


_TRAINING_COLUMNS = (
    *("scenario", "background", "model", "data_seed", "seed", "network_seed", "best_epoch"),
    *("val_loss", "val_accuracy", "test_accuracy", "explained"),
)


def _training_rows(cell: CellPlan, store: Store) -> Iterator[dict[str, Any]]:
    scenario, background = _place(cell)
    explained = {chosen_training(store, network)[1] for network in cell.networks}
    for job in cell.trainings:
        for record in read_trainings(store, job.key):
            yield {
                **{"scenario": scenario, "background": background, "model": cell.model, "data_seed": cell.data.seed},
                **record,
                "val_accuracy": 100 * record["val_accuracy"],
                "test_accuracy": 100 * record["test_accuracy"],
                "explained": record["seed"] in explained,
            }


_ACCURACY_COLUMNS = (
    *("scenario", "background", "model", "alpha", "trainings", "mean", "std", "best", "learned", "paper", "difference"),
)


def _accuracy_rows(
    cells: Iterable[CellPlan], trainings: Iterable[Mapping[str, Any]], store: Store
) -> Iterator[dict[str, Any]]:
    """One row for each scenario, background and model, over data seeds and training seeds; in percent."""
    import statistics

    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in trainings:
        groups.setdefault((row["scenario"], row["background"], row["model"]), []).append(row["test_accuracy"])
    places = {(*_place(cell), cell.model): cell for cell in cells}
    for (scenario, background, model), reached in groups.items():
        cell = places[scenario, background, model]
        paper = _published(cell, store)
        mean = statistics.fmean(reached)
        yield {
            **{"scenario": scenario, "background": background, "model": model},
            "alpha": store.load_meta("data", cell.data.key)["parameters"].get("alpha", ""),
            "trainings": len(reached),
            "mean": round(mean, 6),
            "std": round(statistics.pstdev(reached), 6),
            "best": round(max(reached), 6),
            "learned": sum(accuracy >= LEARNED for accuracy in reached),
            "paper": "" if paper is None else paper,
            "difference": "" if paper is None else round(mean - paper, 6),
        }


def _published(cell: CellPlan, store: Store) -> float | None:
    """The paper's accuracy for the cell, where it was run as the paper has it."""
    from xaibench.data import paper_accuracy, paper_alpha

    scenario, background = _place(cell)
    meta = store.load_meta("data", cell.data.key)
    size = meta["image_shape"][-1]
    if meta["parameters"].get("alpha") != paper_alpha(scenario, background, size):
        return None
    return paper_accuracy(scenario, background, size, cell.model)


def _csv(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parts(plan: Plan) -> dict[str, Any]:
    """What the report needs to know of the parts, so that a run folder can be reported on by itself."""
    suite = plan.suite
    models = {cell.model: NamedPart(cell.model, cell.model) for cell in plan.cells}
    return {
        "suite": suite.name,
        "title": suite.title,
        "citation": suite.citation,
        "explainers": {part.name: _described(part, "explainer", control=False) for part in suite.explainers},
        "models": {name: _described(part, "model") for name, part in models.items()},
        "metrics": {part.name: _described(part, "metric", higher_is_better=True, meaning="") for part in suite.metrics},
    }


def _described(part: NamedPart, kind: Any, **defaults: Any) -> dict[str, Any]:
    info = part_info(kind, part.use)
    # A part under a name of the suite's own is shown by that name: "lime-500" is not plain "LIME".
    label = info.label if info and part.name == part.use else part.name
    return {"label": label, **{name: getattr(info, name, default) for name, default in defaults.items()}} | {
        "citation": getattr(info, "citation", "")
    }


def _write_gallery(cells: Iterable[CellPlan], store: Store, correct: Mapping[DataJob, torch.Tensor], out: Path) -> None:
    """Of each scenario, background and model some samples of the first data set, with all their maps."""
    marks = store.keys("score")
    gallery = Gallery()
    chosen: dict[tuple[str, str], DataJob] = {}
    for cell in cells:
        if cell.scores and chosen.setdefault(_place(cell), cell.data) == cell.data:
            scores = cell_scores(cell, store, correct[cell.data].numpy(), marks, out / ".merged")
            gallery.add(cell, _place(cell), scores.to_pandas(), store)
    write_atomic(out / "gallery.safetensors", gallery.content())


def _write_examples(
    cells: Iterable[CellPlan], store: Store, correct: Mapping[DataJob, torch.Tensor], path: Path
) -> None:
    """For each scenario and background one sample, and every method's map of it and mean map over correct samples."""
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    chosen: dict[str, DataJob] = {}
    for cell in cells:
        place = "/".join(_place(cell))
        if not cell.scores or chosen.setdefault(place, cell.data) != cell.data:
            continue  # the figures show the first data set of a place
        first = cell.networks[0]
        for explain in dict.fromkeys(score.explain for network, score in cell.scores if network == first):
            tensors |= _example(explain, store, correct[cell.data], place, cell.model)
    write_atomic(path, save(tensors))


def _example(
    explain: ExplainJob, store: Store, correct: torch.Tensor, place: str, model: str
) -> dict[str, torch.Tensor]:
    images, masks, _ = read_test_samples(store, explain)
    right = correct[: len(images)].nonzero().flatten()
    if not len(right) or not has_maps(store, explain):
        return {}
    sample = int(right[0])
    maps = read_maps(store, explain).abs()
    shares = maps[right] / maps[right].sum((1, 2), keepdim=True)
    name = f"{place}/{model}/{explain.explainer.name}"
    return {
        f"{place}/image": images[sample].mean(0),
        f"{place}/mask": masks[sample].float(),
        f"{name}/example": maps[sample].float(),
        f"{name}/global": shares.nan_to_num().mean(0).float(),
    }
