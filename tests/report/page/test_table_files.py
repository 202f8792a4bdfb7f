import base64
import csv
import io

import pandas as pd
import pytest
from report.reader import Reader

from xaibench.report.page.table_files import page_tables, to_csv, to_latex, with_links

PAGE = """
<table class="heat" data-file="scores" data-view="mean"><caption class="hidden">50 % of A_1</caption>
<thead><tr><td></td><th colspan="2">LIN</th></tr>
<tr><th>Method</th><th class="n">Mean, 95 % interval</th><th>Kept <span class="faint">↓</span></th></tr></thead>
<tbody><tr><th>Saliency &amp; co <span class="badge own">yours</span></th>
<td class="n best" data-v="-0.51234"><span class="v-median">9</span>
<span class="v-mean">−0.512<small>−0.6 – −0.4</small></span></td>
<td><span>5</span><span> / 18</span><span class="flag">†</span></td></tr>
<tr class="is-control"><th><i>Sobel</i></th><td class="n">–</td><td>·</td></tr></tbody></table>
<p><!-- files scores --></p>
"""


def test_a_table_of_the_page_becomes_csv():
    (table,) = page_tables(PAGE).values()
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [
        ["Method", "LIN Mean", "LIN Mean low", "LIN Mean high", "LIN Kept"],
        ["Saliency & co", "-0.51234", "-0.6", "-0.4", "5 / 18"],
        ["Sobel", "", "", "", ""],
    ]


def test_a_table_of_the_page_becomes_latex():
    (table,) = page_tables(PAGE).values()
    assert to_latex(table).splitlines() == [
        r"% \usepackage{booktabs}",
        "% 50 % of A_1",
        "% dagger: does not beat the controls; double dagger: median not above the best control's",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{LIN} \\",
        r"Method & Mean, 95 \% interval & Kept $\downarrow$ \\",
        r"\midrule",
        r"Saliency \& co & \textbf{$-$0.512} {\scriptsize [$-$0.6, $-$0.4]} & 5 / 18$^\dagger$ \\",
        r"Sobel & -- & $\cdot$ \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_links_hold_the_files():
    first, second = Reader(with_links(PAGE, page_tables(PAGE))).all("a")
    assert (first["download"], second["download"]) == ("scores.csv", "scores.tex")
    head, _, content = second["href"].partition(",")
    assert head == "data:application/x-tex;base64"
    assert base64.b64decode(content).decode() == to_latex(page_tables(PAGE)["scores"])


def test_each_table_of_the_page_has_its_files(shared_run, shared_page):
    reader = Reader(shared_page)
    named = {table["data-file"] for table in reader.all("table") if "data-file" in table}
    unnamed = [table for table in reader.all("table") if "data-file" not in table]
    assert {table.get("class", table.get("id")) for table in unnamed} == {
        "maps",
        "pairs-table",
    }
    # All but those of pictures, and the one that the script fills.
    linked = {link["download"] for link in reader.all("a") if "download" in link}
    assert linked == {f"{name}.{kind}" for name in named for kind in ("csv", "tex")}
    assert {path.name for path in (shared_run / "tables").iterdir()} == linked
    board = pd.read_csv(shared_run / "tables" / "leaderboard.csv")
    assert len(board) == 17
    assert board["Mean rank"].is_monotonic_increasing
    summary = pd.read_csv(shared_run / "summary.csv")
    grid = pd.read_csv(shared_run / "tables" / "scores-1.csv").set_index("Method")
    cell = (summary["scenario"] == "xor") & (summary["background"] == "corr") & (summary["model"] == "cnn")
    lrp = summary[cell & (summary["explainer"] == "lrp") & (summary["metric"] == "emd_perf")]
    assert grid.loc["LRP", "XOR CORR CNN"] == pytest.approx(lrp["median"].item(), abs=0.005)
