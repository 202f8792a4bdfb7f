"""The scores of a cell, merged from the store's shards into rows of ``scores.parquet``.

What was merged before, and whose shards are what they were, is not read again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.core.part_info import truth_of
from xaibench.runfolder.tables import SCORES
from xaibench.runner.parts import part_info
from xaibench.runner.plan.jobs import Network
from xaibench.runner.plan.planning import CellPlan
from xaibench.runner.plan.score_jobs import ScoreJob
from xaibench.runner.stages.execution import chosen_training
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.sealed_tables import from_parquet, to_parquet
from xaibench.runner.store.store_files import write_atomic

if TYPE_CHECKING:
    import pyarrow as pa


def set_name(cell: CellPlan) -> str:
    """The name of a cell's data set in all tables: the cell's label where it has one."""
    return cell.label or cell.data.name


def place_of(cell: CellPlan) -> tuple[str, str]:
    """Scenario and background of a cell; a set without is its own scenario, under the cell's label where it has one."""
    info = part_info("dataset", cell.data.name)
    scenario = cell.label or getattr(info, "scenario", "") or cell.data.name
    return scenario, getattr(info, "background", "") or "-"


def score_truth(cell: CellPlan, score: ScoreJob) -> str:
    """The kind of truth that the scores of a job of a cell are of (:mod:`xaibench.core.truths`)."""
    return truth_of(part_info("metric", score.metric.use), part_info("dataset", cell.data.name))


def cell_scores(
    cell: CellPlan, store: Store, correct: Any, unlearned: Container[Network], marks: Mapping[str, str], merged: Path
) -> pa.Table:
    """All scores of one cell; those that were merged before, and whose files are what they were, are not read again.

    Args:
        cell: The cell.
        store: Where its scores are; those of failed jobs are missing.
        correct: ``[n_test]`` bool.
        unlearned: Networks of which no sample counts as correct.
        marks: ``store.keys("score")``.
        merged: Folder of the cells that were merged before.

    Raises:
        CorruptResultError: If one of them is damaged; it is set aside first.
    """
    shards = [(network, score) for network, score in cell.scores if score.key in marks]
    rows = [_constants(cell, network, score, store) for network, score in shards]
    keys = [score.key for _, score in shards]
    counts = [network not in unlearned for network, _ in shards]
    state = json.dumps(
        [rows, [(key, marks[key]) for key in keys], correct.tobytes().hex(), *([counts] * (not all(counts)))]
    )
    identity = hashlib.sha256(state.encode()).hexdigest()
    path = merged / f"{cell.data.key}-{re.sub(r'[^A-Za-z0-9_.+-]', '.', cell.model)}.parquet"
    table = _read_merged(path, identity)
    if table is None:
        table = _merge(rows, list(store.load_tables("score", keys)), correct, counts)
        _keep_merged(path, identity, table)
    return table


#: Columns of a shard that are columns of the scores; one of a metric with curves has these beside.
_OWN = ("sample", "value", "reason")
#: Columns that are the same for every row of a shard.
_CONSTANT = tuple(name for name in SCORES.columns if name not in (*_OWN, "correct"))


def _constants(cell: CellPlan, network: Network, score: ScoreJob, store: Store) -> list[Any]:
    info = part_info("metric", score.metric.use)
    scenario, background = place_of(cell)
    constants = {
        "dataset": set_name(cell),
        "scenario": scenario,
        "background": background,
        "model": cell.model,
        "seed": chosen_training(store, network)[1],
        "explainer": score.explain.explainer.name,
        "metric": score.metric.name,
        "higher_is_better": bool(info.higher_is_better) if info else True,
        "data_seed": cell.data.seed,
        "truth": score_truth(cell, score),
    }
    return [constants[name] for name in _CONSTANT]


def _merge(rows: list[list[Any]], shards: list[pa.Table], correct: Any, counts: list[bool]) -> pa.Table:
    """The rows of all shards, with their constants repeated."""
    import numpy as np
    import pyarrow as pa

    schema = SCORES.arrow_schema()
    if not shards:
        return schema.empty_table()
    which = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    own = pa.concat_tables([shard.select(_OWN).replace_schema_metadata() for shard in shards])
    columns = {name: own[name].cast(schema.field(name).type) for name in _OWN}
    columns["correct"] = pa.array(correct[own["sample"].to_numpy()] & np.array(counts)[which])
    for name, values in zip(_CONSTANT, zip(*rows, strict=True), strict=True):
        columns[name] = pa.array(values, schema.field(name).type).take(pa.array(which))
    return pa.table([columns[name] for name in schema.names], schema)


def _read_merged(path: Path, identity: str) -> pa.Table | None:
    """A cell that was merged before; None when it is another one, not there, or damaged."""
    try:
        table = from_parquet(path.read_bytes())
    except (OSError, ValueError):
        return None
    same = (table.schema.metadata or {}).get(b"identity") == identity.encode()
    return table.replace_schema_metadata() if same else None


def _keep_merged(path: Path, identity: str, table: pa.Table) -> None:
    write_atomic(path, to_parquet(table.replace_schema_metadata({"identity": identity})))
