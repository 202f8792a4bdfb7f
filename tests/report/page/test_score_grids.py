"""The tables of scores of every method, against the summary that they show."""

import pytest

from xaibench.report.page.tables import LOSES, UNPROVEN, grid_tables
from xaibench.report.tables import to_csv


def line_of(table, run, name):
    """The cells of a method's scores."""
    (row,) = (row for row in table.rows if row["explainer"] == name)
    label, *cells = (cell for _, cell, _ in table.cells(row))
    assert label.value == run.explainers[name].label
    return cells


def strength(cell):
    return float(cell.style.removeprefix("--v:"))


def test_of_many_cells_each_metric_has_a_table(shared_findings):
    run, summary, _ = shared_findings
    tables = grid_tables(run, summary)
    assert [table.caption for table in tables] == ["EMD_perf", "Precision"]
    assert [row["explainer"] for row in tables[0].rows] == list(run.explainers)
    assert len(tables[0].columns) == 19
    spans = [[(group and group.label, span) for group, span in line] for line in tables[0].head_lines()]
    assert spans[0][:3] == [(None, 1), ("LIN", 6), ("MULT", 4)]
    assert sum(cell.value is None for cell in line_of(tables[0], run, "guided_gradcam")) == 10
    heads = [(*(group.label for group in column.groups), column.label) for column in tables[0].columns[1:]]
    cell = line_of(tables[0], run, "deep_shap")[heads.index(("XOR", "CORR", "CNN"))]
    chosen = (summary["subset"] == "xor") & (summary["variant"] == "corr") & (summary["model"] == "cnn")
    chosen &= (summary["explainer"] == "deep_shap") & (summary["metric"] == "emd_perf")
    row = summary[chosen].iloc[0]
    assert (cell.detail["median"], cell.value, *cell.interval) == pytest.approx(
        tuple(row[["median", "mean", "low", "high"]])
    )
    means = summary.loc[summary["metric"] == "emd_perf", "mean"]  # one scale for all cells
    assert strength(cell) == pytest.approx((row["mean"] - means.min()) / (means.max() - means.min()), abs=0.006)


def test_of_many_metrics_each_cell_has_a_table(annotated_findings):
    run, summary, _ = annotated_findings
    tables = grid_tables(run, summary)
    assert [table.caption for table in tables] == ["pet · ResNet-18", "scene · ResNet-18"]
    assert [column.label for column in tables[0].columns[1:]] == [info.label for info in run.metrics.values()]
    assert ["↓" in column.unit for column in tables[0].columns[1:]] == [
        not info.higher_is_better for info in run.metrics.values()
    ]
    index = list(run.metrics).index("deletion")
    deletion = [line_of(tables[0], run, name)[index] for name in run.explainers]
    assert strength(min(deletion, key=lambda cell: cell.value)) == 1  # lower is better, on a scale of its own


def test_marks_say_how_a_method_compares_with_the_controls(annotated_findings):
    run, summary, _ = annotated_findings
    seen, bars = set(), []
    for table, dataset in zip(grid_tables(run, summary), ("pet", "scene"), strict=True):
        for name in run.explainers:
            for metric, cell in zip(run.metrics, line_of(table, run, name), strict=True):
                key = {"subset": dataset, "explainer": name, "metric": metric}
                row = summary[(summary[list(key)].astype(str) == list(key.values())).all(axis=1)].iloc[0]
                if run.explainers[name].control:
                    assert (cell.flag, cell.style) == ("", "")
                else:
                    loses, unproven = not row["above_controls"], not row["beats_controls"]
                    assert cell.flag == (LOSES if loses else UNPROVEN if unproven else "")
                    assert bool(cell.style) == row["above_controls"]
                seen.add(cell.flag)
                assert cell.is_best == (row["rank"] == 1) or row["rank"] % 1
                bars += [(dataset, metric, name)] if "is-bar" in cell.css else []
        assert ("dagger" in " ".join(table.notes)) is True
    assert seen == {"", LOSES, UNPROVEN}
    assert len({bar[:2] for bar in bars}) == 2 * len(run.metrics)
    assert all(run.explainers[name].control for _, _, name in bars)


def test_the_files_have_intervals(annotated_findings):
    run, summary, _ = annotated_findings
    head = to_csv(grid_tables(run, summary)[0]).split("\n")[0].split(",")
    assert head[:4] == ["Method", "IoU", "IoU low", "IoU high"]
