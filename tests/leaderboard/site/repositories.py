"""Results repositories of made-up scores, small enough to be written in a test."""

import dataclasses
from pathlib import Path

import pyarrow as pa
from leaderboard.forging import with_scores
from report.conftest import FEW_CELLS, make_parts, make_scores
from report.pictures import make_samples

from xaibench.leaderboard.manifest import CodeInfo, Manifest, MethodInfo, RunInfo, SuiteVersion
from xaibench.leaderboard.pictures import draw_map_sheet, sheet_layout, write_sample_sheet
from xaibench.leaderboard.score_files import MANIFEST, PICTURE, write_scores
from xaibench.leaderboard.suite_facts import FACTS_FILE, SuiteFacts, facts_folder
from xaibench.runfolder.descriptions import parse_parts
from xaibench.runfolder.tables import ACCURACY, SAMPLES, SCORES, TRAININGS

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
    round_name="",
    seed=0,
    about=None,
    drop=0.0,
    pictures=True,
    codes=None,
) -> Path:
    """A result of each method on one suite, its metrics of two kinds of truth; ``drop`` is taken from every score."""
    scores = make_scores(samples, cells, seed=seed).assign(truth=lambda rows: rows["metric"].map(TRUTHS))
    scores["value"] = (scores["value"] - drop).clip(0, 1)
    scores["data_seed"] = seed
    parts = make_parts()
    for name, metric in parts["metrics"].items():
        metric |= {"truth": TRUTHS[name], "range": [0, 1]}
    drawn = {cell.cell: cell for cell in make_samples(scores[scores["explainer"] == "saliency"])} if pictures else {}
    for name in methods:
        words = parts["explainers"][name]
        known = {"citation": words["citation"], "license": "mit", "control": words["control"], "passes": 20}
        method = MethodInfo(
            **{"name": name, "label": words["label"], "entry": name, **known, **(about or {}).get(name, {})}
        )
        mine = scores[scores["explainer"] == name].assign(explainer=method.name)
        manifest = Manifest(
            method,
            SuiteVersion(suite, version),
            f"2026-0{1 + bool(round_name)}-01",
            (codes or {}).get(name, CodeInfo()),
            round_name,
            RunInfo({"xaibench": "0.1.0"}, "Example CPU", 12.5, len(mine) // 2),
        )
        cells_of = [dataclasses.replace(cell, explainers=(method.name,)) for cell in drawn.values()]
        write_facts(folder, manifest, scores, parts | {"title": "Tiny suite"}, cells_of)
        write_result(folder, manifest, mine, cells_of)
    return folder


def write_facts(folder, manifest, scores, parts, cells=()):
    """Write the facts that all results of a suite share."""
    place = facts_folder(folder, manifest)
    if place.exists():
        return
    place.mkdir(parents=True)
    layout = sheet_layout(cells) if cells else None
    words = parse_parts(parts | {"explainers": {}}, place)
    tables = (table.empty() for table in (ACCURACY, TRAININGS, SAMPLES))
    (place / FACTS_FILE).write_bytes(SuiteFacts(place, words, {}, layout, *tables).to_json())
    if cells:
        write_sample_sheet(place, cells, layout)


def write_result(folder, manifest, scores, cells=()):
    """Write one result; return its folder."""
    place = folder / manifest.folder
    place.mkdir(parents=True)
    picture = draw_map_sheet(cells, manifest.method.name, sheet_layout(cells)) if cells else b""
    notes = {MANIFEST: manifest.to_json(), PICTURE: picture}
    write_scores(pa.Table.from_pandas(scores.astype(dict.fromkeys(SCORES.text, "category"))), place, notes)
    return place


def change_scores(place, change):
    """Write the scores of a result anew, with what ``change`` makes of them, and its picture."""
    with_scores(place, lambda table: pa.Table.from_pandas(change(table.to_pandas())))
