"""Split of each map's mass by the ground truth and by the suite's reference explainer (``shares.parquet``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.evaluation.apply import shares_of
from xaibench.runfolder.tables import SHARES
from xaibench.runner.plan.jobs import ExplainJob, Network
from xaibench.runner.plan.plan import CellPlan
from xaibench.runner.stages.execute import has_maps, read_maps, select_training
from xaibench.runner.stages.samples import batches, read_test_split
from xaibench.runner.stages.score_rows import dataset_name, subset_and_variant
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import write_atomic

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch
    from numpy.typing import NDArray


def write_shares(
    cells: Iterable[CellPlan],
    store: Store,
    correct: Mapping[Network, NDArray[np.bool_]],
    path: Path,
) -> None:
    """Write the mass shares of all maps of networks for which a reference has maps; if there are none, no file.

    Args:
        cells: The cells, in the order of the rows.
        store: The store with the maps. Failed jobs have none, and no rows.
        correct: Which test samples of each network count, ``[n_test]``.
        path: The file to write.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = [part for cell in cells for part in _cell_tables(cell, store, correct)]
    if found:
        table = pa.concat_tables(found)
        write_atomic(path, lambda partial: pq.write_table(table, partial, write_page_checksum=True))


def _cell_tables(cell: CellPlan, store: Store, correct: Mapping[Network, NDArray[np.bool_]]) -> Iterator[pa.Table]:
    masks = None
    for network in cell.networks:
        jobs = dict.fromkeys(score.explain for one, score in cell.scores if one == network)
        made = [job for job in jobs if has_maps(store, job)]
        for reference in (job for job in made if job.explainer_part.is_reference):
            reliance = read_maps(store, reference)
            if masks is None:  # every explainer has the same first samples
                masks = _first_masks(cell, store, len(reliance))
            for job in made:
                maps = read_maps(store, job)
                if len(maps) == len(reliance) == len(masks):
                    constants = _constants(cell, network, store, reference, job)
                    yield _table(constants, correct[network][: len(maps)], shares_of(maps, masks, reliance))


def _first_masks(cell: CellPlan, store: Store, count: int) -> torch.Tensor:
    import torch

    return torch.cat([masks for _, masks, _ in batches(read_test_split(store, cell.data), 0, count)])


def _constants(
    cell: CellPlan, network: Network, store: Store, reference: ExplainJob, job: ExplainJob
) -> dict[str, object]:
    subset, variant = subset_and_variant(cell)
    return {
        **{"dataset": dataset_name(cell), "subset": subset, "variant": variant, "model": cell.model},
        **{"seed": select_training(store, network)[1], "data_seed": cell.data.seed},
        **{"reference": reference.explainer.name, "explainer": job.explainer.name},
    }


def _table(constants: Mapping[str, object], correct: Any, shares: Mapping[str, Any]) -> pa.Table:
    import pyarrow as pa

    schema, count = SHARES.arrow_schema(), len(correct)
    columns = {name: pa.repeat(pa.scalar(value, schema.field(name).type), count) for name, value in constants.items()}
    columns |= {"sample": pa.array(range(count), schema.field("sample").type), "correct": pa.array(correct)}
    columns |= {name: pa.array(values) for name, values in shares.items()}
    return pa.table([columns[name] for name in schema.names], schema)
