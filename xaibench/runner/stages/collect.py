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
from typing import TYPE_CHECKING, Any, NamedTuple

from xaibench.evaluation.apply import shares_of
from xaibench.registry.component import Component, registry
from xaibench.runfolder.descriptions import PARTS, PartDescription, RunParts
from xaibench.runfolder.sample_file import SAMPLES_FILE, SampleCell, to_safetensors
from xaibench.runfolder.schema import (
    ACCURACY,
    CLASSIFICATION,
    CURVES,
    FAILURES,
    IMAGES,
    SAMPLES,
    SCORES,
    SHARES,
    TRAININGS,
    TableSchema,
)
from xaibench.runner.parts import MetricPart, ModelPart
from xaibench.runner.plan.jobs import DataJob, Job, Network
from xaibench.runner.plan.plan import CellPlan, Plan, underlying_metric
from xaibench.runner.stages.execute import (
    has_maps,
    read_correct,
    read_image_hashes,
    read_maps,
    read_training,
    select_training,
    split_scores,
)
from xaibench.runner.stages.preview_samples import picture_cell, picture_ratios, without_images
from xaibench.runner.stages.samples import batches, read_test_split, sample_rows
from xaibench.runner.store import PARTIAL, Store, write_atomic
from xaibench.runner.suites.schema import Suite

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

#: Columns that are copied from the scores of a measurement. Those of metrics with curves have further columns.
_COPIED = ("sample", "value", "reason")


def collect(plan: Plan, store: Store, out: Path, failures: Mapping[Job, str]) -> None:
    """Write the run folder's tables: scores, accuracies, trainings, failures, parts and example maps.

    Args:
        plan: The jobs of the suite.
        store: The results. Failed jobs have none, and no rows in the tables.
        out: The run folder.
        failures: Jobs that failed, with their error messages.
    """
    import pyarrow as pa

    data, trained = store.keys("data"), store.keys("train")
    cells = [
        cell
        for cell in plan.cells
        if cell.data.key in data and all(trained.issuperset(job.results) for job in cell.trainings)
    ]
    unlearned = _find_unlearned(cells, store, plan.suite.explaining.min_accuracy)
    flags = _find_flags(cells, store, plan.suite.explaining.scored, unlearned)
    scores = _read_scores(plan, store)
    write_atomic(out / SCORES.name, functools.partial(_write_scores, cells, store, flags, scores))
    shares = [table for cell in cells for table in _share_tables(cell, store, flags)]
    if shares:
        write_atomic(out / SHARES.name, lambda partial: _write_table(pa.concat_tables(shares), partial))
    trainings = [row for cell in cells for row in _training_rows(cell, store, unlearned)]
    accuracies = _accuracy_rows(cells, trainings, store, flags, plan.suite.explaining.min_accuracy)
    failed = [{"job": str(job), "stage": job.stage, "error": error} for job, error in failures.items()]
    for table, found in ((TRAININGS, trainings), (ACCURACY, accuracies), (FAILURES, failed)):
        write_atomic(out / table.name, table.to_csv(found))
    write_atomic(out / PARTS, _describe_parts(plan).to_json())
    _write_rows(IMAGES, _image_rows(cells, store), out)
    sample_cells = list(_sample_cells(cells, store, flags, scores))
    if plan.suite.data.alphas:
        sample_cells += picture_ratios([cell.data for cell in cells], store)
    if not plan.suite.explaining.pictures:
        copies = [part.name for part in plan.suite.explainers if part.use == "input"]
        sample_cells = [without_images(cell, copies) for cell in sample_cells]
    write_atomic(out / SAMPLES_FILE, to_safetensors(sample_cells))
    if samples := list(_sample_rows(cells, store)):
        write_atomic(out / SAMPLES.name, SAMPLES.to_csv(samples))
    on_disk = (cell for cell in cells if store.load_meta("data", cell.data.key).get("on_disk"))
    _write_rows(CURVES, (row for cell in on_disk for row in _curve_rows(cell, scores)), out)


