"""The page: everything a run has to say, in one HTML file that loads nothing from outside."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from xaibench.report import tables
from xaibench.report.content import TOLERANCE, accuracy, alternative, citations, counts, facts, heat, records, verdict
from xaibench.report.figures import draw, save
from xaibench.report.folder import Run, place, read_run
from xaibench.report.inline import inline_svg
from xaibench.report.maps import map_figure, map_kinds, map_table

#: What a score means, for the metrics of the papers; others are described by their direction alone.
_MEANING = {
    "emd_perf": "One minus the earth mover’s distance between the map and the ground truth, both scaled to sum one, "
    "divided by the largest distance of two pixels. 1: all importance lies on the ground truth.",
    "topk_precision": "Of the k most important pixels, the share that lies in the ground truth, k being the number of "
    "pixels of the ground truth. 1: all of them.",
}


def write_report(run_dir: Path) -> Path:
    """Write tables, figures and the page of a run into its folder.

    Writes ``summary.csv``, ``figures/*.png``, ``figures/*.svg`` and ``report.html``, each to a temporary name and then
    renamed: there is never half a file, and a report that fails leaves the earlier one as it was.

    Args:
        run_dir: Folder that ``xaibench run`` wrote; only ``scores.parquet`` must be there.

    Returns:
        Path of the page.

    Raises:
        RunFolderError: If the folder has no scores, or one of its files is damaged.
        OSError: If the folder cannot be written.
    """
    run = read_run(run_dir)
    summary = tables.summarise(run)
    _write(run.path / "summary.csv", summary[tables.SUMMARY_COLUMNS].to_csv(index=False).encode())
    drawings: dict[str, bytes] = {}
    kinds = map_kinds(run)
    figures = draw(run, summary) | {f"maps-{kind}": map_figure(run, kind, rows) for kind, rows in kinds.items()}
    for name, figure in figures.items():
        if figure is None:
            continue
        drawings[name] = save(figure, "svg")
        _write(run.path / "figures" / f"{name}.svg", drawings[name])
        _write(run.path / "figures" / f"{name}.png", save(figure, "png"))
    page = _render(run, summary, drawings)
    _write(run.path / "report.html", page.encode())
    return run.path / "report.html"


def best_methods(run_dir: Path) -> pd.DataFrame:
    """The table to print at the end of a run.

    Args:
        run_dir: Folder that ``xaibench run`` wrote.

    Returns:
        A row for each scenario, background and model with the best explainer by each metric and its median, as text
        (``"Deep SHAP 0.931"``, with ``"(control)"`` behind it where no method beats that control), and a last row with
        the explainer of the best mean rank over all cells. Empty without scores.

    Raises:
        RunFolderError: If the folder has no scores, or one of its files is damaged.
    """
    run = read_run(run_dir)
    return tables.best_by_cell(run, tables.summarise(run))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _render(run: Run, summary: pd.DataFrame, drawings: Mapping[str, bytes]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "place": place}
    board = tables.leaderboard(run, summary)
    return environment.get_template("report.html.j2").render(
        run=run,
        facts=facts(run),
        verdict=verdict(run, board),
        counts=counts(run, summary),
        meanings=_MEANING,
        board=records(board),
        heat=[heat(run, summary, metric) for metric in run.metrics],
        accuracy=accuracy(run),
        trainings=records(run.trainings),
        tolerance=TOLERANCE,
        drawings={name: inline_svg(svg, name, alternative(run, name)) for name, svg in drawings.items()},
        maps={kind: map_table(run, kind, rows) for kind, rows in map_kinds(run).items()},
        summary=records(summary.drop(columns=["outliers"])),
        undefined=records(tables.undefined(run)),
        failures=records(run.failures),
        citations=citations(run),
    )


def _number(value: Any, digits: int = 3) -> str:
    """A number with ``digits`` decimals and a true minus; an en dash for what is missing."""
    if value is None or value is pd.NA or value != value:
        return "–"
    rounded = round(float(value), digits) + 0.0  # no minus before a zero
    return f"{rounded:.{digits}f}".replace("-", "−")
