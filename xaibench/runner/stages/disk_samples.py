"""What the report shows of sets on disk, beside their scores: who the samples are, curves, and a sheet of maps."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xaibench.runner.plan.jobs import ScoreJob
from xaibench.runner.plan.planning import CellPlan
from xaibench.runner.stages.execution import has_maps, read_maps
from xaibench.runner.stages.sample_data import read_test_split, sample_rows
from xaibench.runner.store.result_store import Store, to_parquet
from xaibench.runner.store.store_files import write_atomic

if TYPE_CHECKING:
    import torch

#: A cell with the name that its set has in tables.
Named = tuple[str, CellPlan]

#: Samples of each set on the sheet.
SHOWN = 6


def is_on_disk(cell: CellPlan, store: Store) -> bool:
    """Whether the cell's set lies on disk, as the annotated ones do."""
    return bool(store.load_meta("data", cell.data.key).get("on_disk"))


def write_visual(cells: Sequence[Named], store: Store, out: Path) -> None:
    """Write ``samples.csv``, ``curves.parquet`` and ``sheet.safetensors`` of the sets on disk into the run folder."""
    write_atomic(out / "samples.csv", _samples(cells, store))
    curves = [row for name, cell in cells for row in _curves(name, cell, store)]
    if curves:
        import pandas as pd

        write_atomic(out / "curves.parquet", to_parquet(pd.DataFrame(curves)))
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    labels: dict[str, str] = {}
    for name, cell in cells:
        _add_sheet(name, cell, store, tensors, labels)
    write_atomic(out / "sheet.safetensors", save(tensors, metadata=labels))


def _samples(cells: Iterable[Named], store: Store) -> bytes:
    text = io.StringIO()
    columns = ("dataset", "data_seed", "sample", "id", "group", "file")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for name, data in dict.fromkeys((name, cell.data) for name, cell in cells):
        for row in sample_rows(store, data):
            writer.writerow({"dataset": name, "data_seed": data.seed, **row})
    return text.getvalue().encode()


def _curves(name: str, cell: CellPlan, store: Store) -> Iterator[dict[str, Any]]:
    """Points of the mean curve of each score that has curves, and the middle half of the samples around it."""
    for _, score in cell.scores:
        if not dict(score.metric.parameters).get("return_curves") or not store.has("score", score.key):
            continue
        curves = np.stack([np.asarray(curve) for curve in store.load_table("score", score.key)["curve"]])
        curves = curves[~np.isnan(curves).any(axis=1)]
        if len(curves) == 0:
            continue
        low, high = np.quantile(curves, [0.25, 0.75], axis=0)
        points = zip(np.linspace(0, 1, curves.shape[1]), curves.mean(0), low, high, strict=True)
        for fraction, mean, below, above in points:
            yield {**_names(name, cell, score), "fraction": fraction, "mean": mean, "low": below, "high": above} | {
                "n": len(curves)
            }


def _names(name: str, cell: CellPlan, score: ScoreJob) -> dict[str, str]:
    explainer, metric = score.explain.explainer.name, score.metric.name
    return {"dataset": name, "model": cell.model, "explainer": explainer, "metric": metric}


def _add_sheet(
    name: str, cell: CellPlan, store: Store, tensors: dict[str, torch.Tensor], labels: dict[str, str]
) -> None:
    """The first samples, spread over the classes, and every explainer's map of them."""
    import torch

    if not cell.scores:
        return
    split = read_test_split(store, cell.data)
    classes = store.load_meta("data", cell.data.key)["classes"]
    first = cell.networks[0]
    explains = list(dict.fromkeys(score.explain for network, score in cell.scores if network == first))
    kept = [explain for explain in explains if has_maps(store, explain)]
    if not kept:
        return
    maps = {explain.explainer.name: read_maps(store, explain) for explain in kept}
    count = min(len(found) for found in maps.values())
    for place, index in enumerate(_spread(split.targets[:count].tolist())):
        image, mask, target = split[index]
        key = f"{name}/{cell.model}/{place}"
        tensors[f"{key}/image"] = (image.permute(1, 2, 0) * 255).round().clamp(0, 255).to(torch.uint8).contiguous()
        tensors[f"{key}/mask"] = mask.to(torch.uint8)
        labels[key] = f"{split.ids[index]}: {classes[int(target)]}"
        for explainer, found in maps.items():
            tensors[f"{key}/map/{explainer}"] = found[index].float().contiguous()


def _spread(targets: Sequence[int]) -> list[int]:
    """Up to :data:`SHOWN` samples, the classes taking turns, in their order."""
    turns: dict[int, int] = {}
    ranked = []
    for index, target in enumerate(targets):
        turns[target] = turns.get(target, 0) + 1
        ranked.append((turns[target], target, index))
    return [index for _, _, index in sorted(ranked)[:SHOWN]]