def _find_unlearned(cells: Iterable[CellPlan], store: Store, min_accuracy: float) -> frozenset[Network]:
    """Find the networks on generated data that did not learn their task although others of the same cell did.

    Their scores are written, but none of their samples is scored, because explanations of a network that has not
    learned its task say little about the explainer. If no network of a cell has learned, all are kept.
    """
    reached: dict[tuple[str, str, str], dict[Network, float]] = {}
    for cell in cells:
        if cell.subset_and_variant[1] != "-":
            for network in cell.networks:
                training, seed = select_training(store, network)
                record = read_training(store, training.result(seed))
                reached.setdefault(cell.key, {})[network] = 100 * record["test_accuracy"]
    return frozenset(
        network
        for networks in reached.values()
        for network, accuracy in networks.items()
        if accuracy < min_accuracy <= max(networks.values())
    )


class _SampleFlags(NamedTuple):
    """Flags of the test samples of a network, ``[n_test]`` each."""

    correct: NDArray[np.bool_]
    scored: NDArray[np.bool_]


def _find_flags(
    cells: Iterable[CellPlan], store: Store, rule: str, unlearned: Container[Network]
) -> dict[Network, _SampleFlags]:
    """Return which test samples each network classifies correctly, and which count by ``scored`` of the suite.

    Of a network that has not learned, none counts, and it does not decide which samples of the others do.
    """
    flags: dict[Network, _SampleFlags] = {}
    by_all: dict[DataJob, NDArray[np.bool_]] = {}
    for cell in cells:
        for network in cell.networks:
            own = read_correct(store, network).numpy()
            flags[network] = _SampleFlags(own, (own | (rule == "all")) & (network not in unlearned))
            if network not in unlearned:
                by_all[cell.data] = by_all.get(cell.data, True) & own
    if rule == "correct-by-all":
        for cell in cells:
            for network in cell.networks:
                counts = flags[network].scored & by_all.get(cell.data, False)
                flags[network] = flags[network]._replace(scored=counts)
    return flags


def _read_scores(plan: Plan, store: Store) -> dict[str, pa.Table]:
    """Return the scores of each measurement by its key; those of failed jobs are missing."""
    keys = {stage: store.keys(stage) for stage in ("score", PARTIAL)}
    scores: dict[str, pa.Table] = {}
    for job in plan.jobs:
        stage = next((stage for stage in keys if job.key in keys[stage]), None)
        if stage is not None:
            scores |= split_scores(store.load_table(stage, job.key))
    return scores


def _write_scores(
    cells: Iterable[CellPlan],
    store: Store,
    flags: Mapping[Network, _SampleFlags],
    scores: Mapping[str, pa.Table],
    path: Path,
) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, SCORES.arrow_schema(), write_page_checksum=True) as writer:
        for cell in cells:  # a row group per cell
            if len(table := _cell_scores(cell, store, flags, scores)):
                writer.write_table(table)


def _cell_scores(
    cell: CellPlan, store: Store, flags: Mapping[Network, _SampleFlags], scores: Mapping[str, pa.Table]
) -> pa.Table:
    """Return the rows of ``scores.parquet`` of one cell."""
    import numpy as np
    import pyarrow as pa

    schema = SCORES.arrow_schema()
    measured = [(network, score) for network, score in cell.scores if score.key in scores]
    if not measured:
        return schema.empty_table()
    tables = [scores[score.key].select(_COPIED).replace_schema_metadata() for _, score in measured]
    copied = pa.concat_tables(tables)
    columns = {name: copied[name].cast(schema.field(name).type) for name in _COPIED}
    for name in _SampleFlags._fields:
        parts = [
            getattr(flags[network], name)[table["sample"].to_numpy()]
            for (network, _), table in zip(measured, tables, strict=True)
        ]
        columns[name] = pa.array(np.concatenate(parts))
    rows = [
        cell.names
        | {"seed": select_training(store, network)[1], "explainer": score.explain.explainer.name}
        | {"metric": score.metric.name, "higher_is_better": bool(score.metric.info.higher_is_better)}
        | {"truth": cell.truth_of(score)}
        for network, score in measured
    ]
    which = pa.array(np.repeat(np.arange(len(tables)), [len(table) for table in tables]))
    for name in rows[0]:
        columns[name] = pa.array([row[name] for row in rows], schema.field(name).type).take(which)
    return pa.table([columns[name] for name in schema.names], schema)


