"""Results repositories of made-up scores, small enough to be written in a test."""

import dataclasses
from pathlib import Path

import pandas as pd
import pyarrow as pa
from report.conftest import FEW_CELLS, make_parts, make_scores
from report.pictures import make_samples

from xaibench.leaderboard.facts import FACTS, FACTS_FILE, NETWORKS, SuiteFacts
from xaibench.leaderboard.repository import RESULT, Manifest, Verification, record_verification, result_checksum
from xaibench.leaderboard.scores import draw_map_sheet, read_picture, sheet_layout, write_sample_sheet, write_scores
from xaibench.runfolder.descriptions import parse_parts
from xaibench.runfolder.schema import ACCURACY, SAMPLES, SCORES, TRAININGS

#: Versions of a suite.
VERSION, OTHER = "00c0ffee" * 4, "01d01d00" * 4
METHODS = ("integrated_gradients", "lime", "saliency", "lrp", "guided_gradcam", "uniform", "sobel")
TRUTHS = {"emd_perf": "data", "topk_precision": "intervention"}


def write_repository(
    folder: Path,
    *,
    methods=METHODS,
    cells=FEW_CELLS,
    samples=12,
    suite="tiny",
    version=VERSION,
    seed=0,
    about=None,
    pictures=True,
) -> Path:
    """A result of each method on one suite, its metrics of two kinds of truth."""
    scores = make_scores(samples, cells, seed=seed).assign(truth=lambda rows: rows["metric"].map(TRUTHS))
    scores["data_seed"] = seed
    parts = make_parts()
    for name, metric in parts["metrics"].items():
        metric |= {"truth": TRUTHS[name], "range": [0, 1]}
    drawn = {cell.cell: cell for cell in make_samples(scores[scores["explainer"] == "saliency"])} if pictures else {}
    for name in methods:
        words = parts["explainers"][name]
        known = {"citation": words["citation"], "license": "mit", "control": words["control"], "passes": 20}
        known |= {"label": words["label"], "entry": name, "versions": {"xaibench": "0.1.0"}} | (about or {}).get(
            name, {}
        )
        mine = scores[scores["explainer"] == name]
        run = {"machine": "Example CPU", "seconds": 12.5, "maps": len(mine) // 2}
        manifest = Manifest(method=name, suite=suite, version=version, submitted="2026-01-01", **known, **run)
        cells_of = [dataclasses.replace(cell, explainers=(name,)) for cell in drawn.values()]
        write_facts(folder, manifest, parts | {"title": "Tiny suite"}, cells_of)
        place = folder / manifest.folder
        place.mkdir(parents=True)
        (place / RESULT).write_bytes(manifest.to_json())
        picture = draw_map_sheet(cells_of, name, sheet_layout(cells_of)) if cells_of else b""
        _write_scores(mine, place, picture)
    return folder


def write_facts(folder, manifest, parts, cells=()):
    """Write the facts that all results of a suite share."""
    place = folder / FACTS / manifest.suite_folder
    if place.exists():
        return
    place.mkdir(parents=True)
    layout = sheet_layout(cells) if cells else None
    words = parse_parts(parts | {"explainers": {}}, place)
    tables = (table.empty() for table in (NETWORKS, ACCURACY, TRAININGS, SAMPLES))
    (place / FACTS_FILE).write_bytes(SuiteFacts(place, words, {}, layout, *tables).to_json())
    if cells:
        write_sample_sheet(place, cells, layout)


def verified(place, **changes):
    """Add a row to ``verified.csv``."""
    row = {"sha256": result_checksum(place), "xaibench": "0.2.0", "commit": "", "largest_difference": 0.0} | changes
    record_verification(place.parent.parent, Verification("/".join(place.parts[-2:]), **row))


def change_scores(place, change):
    """Change the scores of a result, and keep its picture."""
    _write_scores(change(pd.read_parquet(place / SCORES.name)), place, read_picture(place))


def _write_scores(rows, place, picture):
    table = pa.Table.from_pandas(rows.astype(dict.fromkeys(SCORES.text, "category")), preserve_index=False)
    write_scores(table, place, picture)
