"""Collection of job results into the tables of the run folder.

All results are read from the store in the order of the plan, so the same suite and seeds give bit-identical files,
regardless of the order in which the jobs ran.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runfolder.descriptions import PARTS, PartDescription, RunParts
from xaibench.runfolder.sample_file import SAMPLES_FILE, SampleCell, to_safetensors
from xaibench.runfolder.tables import (
    ACCURACY,
    CURVES,
    FAILURES,
    IMAGES,
    SAMPLES,
    SCORES,
    SHARES,
    TRAININGS,
    TableSchema,
)
from xaibench.runner.parts import Kind, find_part, registry
from xaibench.runner.plan.job_base import Job
from xaibench.runner.plan.jobs import DataJob, Network
from xaibench.runner.plan.plan import CellPlan, Plan, underlying_metric
from xaibench.runner.stages.execute import read_correct, read_image_hashes, read_training, select_training
from xaibench.runner.stages.mass_shares import write_shares
from xaibench.runner.stages.preview_samples import picture_cell, without_images
from xaibench.runner.stages.samples import sample_rows
from xaibench.runner.stages.score_rows import cell_scores, dataset_name, subset_and_variant
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import write_atomic
from xaibench.runner.suites.schema import NamedPart, Suite

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Folder with the cached score rows of each cell.
MERGED = ".merged"


def collect(plan: Plan, store: Store, out: Path, failures: Mapping[Job, str]) -> None:
    """Write the run folder's tables: scores, accuracies, trainings, failures, parts and example maps.

    Args:
        plan: The jobs of the suite.
        store: The results. Failed jobs have none, and no rows in the tables.
        out: The run folder.
        failures: Jobs that failed, with their error messages.
    """
    data, trained = store.keys("data"), store.keys("train")
    cells = [cell for cell in plan.cells if _is_trained(cell, data, trained)]
    unlearned = _find_unlearned(cells, store, plan.suite.explaining.min_accuracy)
    correct = _find_correct(cells, store, plan.suite.explaining.scored, unlearned)
    write_atomic(out / SCORES.name, functools.partial(_write_scores, cells, store, correct, out / MERGED))
    write_shares(cells, store, correct, out / SHARES.name)
    trainings = [row for cell in cells for row in _training_rows(cell, store)]
    failed = [{"job": str(job), "stage": job.stage, "error": error} for job, error in failures.items()]
    write_atomic(out / TRAININGS.name, TRAININGS.to_csv(trainings))
    write_atomic(
        out / ACCURACY.name,
        ACCURACY.to_csv(_accuracy_rows(cells, trainings, store, correct, plan.suite.explaining.min_accuracy)),
    )
    write_atomic(out / FAILURES.name, FAILURES.to_csv(failed))
    write_atomic(out / PARTS, _describe_parts(plan).to_json())
    _write_rows(IMAGES, _image_rows(cells, store), out)
    sample_cells = list(_sample_cells(cells, store, correct, out / MERGED))
    if not plan.suite.explaining.pictures:
        copies = [part.name for part in plan.suite.explainers if part.use == "input"]
        sample_cells = [without_images(cell, copies) for cell in sample_cells]
    write_atomic(out / SAMPLES_FILE, to_safetensors(sample_cells))
    if samples := list(_sample_rows(cells, store)):
        write_atomic(out / SAMPLES.name, SAMPLES.to_csv(samples))
    on_disk = (cell for cell in cells if store.load_meta("data", cell.data.key).get("on_disk"))
    _write_rows(CURVES, (row for cell in on_disk for row in _curve_rows(cell, store)), out)


def _is_trained(cell: CellPlan, data: Container[str], trained: Container[str]) -> bool:
    return cell.data.key in data and all(key in trained for job in cell.trainings for key in job.results)


def _find_unlearned(cells: Iterable[CellPlan], store: Store, min_accuracy: float) -> frozenset[Network]:
    """Find the networks on generated data that did not learn their task although others of the same cell did.

    Their scores are written, but none of their samples counts as correctly classified, because explanations of a
    network at chance level say nothing about the explainer. If no network of a cell has learned, all are kept.
    """
    reached: dict[tuple[str, str, str], dict[Network, float]] = {}
    for cell in cells:
        if subset_and_variant(cell)[1] != "-":
            for network in cell.networks:
                training, seed = select_training(store, network)
                record = read_training(store, training.result(seed))
                reached.setdefault((*subset_and_variant(cell), cell.model), {})[network] = 100 * record["test_accuracy"]
    return frozenset(
        network
        for networks in reached.values()
        for network, accuracy in networks.items()
        if accuracy < min_accuracy <= max(networks.values())
    )


def _find_correct(
    cells: Iterable[CellPlan], store: Store, scored: str, unlearned: Container[Network]
) -> dict[Network, NDArray[np.bool_]]:
    """Return per network which test samples count, ``[n_test]``; see ``scored`` of a suite.

    Of a network that has not learned, none counts, and it does not decide which samples of the others do.
    """
    correct: dict[Network, NDArray[np.bool_]] = {}
    by_all: dict[DataJob, NDArray[np.bool_]] = {}
    for cell in cells:
        for network in cell.networks:
            own = read_correct(store, network).numpy()
            correct[network] = (own | (scored == "all")) & (network not in unlearned)
            if network not in unlearned:
                by_all[cell.data] = by_all.get(cell.data, True) & own
    if scored == "correct-by-all":
        for cell in cells:
            correct |= {network: correct[network] & by_all.get(cell.data, False) for network in cell.networks}
    return correct


def _write_scores(
    cells: Iterable[CellPlan],
    store: Store,
    correct: Mapping[Network, NDArray[np.bool_]],
    merged: Path,
    path: Path,
) -> None:
    # One row group per cell, so that memory does not grow with the suite.
    import pyarrow.parquet as pq

    fingerprints = store.keys("score")
    with pq.ParquetWriter(path, SCORES.arrow_schema(), write_page_checksum=True) as writer:
        for cell in cells:
            table = cell_scores(cell, store, correct, fingerprints, merged)
            if len(table):
                writer.write_table(table)


def _training_rows(cell: CellPlan, store: Store) -> Iterator[dict[str, Any]]:
    subset, variant = subset_and_variant(cell)
    explained = {select_training(store, network)[1] for network in cell.networks}
    for job in cell.trainings:
        for record in (read_training(store, key) for key in job.results):
            yield {
                **{"subset": subset, "variant": variant, "model": cell.model, "data_seed": cell.data.seed},
                **record,
                "val_accuracy": 100 * record["val_accuracy"],
                "test_accuracy": 100 * record["test_accuracy"],
                "explained": record["seed"] in explained,
            }


def _accuracy_rows(
    cells: Sequence[CellPlan],
    trainings: Iterable[Mapping[str, Any]],
    store: Store,
    correct: Mapping[Network, NDArray[np.bool_]],
    min_accuracy: float,
) -> Iterator[dict[str, Any]]:
    """Yield the accuracy in percent per subset, variant and model, over data set seeds and training seeds.

    ``explained`` is the number of explained samples over all networks, ``scored`` the number of them that count.
    """
    import statistics

    explained: Counter[tuple[str, str, str]] = Counter()
    scored: Counter[tuple[str, str, str]] = Counter()
    for cell in cells:
        limits = {network: score.explain.samples for network, score in cell.scores}
        for network, limit in limits.items():
            counts = correct[network][: None if limit == "all" else limit]
            explained[(*subset_and_variant(cell), cell.model)] += len(counts)
            scored[(*subset_and_variant(cell), cell.model)] += int(counts.sum())

    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in trainings:
        groups.setdefault((row["subset"], row["variant"], row["model"]), []).append(row)
    places = {(*subset_and_variant(cell), cell.model): cell for cell in cells}
    for (subset, variant, model), mine in groups.items():
        reached, sets = [row["test_accuracy"] for row in mine], len({row["data_seed"] for row in mine})
        cell = places[subset, variant, model]
        paper = _published_accuracy(cell, store)
        alpha = store.load_meta("data", cell.data.key)["parameters"].get("alpha")
        mean = statistics.fmean(reached)
        yield {
            **{"subset": subset, "variant": variant, "model": model},
            "alpha": alpha if isinstance(alpha, int | float) else "",
            "trainings": len(reached),
            "mean": round(mean, 6),
            "std": round(statistics.stdev(reached), 6) if len(reached) > 1 else "",
            "best": round(max(reached), 6),
            "learned": sum(accuracy >= min_accuracy for accuracy in reached),
            "paper": "" if paper is None else paper,
            "difference": "" if paper is None else round(mean - paper, 6),
            "test_samples": sets * len(read_correct(store, Network(cell.trainings, "best"))),
            "explained": explained[subset, variant, model],
            "scored": scored[subset, variant, model],
        }


def _published_accuracy(cell: CellPlan, store: Store) -> float | None:
    """Return the accuracy that the cell's data set reports as published, or None."""
    published = getattr(find_part("dataset", cell.data.name).target, "published_accuracy", None)
    # A label marks a variation of the published data set.
    if published is None or cell.label:
        return None
    accuracy: float | None = published(cell.model, store.load_meta("data", cell.data.key)["parameters"])
    return accuracy