def _share_tables(cell: CellPlan, store: Store, flags: Mapping[Network, _SampleFlags]) -> Iterator[pa.Table]:
    """Yield the split of each map's mass by the ground truth and by the suite's reference explainer."""
    import pyarrow as pa
    import torch

    schema = SHARES.arrow_schema()
    masks = None
    for network in cell.networks:
        jobs = dict.fromkeys(score.explain for one, score in cell.scores if one == network)
        made = [job for job in jobs if has_maps(store, job)]
        for reference in (job for job in made if job.explainer.info.reference):
            reliance = read_maps(store, reference)
            if masks is None:  # every explainer has the same first samples
                split = read_test_split(store, cell.data)
                masks = torch.cat([each for _, each, _ in batches(split, 0, len(reliance))])
            for job in made:
                maps = read_maps(store, job)
                if not len(maps) == len(reliance) == len(masks):
                    continue
                constants = cell.names | {"seed": select_training(store, network)[1]}
                constants |= {"reference": reference.explainer.name, "explainer": job.explainer.name}
                columns = {
                    name: pa.repeat(pa.scalar(value, schema.field(name).type), len(maps))
                    for name, value in constants.items()
                }
                columns["sample"] = pa.array(range(len(maps)), schema.field("sample").type)
                columns |= {name: pa.array(flag[: len(maps)]) for name, flag in flags[network]._asdict().items()}
                columns |= {name: pa.array(values) for name, values in shares_of(maps, masks, reliance).items()}
                yield pa.table([columns[name] for name in schema.names], schema)


def _training_rows(cell: CellPlan, store: Store, unlearned: Container[Network]) -> Iterator[dict[str, Any]]:
    explained = {select_training(store, network)[1]: network in unlearned for network in cell.networks}
    alpha = _read_alpha(cell, store)
    for job in cell.trainings:
        for record in (read_training(store, key) for key in job.results):
            yield {
                **cell.names,
                **record,
                "val_accuracy": 100 * record["val_accuracy"],
                "test_accuracy": 100 * record["test_accuracy"],
                "explained": record["seed"] in explained,
                "left_out": explained.get(record["seed"], False),
                "alpha": alpha,
            }


def _read_alpha(cell: CellPlan, store: Store) -> float | str:
    """Return the signal-to-noise ratio of a generated data set; empty if it has none."""
    alpha = store.load_meta("data", cell.data.key)["parameters"].get("alpha")
    return alpha if isinstance(alpha, int | float) else ""


