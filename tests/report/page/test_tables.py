"""The tables of scores of every method, against the summary that they show."""

import base64
import csv
import io
import subprocess

import pandas as pd
import pytest
from report.reader import Reader

from xaibench.report.page.tables import LOSES, UNPROVEN, grid_tables
from xaibench.report.page.templating import file_links, template_environment
from xaibench.scores.leaderboards import leaderboard, place_text
from xaibench.scores.render import Column, ColumnGroup, GroupRow, Table, TableCell, to_csv, to_latex


@pytest.fixture
def table():
    groups = (ColumnGroup("LIN", direction="↓"),)
    number = {"format": lambda value: f"{value:.3f}".replace("-", "−"), "is_number": True}
    columns = [
        Column("Method", "method", is_row_head=True),
        Column("Mean", "mean", unit=", 95 % interval", groups=groups, is_exact=True, has_interval=True, **number),
        Column("Kept", lambda row: row["kept"], groups=groups, format=str, is_number=True),
        Column("Rank", lambda row: 1, is_hidden=True),
        Column("", lambda row: TableCell(detail="drawn"), is_page_only=True),
    ]
    mean, kept = TableCell(-0.51234, interval=(-0.6, -0.4), is_best=True), TableCell(5, suffix=" / 18", flag="†")
    rows = [
        GroupRow("Of the network"),
        {"method": "Saliency & co", "mean": mean, "kept": kept},
        {"method": "Sobel", "mean": None, "kept": float("nan")},
    ]
    return Table("scores", "50 % of A_1", columns, rows, notes=["dagger: not proven"])


def test_csv_has_exact_values_and_columns_for_the_ends_of_intervals(table):
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [
        ["Method", "LIN Mean", "LIN Mean low", "LIN Mean high", "LIN Kept"],
        ["Of the network", "", "", "", ""],
        ["Saliency & co", "-0.51234", "-0.600", "-0.400", "5 / 18"],
        ["Sobel", "", "", "", ""],
    ]


def test_latex_has_values_as_they_are_shown(table):
    assert to_latex(table).splitlines() == [
        r"% \usepackage{booktabs}",
        "% 50 % of A_1",
        "% dagger: not proven",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{LIN$\downarrow$} \\",
        r"\cmidrule(lr){2-3}",
        r"Method & Mean, 95 \% interval & Kept \\",
        r"\midrule",
        r"Of the network &  &  \\",
        r"Saliency \& co & \textbf{$-$0.512} {\scriptsize [$-$0.600, $-$0.400]} & 5 / 18$^\dagger$ \\",
        r"Sobel & -- & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def tabulars(text):
    """The cells of each environment, line by line; spans count as one."""
    return [
        [line.removesuffix(r" \\").split(" & ") for line in part.splitlines() if line.endswith(r" \\")]
        for part in text.split(r"\begin{tabular}")[1:]
    ]


def test_a_wide_table_is_divided_into_parts_of_eight_columns_that_repeat_the_head():
    columns = [Column("Set", lambda row: "lin"), Column("Method", str, is_row_head=True)]
    columns += [Column(f"c{k}", lambda row, k=k: f"{row}{k}", is_number=True) for k in range(13)]
    columns.insert(5, Column("aside", lambda row: "hidden", is_number=True, is_detail=True))
    table = Table("wide", "Wide", columns, ["a", "b"])
    parts = tabulars(to_latex(table))
    assert [part[0] for part in parts] == [
        ["Set", "Method", *(f"c{number}" for number in range(6))],
        ["Set", "Method", *(f"c{number}" for number in range(6, 12))],
        ["Set", "Method", "c12"],
    ]
    assert [row[:2] for part in parts for row in part[1:]] == 3 * [["lin", "a"], ["lin", "b"]]
    assert "hidden" not in [cell for part in parts for row in part for cell in row]
    assert "aside" in to_csv(table)


def test_html_shows_every_column_and_links_the_files(table):
    macros = template_environment().get_template("tables.html.j2").module
    page = str(macros.with_files(table))
    reader = Reader(page)
    assert reader.all("table") == [{"data-file": "scores", "data-sortable": "sort.scores"}]
    assert [head.get("colspan") for head in reader.all("th") if head["scope"] == "colgroup"] == ["2"]
    assert '<td data-v="-0.51234">−0.512<small>−0.600 – −0.400</small></td>' in page
    assert "Saliency &amp; co" in page
    first, second = reader.all("a")
    assert (first["download"], second["download"]) == ("scores.csv", "scores.tex")
    head, _, content = second["href"].partition(",")
    assert head == "data:application/x-tex;base64"
    assert base64.b64decode(content).decode() == to_latex(table)


def test_a_large_file_is_linked_in_the_folder():
    table = Table("long", "Long", [Column("Text", "text")], [{"text": "x" * 60_000}])
    assert [link["address"] for link in file_links(table)] == ["tables/long.csv", "tables/long.tex"]


def test_each_table_of_the_page_has_its_files(shared_run, shared_page, shared_findings):
    reader = Reader(shared_page)
    named = {table["data-file"] for table in reader.all("table") if "data-file" in table}
    unnamed = [table for table in reader.all("table") if "data-file" not in table]
    # All but those of images, and the one that the script fills.
    assert {table.get("class", table.get("id")) for table in unnamed} == {"maps", "pairs-table"}
    linked = {link["download"] for link in reader.all("a") if "download" in link}
    assert linked == {f"{name}.{kind}" for name in named for kind in ("csv", "tex")}
    assert {path.name for path in (shared_run / "tables").iterdir()} == linked
    board = pd.read_csv(shared_run / "tables" / "leaderboard.csv")
    assert len(board) == 17
    assert board["EMD_perf Mean"].is_monotonic_decreasing
    run, summary, pairs = shared_findings
    shown = leaderboard(run, summary, pairs=pairs)
    ranges = [place_text(first, last) for first, last in zip(shown["place"], shown["last_place"], strict=True)]
    assert any("–" in places for places in ranges)
    assert board["Place"].fillna("").tolist() == ranges
    for file in (shared_run / "tables").glob("*.tex"):
        text = file.read_text(encoding="utf-8")
        assert max(len(line) for part in tabulars(text) for line in part) <= 8
        assert r"\multicolumn{1}" not in text
        if file.name == "accuracy.tex":  # the ticks of the drawing are not a heading
            assert r"50 \%" not in text
            assert "80100" not in text
    accuracy = pd.read_csv(shared_run / "tables" / "accuracy.csv")
    assert list(accuracy)[3:7] == ["Mean ± std", "Paper", "Difference", "Best"]  # the drawing is not a column
    summary = pd.read_csv(shared_run / "summary.csv")
    grid = pd.read_csv(shared_run / "tables" / "scores-1.csv").set_index("Method")
    cell = (summary["subset"] == "xor") & (summary["variant"] == "corr") & (summary["model"] == "cnn")
    lrp = summary[cell & (summary["explainer"] == "lrp") & (summary["metric"] == "emd_perf")]
    assert grid.loc["LRP", "XOR CORR CNN"] == pytest.approx(lrp["mean"].item(), abs=5e-4)


@pytest.mark.system("pdflatex")
def test_the_tables_of_a_report_compile(shared_run, shared_page, tmp_path):
    inputs = [f"\\input{{{file}}}\n" for file in sorted((shared_run / "tables").glob("*.tex"))]
    head = "\\documentclass[landscape]{article}\\usepackage{booktabs}\\begin{document}\\tiny\n"
    (tmp_path / "a.tex").write_text("\n".join([head, *inputs, "\\end{document}\n"]), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-2000:]


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