def _sample_rows(cells: Iterable[CellPlan], store: Store) -> Iterator[dict[str, Any]]:
    for name, data in dict.fromkeys((dataset_name(cell), cell.data) for cell in cells):
        for row in sample_rows(store, data):
            yield {"dataset": name, "data_seed": data.seed, **row}


def _image_rows(cells: Iterable[CellPlan], store: Store) -> Iterator[dict[str, Any]]:
    """Yield the image hash of each explained sample, from the first explainer of the data set that has maps."""
    made = store.keys("explain")
    seen: set[tuple[str, int]] = set()
    for cell in cells:
        place = {"dataset": dataset_name(cell), "data_seed": cell.data.seed}
        for explain in dict.fromkeys(score.explain for _, score in cell.scores):
            if tuple(place.values()) not in seen and all(part.key in made for part in explain.parts):
                seen.add((dataset_name(cell), cell.data.seed))
                for sample, image_hash in enumerate(read_image_hashes(store, explain)):
                    yield place | {"sample": sample, "image": image_hash}


def _write_rows(table: TableSchema, rows: Iterable[Mapping[str, Any]], out: Path) -> None:
    """Write ``rows`` as a Parquet file; if there are none, write no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if found := list(rows):
        content, path = pa.Table.from_pylist(found, table.arrow_schema()), out / table.name
        write_atomic(path, lambda partial: pq.write_table(content, partial, write_page_checksum=True))


def _curve_rows(cell: CellPlan, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the points of the mean curve, with the 25 % and 75 % quantiles, of each metric that returns curves."""
    import numpy as np

    for _, score in cell.scores:
        if not dict(score.metric.parameters).get("return_curves") or not store.has("score", score.key):
            continue
        curves = np.stack([np.asarray(curve, dtype=float) for curve in store.load_table("score", score.key)["curve"]])
        curves = curves[~np.isnan(curves).any(axis=1)]
        if len(curves) == 0:
            continue
        names = {"dataset": dataset_name(cell), "model": cell.model}
        names |= {"explainer": score.explain.explainer.name, "metric": score.metric.name}
        low, high = np.quantile(curves, [0.25, 0.75], axis=0)
        points = zip(np.linspace(0, 1, curves.shape[1]), curves.mean(0), low, high, strict=True)
        for fraction, mean, below, above in points:
            point = {"fraction": fraction, "mean": mean, "low": below, "high": above, "n": len(curves)}
            yield names | point


