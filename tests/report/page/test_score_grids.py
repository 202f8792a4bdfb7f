import pytest

from xaibench.report.page.score_grids import Grid, GridColumn, grids


def test_heads_span_what_they_share():
    heads = [("LIN", "WHITE", "LLR"), ("LIN", "WHITE", "MLP"), ("LIN", "CORR", "MLP"), ("XOR", "CORR", "MLP")]
    grid = Grid("t", [GridColumn(head) for head in heads], {})
    assert grid.levels == [
        [("LIN", 3, True), ("XOR", 1, True)],
        [("WHITE", 2, True), ("CORR", 1, False), ("CORR", 1, True)],
        [("LLR", 1, True), ("MLP", 1, False), ("MLP", 1, False), ("MLP", 1, True)],
    ]


def test_of_many_cells_each_metric_has_a_table(shared_findings):
    run, summary, _ = shared_findings
    found = grids(run, summary)
    assert [grid.title for grid in found] == ["EMD_perf", "Precision"]
    assert len(found[0].columns) == 18
    assert list(found[0].rows) == list(run.explainers)
    assert found[0].rows["guided_gradcam"].count(None) == 10
    cell = found[0].rows["deep_shap"][found[0].columns.index(GridColumn(("XOR", "CORR", "CNN")))]
    mine = (summary["subset"] == "xor") & (summary["variant"] == "corr") & (summary["model"] == "cnn")
    row = summary[mine & (summary["explainer"] == "deep_shap") & (summary["metric"] == "emd_perf")].iloc[0]
    assert (cell.median, cell.mean, cell.low, cell.high) == pytest.approx(tuple(row[["median", "mean", "low", "high"]]))
    means = summary.loc[summary["metric"] == "emd_perf", "mean"]  # one scale for all cells
    assert cell.strength == pytest.approx((row["mean"] - means.min()) / (means.max() - means.min()), abs=0.006)


def test_of_many_metrics_each_cell_has_a_table(annotated_findings):
    run, summary, _ = annotated_findings
    found = grids(run, summary)
    assert [grid.title for grid in found] == ["pet · ResNet-18", "scene · ResNet-18"]
    assert [column.head for column in found[0].columns] == [(part.label,) for part in run.metrics.values()]
    assert [column.lower for column in found[0].columns] == [not part.higher_is_better for part in run.metrics.values()]
    place = list(run.metrics).index("deletion")
    deletion = {name: line[place] for name, line in found[0].rows.items()}
    best = min(deletion, key=lambda name: deletion[name].mean)
    assert deletion[best].strength == 1  # lower is better, each metric on a scale of its own
    assert max(deletion.values(), key=lambda cell: cell.mean).strength == 0


def test_marks_say_how_a_method_stands_to_the_controls(annotated_findings):
    run, summary, _ = annotated_findings
    found = grids(run, summary)
    seen = set()
    for grid, dataset in zip(found, ("pet", "scene"), strict=True):
        for name, line in grid.rows.items():
            for metric, cell in zip(run.metrics, line, strict=True):
                key = {"subset": dataset, "explainer": name, "metric": metric}
                row = summary[(summary[list(key)].astype(str) == list(key.values())).all(axis=1)].iloc[0]
                if run.explainers[name].control:
                    assert (cell.mark, cell.tinted) == ("", False)
                else:
                    loses, unproven = not row["above_controls"], not row["beats_controls"]
                    assert cell.mark == ("loses" if loses else "unproven" if unproven else "")
                    assert cell.tinted == row["above_controls"]
                seen.add(cell.mark)
                assert cell.best == (row["rank"] == 1) or row["rank"] % 1
    assert seen == {"", "loses", "unproven"}
    bars = [name for name, line in found[0].rows.items() if line[0].bar]
    assert len(bars) == 1
    assert run.explainers[bars[0]].control
