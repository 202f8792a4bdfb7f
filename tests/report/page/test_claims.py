"""The papers' findings on the page of a run."""

import pandas as pd

from xaibench.report.page.write import write_report


def test_bounds_of_ours_and_cells_that_are_left_out_are_named(fresh_run, no_figures):
    rows = pd.read_csv(fresh_run / "accuracy.csv")
    poor = (rows["subset"] == "lin") & (rows["variant"] == "corr") & (rows["model"] == "cnn")
    rows["mean"] = rows["mean"].clip(lower=85).mask(poor, 79.9)
    rows.to_csv(fresh_run / "accuracy.csv", index=False)
    page = write_report(fresh_run).read_text(encoding="utf-8")
    assert "&lt; 0.5 (ours)" in page
    assert " at 0.5 (also at 0." in page
    assert "<strong>Excluded</strong> from all findings: LIN CORR CNN (its networks reach less than the 80 %" in page
