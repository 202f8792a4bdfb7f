"""The results of a run's jobs, gathered into the tables of the run folder.

Everything here is read from the store in the order of the plan, so the same suite and seeds give the same files to the
bit, however the run went.
"""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runner.job import chosen_training, read_data, read_test_samples, read_training
from xaibench.runner.parts import part_info
from xaibench.runner.plan import CellPlan, DataJob, ExplainJob, Job, Plan
from xaibench.runner.store import Store, write_atomic
from xaibench.runner.suite import Part

if TYPE_CHECKING:
    import pandas as pd
    import torch

#: A network counts as having learned its task from this test accuracy (in percent) on (XAI-TRIS, section 4.1).
LEARNED = 80.0


def collect(plan: Plan, store: Store, out: Path, failures: Mapping[Job, str]) -> None:
    """Write the run folder's tables: scores, accuracies, trainings, failures, parts and example maps.

    Args:
        plan: The jobs of the suite.
        store: Their results; those of failed jobs are missing, and so are their rows.
        out: The run folder.
        failures: Jobs that failed, and why.
    """
    cells = [cell for cell in plan.cells if _trained(store, cell)]
    correct = _correct(cells, store)
    write_atomic(out / "scores.parquet", functools.partial(_write_scores, cells, store, correct))
    trainings = [row for cell in cells for row in _training_rows(cell, store)]
    write_atomic(out / "trainings.csv", _csv(trainings, _TRAINING_COLUMNS))
    write_atomic(out / "accuracy.csv", _csv(_accuracy_rows(cells, trainings, store), _ACCURACY_COLUMNS))
    failed = [{"job": str(job), "stage": job.stage, "error": error} for job, error in failures.items()]
    write_atomic(out / "failures.csv", _csv(failed, ("job", "stage", "error")))
    write_atomic(out / "parts.json", json.dumps(_parts(plan), indent=2, ensure_ascii=False).encode())
    _write_examples(cells, store, correct, out / "examples.safetensors")


def _trained(store: Store, cell: CellPlan) -> bool:
    return store.has("data", cell.data.key) and all(store.has("train", job.key) for job in cell.trainings)


def _correct(cells: Iterable[CellPlan], store: Store) -> dict[DataJob, torch.Tensor]:
    """For each data set ``[n_test]`` bool: the samples that every explained network classifies correctly."""
    correct: dict[DataJob, torch.Tensor] = {}
    for cell in cells:
        for network in cell.networks:
            training, seed = chosen_training(store, network)
            right = read_training(store, training.key)[0][f"{seed}.correct"]
            correct[cell.data] = correct[cell.data] & right if cell.data in correct else right
    return correct


def _place(data: DataJob) -> tuple[str, str]:
    """Scenario and background of a data set; a set without is its own scenario."""
    info = part_info("dataset", data.name)
    return (getattr(info, "scenario", "") or data.name, getattr(info, "background", "") or "-")


def _write_scores(cells: Iterable[CellPlan], store: Store, correct: Mapping[DataJob, torch.Tensor], path: Path) -> None:
    """One row group a cell, so that memory does not grow with the suite."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, whole = pa.string(), pa.int64()
    columns = [(name, text) for name in ("dataset", "scenario", "background", "model")]
    columns += [("seed", whole), ("explainer", text), ("sample", whole), ("correct", pa.bool_()), ("metric", text)]
    columns += [("value", pa.float64()), ("higher_is_better", pa.bool_()), ("reason", text), ("data_seed", whole)]
    schema = pa.schema(columns)
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for cell in cells:
            frames = list(_score_frames(cell, store, correct[cell.data].numpy()))
            if frames:
                tables = [pa.Table.from_pandas(frame, schema, preserve_index=False) for frame in frames]
                writer.write_table(pa.concat_tables(tables))


def _score_frames(cell: CellPlan, store: Store, correct: Any) -> Iterator[pd.DataFrame]:
    scenario, background = _place(cell.data)
    for network, score in cell.scores:
        if not store.has("score", score.key):
            continue
        info = part_info("metric", score.metric.use)
        scores = store.load_table("score", score.key)
        yield scores.assign(
            dataset=cell.data.name,
            scenario=scenario,
            background=background,
            model=cell.model,
            seed=chosen_training(store, network)[1],
            explainer=score.explain.explainer.name,
            correct=correct[scores["sample"]],
            metric=score.metric.name,
            higher_is_better=info.higher_is_better if info else True,
            data_seed=cell.data.seed,
        )


_TRAINING_COLUMNS = (
    *("scenario", "background", "model", "data_seed", "seed", "network_seed", "best_epoch"),
    *("val_loss", "val_accuracy", "test_accuracy", "explained"),
)


def _training_rows(cell: CellPlan, store: Store) -> Iterator[dict[str, Any]]:
    scenario, background = _place(cell.data)
    explained = {chosen_training(store, network)[1] for network in cell.networks}
    for job in cell.trainings:
        for record in read_training(store, job.key)[1]:
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
    places = {(*_place(cell.data), cell.model): cell for cell in cells}
    for (scenario, background, model), reached in groups.items():
        cell = places[scenario, background, model]
        paper = _published(cell, store)
        mean = statistics.fmean(reached)
        yield {
            **{"scenario": scenario, "background": background, "model": model},
            "alpha": read_data(store, cell.data.key)[1]["parameters"].get("alpha", ""),
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

    scenario, background = _place(cell.data)
    splits, meta = read_data(store, cell.data.key)
    size = splits["test"].images.shape[-1]
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
    models = {cell.model: Part(cell.model, cell.model) for cell in plan.cells}
    return {
        "suite": suite.name,
        "title": suite.title,
        "citation": suite.citation,
        "explainers": {part.name: _described(part, "explainer", control=False) for part in suite.explainers},
        "models": {name: _described(part, "model") for name, part in models.items()},
        "metrics": {part.name: _described(part, "metric", higher_is_better=True) for part in suite.metrics},
    }


def _described(part: Part, kind: Any, **defaults: Any) -> dict[str, Any]:
    info = part_info(kind, part.use)
    # A part under a name of the suite's own is shown by that name: "lime-500" is not plain "LIME".
    label = info.label if info and part.name == part.use else part.name
    return {"label": label, **{name: getattr(info, name, default) for name, default in defaults.items()}} | {
        "citation": getattr(info, "citation", "")
    }


def _write_examples(
    cells: Iterable[CellPlan], store: Store, correct: Mapping[DataJob, torch.Tensor], path: Path
) -> None:
    """For each scenario and background one sample, and every method's map of it and mean map over correct samples."""
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    chosen: dict[str, DataJob] = {}
    for cell in cells:
        place = "/".join(_place(cell.data))
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
    if not len(right) or not store.has("explain", explain.key):
        return {}
    sample = int(right[0])
    maps = store.load_tensors("explain", explain.key)[0]["maps"].abs()
    shares = maps[right] / maps[right].sum((1, 2), keepdim=True)
    name = f"{place}/{model}/{explain.explainer.name}"
    return {
        f"{place}/image": images[sample].mean(0),
        f"{place}/mask": masks[sample].float(),
        f"{name}/example": maps[sample].float(),
        f"{name}/global": shares.nan_to_num().mean(0).float(),
    }
