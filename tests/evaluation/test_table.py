"""The table of an evaluation in LaTeX and Markdown."""

import re
import subprocess

import pytest
from refusals import refused

from xaibench.registry.table import UnknownNameError


def latex_rows(text):
    lines = text[text.index("\\midrule") : text.index("\\bottomrule")].splitlines()
    return {line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")[1:] for line in lines if "&" in line}


def test_the_best_methods_are_those_that_the_test_does_not_tell_apart(scored):
    for metric, info in scored.metrics.items():
        means = scored.summary().query("metric == @metric").set_index("method")["mean"]
        first = means.idxmax() if info.higher_is_better else means.idxmin()
        best = scored.best_methods(metric)
        assert best[0] == first
        pairs = scored.compare(metric).set_index(["first", "second"])["p_holm"]
        for method in set(means.index) - {first}:
            p = pairs.get((first, method), pairs.get((method, first)))
            assert (method in best) == (p >= 0.05)
    assert set(scored.best_methods("average_precision")) == {"right_&_good", "nearly"}
    assert scored.best_methods("emd")[0] != "noise|"  # less is better


def test_latex_has_the_numbers_of_the_summary(scored):
    text = scored.to_latex()
    rows = latex_rows(text)
    assert [name.replace("\\", "") for name in rows] == scored.methods
    assert "right\\_\\&\\_good" in rows
    summary = scored.summary().set_index(["method", "metric"])
    for name, cells in rows.items():
        for metric, cell in zip(scored.metrics, cells, strict=True):
            method = name.replace("\\", "")
            row = summary.loc[(method, metric)]
            numbers = [float(number) for number in re.findall(r"\d\.\d{3}", cell)]
            assert numbers == pytest.approx([row["mean"], row["low"], row["high"]], abs=6e-4)
            assert ("textbf" in cell) == (method in scored.best_methods(metric))
            assert ("dagger" in cell) == (row["beats_controls"] == False)  # noqa: E712  # None for controls
    assert "Method & Average precision $\\uparrow$ & EMD $\\downarrow$ \\\\" in text
    assert text.count("\\midrule") == 2  # the controls are apart
    assert all(line.startswith("%") for line in text.split("\\begin")[0].splitlines())


def test_a_caption_makes_it_a_table_of_a_paper(scored):
    text = scored.to_latex(["emd"], digits=1, caption="Distances", label="tab:emd")
    assert text.index("\\begin{table}") < text.index("\\caption{Distances}") < text.index("\\label{tab:emd}")
    assert text.endswith("\\end{tabular}\n\\end{table}\n")
    assert {len(cells) for cells in latex_rows(text).values()} == {1}
    assert re.search(r"\[\d\.\d, \d\.\d\]", text)


@pytest.mark.system("pdflatex")
def test_latex_compiles(scored, tmp_path):
    body = scored.to_latex(caption="Scores", label="tab:scores")
    (tmp_path / "a.tex").write_text(
        f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{body}\\end{{document}}\n",
        encoding="utf-8",
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-2000:]


def test_markdown(scored):
    table, *notes = scored.to_markdown().rstrip().split("\n\n")
    head, rule, *rows = table.splitlines()
    assert head == "| Method | Average precision ↑ | EMD ↓ |"
    assert rule == "| --- | --- | --- |"
    assert len(rows) == len(scored.methods)
    assert rows[2].startswith("| noise\\| | ")
    assert [("**" in row.split(" | ")[1]) for row in rows[:3]] == [True, True, False]
    assert notes[:-1] == scored.notes()
    assert notes[-1].startswith("Bold: ")


def test_metrics_that_were_not_evaluated_are_named(scored):
    for render in (scored.to_latex, scored.to_markdown, scored.plot):
        refused(UnknownNameError, "no scores of 'iou'; known: average_precision, emd", render, ["iou"])
        refused(ValueError, "metrics='emd': expected a list", render, "emd")