def _accuracy_rows(
    cells: Sequence[CellPlan],
    trainings: Iterable[Mapping[str, Any]],
    store: Store,
    flags: Mapping[Network, _SampleFlags],
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
            counts = flags[network].scored[: None if limit == "all" else limit]
            explained[cell.key] += len(counts)
            scored[cell.key] += int(counts.sum())

    groups: dict[tuple[str, str, str, float | str], list[Mapping[str, Any]]] = {}
    for row in trainings:
        groups.setdefault((row["subset"], row["variant"], row["model"], row["alpha"]), []).append(row)
    places: dict[tuple[str, str, str, float | str], list[CellPlan]] = {}
    for cell in cells:
        places.setdefault((*cell.key, _read_alpha(cell, store)), []).append(cell)
    for (subset, variant, model, alpha), mine in groups.items():
        reached, sets = [row["test_accuracy"] for row in mine], len({row["data_seed"] for row in mine})
        cell = places[subset, variant, model, alpha][-1]
        paper = _published_accuracy(cell, store)
        mean = statistics.fmean(reached)
        yield {
            **{"subset": subset, "variant": variant, "model": model},
            "alpha": alpha,
            "trainings": len(reached),
            "mean": round(mean, 6),
            "std": round(statistics.stdev(reached), 6) if len(reached) > 1 else "",
            **_interval(mine),
            "best": round(max(reached), 6),
            "learned": sum(accuracy >= min_accuracy for accuracy in reached),
            "paper": "" if paper is None else paper,
            "difference": "" if paper is None else round(mean - paper, 6),
            "test_samples": sets * len(read_correct(store, Network(cell.trainings, "best"))),
            "explained": explained[subset, variant, model],
            "scored": scored[subset, variant, model],
            **_classification_scores(places[subset, variant, model, alpha], store),
        }


def _interval(trainings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return Student's 95 % interval of a mean accuracy over data sets, or over the trainings on a single one."""
    import numpy as np
    from scipy.stats import t

    by_set: dict[Any, list[float]] = {}
    for row in trainings:
        by_set.setdefault(row["data_seed"], []).append(row["test_accuracy"])
    means = [float(np.mean(each)) for each in by_set.values()] if len(by_set) > 1 else next(iter(by_set.values()))
    if len(means) < 2:
        return {}
    margin = t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means))
    low, high = np.clip([np.mean(means) - margin, np.mean(means) + margin], 0, 100).round(6)
    return {"low": float(low), "high": float(high)}


def _classification_scores(cells: Iterable[CellPlan], store: Store) -> dict[str, float]:
    """Return precision, recall and F1 in percent: means over the classes, and over the trainings of the cells."""
    import numpy as np
    from sklearn.metrics import precision_recall_fscore_support

    scores = [
        precision_recall_fscore_support(
            read_test_split(store, cell.data).targets,
            store.load_tensors("train", key)[0]["answer.class"],
            average="macro",
            zero_division=0,
        )[:3]
        for cell in cells
        for job in cell.trainings
        for key in job.results
    ]
    return dict(zip(CLASSIFICATION, (100 * np.mean(scores, axis=0)).round(6).tolist(), strict=True))


def _published_accuracy(cell: CellPlan, store: Store) -> float | None:
    """Return the accuracy that the cell's data set reports as published, or None."""
    published = getattr(cell.data.dataset.target, "published_accuracy", None)
    # A label marks a variation of the published data set.
    if published is None or cell.label:
        return None
    accuracy: float | None = published(cell.model, store.load_meta("data", cell.data.key)["parameters"])
    return accuracy


def _sample_rows(cells: Iterable[CellPlan], store: Store) -> Iterator[dict[str, Any]]:
    for name, data in dict.fromkeys((cell.dataset_name, cell.data) for cell in cells):
        for row in sample_rows(store, data):
            yield {"dataset": name, "data_seed": data.seed, **row}


def _image_rows(cells: Iterable[CellPlan], store: Store) -> Iterator[dict[str, Any]]:
    """Yield the image hash of each explained sample, from the first explainer of the data set that has maps."""
    made = store.keys("explain")
    seen: set[tuple[str, int]] = set()
    for cell in cells:
        place = {"dataset": cell.dataset_name, "data_seed": cell.data.seed}
        for explain in dict.fromkeys(score.explain for _, score in cell.scores):
            if tuple(place.values()) not in seen and all(each.key in made for each in explain.slices):
                seen.add((cell.dataset_name, cell.data.seed))
                for sample, image_hash in enumerate(read_image_hashes(store, explain)):
                    yield place | {"sample": sample, "image": image_hash}


