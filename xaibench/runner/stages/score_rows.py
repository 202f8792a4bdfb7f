"""Score rows of a cell (the rows of ``scores.parquet``), merged from the score jobs' results in the store.

Merged rows are cached on disk, and reused as long as the results that they come from have not changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.component.info import truth_of
from xaibench.runfolder.tables import SCORES
from xaibench.runner.parts import part_info
from xaibench.runner.plan.jobs import Network
from xaibench.runner.plan.plan import CellPlan
from xaibench.runner.plan.score_jobs import ScoreJob
from xaibench.runner.stages.execute import select_training
from xaibench.runner.store.checked_tables import from_parquet, to_parquet
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import write_atomic

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def dataset_name(cell: CellPlan) -> str:
    """Return the name of a cell's data set in all tables: the cell's label if it has one."""
    return cell.label or cell.data.name


def subset_and_variant(cell: CellPlan) -> tuple[str, str]:
    """Return subset and variant of a cell.

    For a data set without subsets, the subset is the cell's label or the data set's name, and the variant "-".
    """
    info = part_info("dataset", cell.data.name)
    subset = cell.label or getattr(info, "subset", "") or cell.data.name
    return subset, getattr(info, "variant", "") or "-"


def score_truth(cell: CellPlan, score: ScoreJob) -> str:
    """Return the kind of truth that the scores of a score job refer to (:mod:`xaibench.core.truth_kinds`)."""
    return truth_of(part_info("metric", score.metric.use), part_info("dataset", cell.data.name))


def cell_scores(
    cell: CellPlan,
    store: Store,
    correct: Mapping[Network, NDArray[np.bool_]],
    fingerprints: Mapping[str, str],
    merged: Path,
) -> pa.Table:
    """Return all score rows of one cell, from the cache if the stored results have not changed.

    Args:
        cell: The cell.
        store: The store with the scores. Failed jobs have none.
        correct: Which test samples of each network count, ``[n_test]``.
        fingerprints: ``store.keys("score")``.
        merged: The cache folder.

    Raises:
        CorruptResultError: If a stored result is damaged; it is set aside first.
    """
    shards = [(network, score) for network, score in cell.scores if score.key in fingerprints]
    rows = [_constants(cell, network, score, store) for network, score in shards]
    keys = [score.key for _, score in shards]
    counts = [correct[network] for network, _ in shards]
    counted = [correct[network].tobytes().hex() for network in cell.networks]
    state = json.dumps([rows, [(key, fingerprints[key]) for key in keys], counted])
    identity = hashlib.sha256(state.encode()).hexdigest()
    path = merged / f"{cell.data.key}-{re.sub(r'[^A-Za-z0-9_.+-]', '.', cell.model)}.parquet"
    table = _read_merged(path, identity)
    if table is None:
        table = _merge(rows, list(store.load_tables("score", keys)), counts)
        _write_merged(path, identity, table)
    return table


#: Columns that are copied from a score job's result. Results of metrics with curves have further columns.
_COPIED = ("sample", "value", "reason")
#: Columns that are constant within a score job's result.
_CONSTANT = tuple(name for name in SCORES.columns if name not in (*_COPIED, "correct"))


def _constants(cell: CellPlan, network: Network, score: ScoreJob, store: Store) -> list[Any]:
    info = part_info("metric", score.metric.use)
    subset, variant = subset_and_variant(cell)
    constants = {
        "dataset": dataset_name(cell),
        "subset": subset,
        "variant": variant,
        "model": cell.model,
        "seed": select_training(store, network)[1],
        "explainer": score.explain.explainer.name,
        "metric": score.metric.name,
        "higher_is_better": bool(info.higher_is_better) if info else True,
        "data_seed": cell.data.seed,
        "truth": score_truth(cell, score),
    }
    return [constants[name] for name in _CONSTANT]


def _merge(rows: list[list[Any]], shards: list[pa.Table], counts: list[NDArray[np.bool_]]) -> pa.Table:
    """Concatenate all shards and add the constant columns."""
    import numpy as np
    import pyarrow as pa

    schema = SCORES.arrow_schema()
    if not shards:
        return schema.empty_table()
    which = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    own = pa.concat_tables([shard.select(_COPIED).replace_schema_metadata() for shard in shards])
    columns = {name: own[name].cast(schema.field(name).type) for name in _COPIED}
    samples = np.split(own["sample"].to_numpy(), np.cumsum([len(shard) for shard in shards])[:-1])
    columns["correct"] = pa.array(np.concatenate([each[mine] for each, mine in zip(counts, samples, strict=True)]))
    for name, values in zip(_CONSTANT, zip(*rows, strict=True), strict=True):
        columns[name] = pa.array(values, schema.field(name).type).take(pa.array(which))
    return pa.table([columns[name] for name in schema.names], schema)


def _read_merged(path: Path, identity: str) -> pa.Table | None:
    """Read the cached rows of a cell; None if they are missing, damaged or outdated."""
    try:
        table = from_parquet(path.read_bytes())
    except (OSError, ValueError):
        return None
    is_current = (table.schema.metadata or {}).get(b"identity") == identity.encode()
    return table.replace_schema_metadata() if is_current else None


def _write_merged(path: Path, identity: str, table: pa.Table) -> None:
    write_atomic(path, to_parquet(table.replace_schema_metadata({"identity": identity})))
