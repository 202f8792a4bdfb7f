"""Run folders that the figures of the report draw."""

from report.conftest import (
    all_cells_run,
    annotated_findings,
    annotated_run,
    few_cells_run,
    fresh_annotated_run,
    no_figures,
    shared_findings,
    shared_run,
    small_annotated_run,
)

__all__ = [
    "all_cells_run",
    "annotated_findings",
    "annotated_run",
    "few_cells_run",
    "fresh_annotated_run",
    "no_figures",
    "shared_findings",
    "shared_run",
    "small_annotated_run",
]