def _write_rows(table: TableSchema, rows: Iterable[Mapping[str, Any]], out: Path) -> None:
    """Write ``rows`` as a Parquet file; if there are none, write no file."""
    import pyarrow as pa

    if found := list(rows):
        content = pa.Table.from_pylist(found, table.arrow_schema())
        write_atomic(out / table.name, lambda partial: _write_table(content, partial))


def _write_table(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, write_page_checksum=True)


def _curve_rows(cell: CellPlan, scores: Mapping[str, pa.Table]) -> Iterator[dict[str, Any]]:
    """Yield the points of the mean curve, with the 25 % and 75 % quantiles, of each metric that returns curves."""
    import numpy as np

    for _, score in cell.scores:
        if not dict(score.metric.parameters).get("return_curves") or score.key not in scores:
            continue
        curves = np.stack([np.asarray(curve, dtype=float) for curve in scores[score.key]["curve"].to_pylist()])
        curves = curves[~np.isnan(curves).any(axis=1)]
        if len(curves) == 0:
            continue
        names = {"dataset": cell.dataset_name, "model": cell.model}
        names |= {"explainer": score.explain.explainer.name, "metric": score.metric.name}
        low, high = np.quantile(curves, [0.25, 0.75], axis=0)
        points = zip(np.linspace(0, 1, curves.shape[1]), curves.mean(0), low, high, strict=True)
        for fraction, mean, below, above in points:
            point = {"fraction": fraction, "mean": mean, "low": below, "high": above, "n": len(curves)}
            yield names | point


def _describe_parts(plan: Plan) -> RunParts:
    """Describe the parts of the suite, so that the report needs nothing but the run folder."""
    suite = plan.suite
    models = [ModelPart.of(name) for name in dict.fromkeys(cell.model for cell in plan.cells)]
    return RunParts(
        suite=suite.name,
        title=suite.title,
        citation=suite.citation,
        explainers={part.name: _describe(part) for part in suite.explainers},
        models={part.name: _describe(part) for part in models},
        metrics={part.name: _describe_metric(part, suite) for part in suite.metrics},
    )


def _describe_metric(part: MetricPart, suite: Suite) -> PartDescription:
    """Describe a metric, with the suite's name of the metric that it relates to chance; empty if that is not shown."""
    behind = underlying_metric(suite, part)
    description = replace(_describe(part), skill_of=behind.name if behind in suite.metrics else "")
    if part.parameters.get("threshold") == "area":  # next to another cut in the same table
        return replace(description, label=f"{part.info.label if part.is_described else part.use} at the mask’s area")
    if part.is_described and description.label == part.name and part.parameters:  # renamed by the suite
        values = ", ".join(f"{name} = {value}" for name, value in part.parameters.items())
        return replace(description, label=f"{part.info.label} ({values})")
    return description


def _describe(part: Component) -> PartDescription:
    # A part that the suite renames is shown under that name: "lime-500" is not the default "LIME".
    is_renamed = registry(part.kind).canonical(part.name) != part.use
    known = dict(vars(part.info)) if part.is_described else {}
    if part.kind != "model":  # for networks, the suite states training parameters instead
        known |= {"parameters": part.all_parameters, "own": part.is_users_own}
    if is_renamed and part.kind == "explainer":
        known["method"] = known.get("label")
    return PartDescription.of(part.name, known, label=part.name if is_renamed else "")


def _sample_cells(
    cells: Iterable[CellPlan],
    store: Store,
    flags: Mapping[Network, _SampleFlags],
    scores: Mapping[str, pa.Table],
) -> Iterator[SampleCell]:
    """Yield example samples with all their maps, from the first data set per subset, variant and model."""
    chosen: dict[tuple[str, str], DataJob] = {}
    for cell in cells:
        if cell.scores and chosen.setdefault(cell.subset_and_variant, cell.data) == cell.data:
            rows = _cell_scores(cell, store, flags, scores).to_pandas()
            counting = flags[cell.networks[0]].scored
            if (found := picture_cell(cell, rows, counting, store)) is not None:
                yield found
