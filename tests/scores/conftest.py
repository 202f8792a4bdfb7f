"""The run folders of the tests of the report."""

from report.conftest import (
    all_cells_run,
    annotated_findings,
    annotated_run,
    few_cells_run,
    four_columns,
    fresh_annotated_run,
    fresh_run,
    no_figures,
    shared_findings,
    shared_run,
    small_annotated_run,
    small_run,
)

__all__ = [
    "all_cells_run",
    "annotated_findings",
    "annotated_run",
    "few_cells_run",
    "four_columns",
    "fresh_annotated_run",
    "fresh_run",
    "no_figures",
    "shared_findings",
    "shared_run",
    "small_annotated_run",
    "small_run",
]