def _describe_parts(plan: Plan) -> RunParts:
    """Describe the parts of the suite, so that the report needs nothing but the run folder."""
    suite = plan.suite
    models = [NamedPart(name, name) for name in dict.fromkeys(cell.model for cell in plan.cells)]
    return RunParts(
        suite=suite.name,
        title=suite.title,
        citation=suite.citation,
        explainers={part.name: _describe(part, "explainer") for part in suite.explainers},
        models={part.name: _describe(part, "model") for part in models},
        metrics={part.name: _describe_metric(part, suite) for part in suite.metrics},
    )


def _describe_metric(part: NamedPart, suite: Suite) -> PartDescription:
    """Describe a metric, with the suite's name of the metric that it relates to chance; empty if that is not shown."""
    behind = underlying_metric(suite, part)
    description = replace(_describe(part, "metric"), skill_of=behind.name if behind in suite.metrics else "")
    info = find_part("metric", part.use).info
    label = str(info.label) if info else part.use
    if part.parameters.get("threshold") == "area":  # next to another cut in the same table
        return replace(description, label=f"{label} at the mask’s area")
    if info and description.label == part.name and part.parameters:  # the suite has the metric under a name of its own
        values = ", ".join(f"{name} = {value}" for name, value in part.parameters.items())
        return replace(description, label=f"{label} ({values})")
    return description


def _describe(part: NamedPart, kind: Kind) -> PartDescription:
    found = find_part(kind, part.use, part.parameters)
    # A part that the suite renames is shown under that name: "lime-500" is not the default "LIME".
    is_renamed = registry(kind).canonical(part.name) != part.use
    known = dict(vars(found.info)) if found.info else {}
    if kind != "model":  # for networks, the suite states training parameters instead
        known |= {"parameters": found.all_parameters, "own": found.is_users_own}
    if is_renamed and kind == "explainer":
        known["method"] = known.get("label")
    return PartDescription.of(part.name, known, label=part.name if is_renamed else "")


def _sample_cells(
    cells: Iterable[CellPlan],
    store: Store,
    correct: Mapping[Network, NDArray[np.bool_]],
    merged: Path,
) -> Iterator[SampleCell]:
    """Yield example samples with all their maps, from the first data set per subset, variant and model."""
    fingerprints = store.keys("score")
    chosen: dict[tuple[str, str], DataJob] = {}
    for cell in cells:
        if cell.scores and chosen.setdefault(subset_and_variant(cell), cell.data) == cell.data:
            scores = cell_scores(cell, store, correct, fingerprints, merged).to_pandas()
            counting = correct[cell.networks[0]]
            if (found := picture_cell(cell, subset_and_variant(cell), scores, counting, store)) is not None:
                yield found
