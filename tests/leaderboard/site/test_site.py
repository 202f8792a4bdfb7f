"""The site of a results repository: what stands on its pages and in its files, and what it leaves out."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from leaderboard.forging import with_text
from leaderboard.site.repositories import METHODS, OTHER, VERSION, change_scores, verified, write_repository
from refusals import refused
from typer.testing import CliRunner

import xaibench as xb
from xaibench.cli import app
from xaibench.leaderboard import SiteError
from xaibench.leaderboard.facts import FACTS_FILE
from xaibench.leaderboard.site.results import build_leaderboards, by_suite, read_results
from xaibench.leaderboard.site.write import _suite_entries
from xaibench.report.page.content import board_values
from xaibench.report.page.tables import leaderboard_table
from xaibench.scores.leaderboards import leaderboard, printable


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Two versions of a suite."""
    about = {"lime": {"repository": "https://example.org/lime", "commit": "0123456"}}
    folder = write_repository(tmp_path_factory.mktemp("repository") / "results", about=about)
    write_repository(folder, version=OTHER, methods=METHODS[:3], pictures=False, about=about)
    verified(folder / "lime" / f"tiny@{VERSION}", commit="0123456789ab")
    verified(folder / "saliency" / f"tiny@{VERSION}", sha256="0" * 64)  # of another state of the result
    return folder


@pytest.fixture(scope="module")
def site(repository, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    xb.leaderboard.write_site(repository, out)
    return out


@pytest.fixture
def one(repository, tmp_path):
    """A single suite of few methods, to damage."""
    folder = tmp_path / "one"
    for name in ("saliency", "lime", "sobel"):
        shutil.copytree(repository / name / f"tiny@{VERSION}", folder / name / f"tiny@{VERSION}")
    shutil.copytree(repository / "suites", folder / "suites")
    return folder


@pytest.fixture(scope="module")
def board(repository):
    results, _ = read_results(repository)
    return build_leaderboards(by_suite(results)[f"tiny@{VERSION}"])[0]


def text(page):
    return page.read_text(encoding="utf-8")


def rows_of(page, truth):
    """Method to the texts of its cells, of one leaderboard of a page."""
    table = re.search(rf'<table class="board[^>]*id="board-{truth}".*?</table>', text(page), re.S)[0]
    found = {}
    for name, row in re.findall(r'<tr data-e="(.*?)"[^>]*>(.*?)</tr>', table, re.S):
        cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S)
        found[name] = [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in cells]
    return found


def test_the_first_page_has_a_leaderboard_of_each_kind_of_truth_and_none_over_all(site, board):
    page = text(site / "index.html")
    assert re.findall(r'data-truth="(\w+)"', page) == ["data", "intervention"]
    for truth, metric in (("data", "emd_perf"), ("intervention", "topk_precision")):
        rows = rows_of(site / "index.html", truth)
        assert set(rows) == set(METHODS)
        values = board.run.scores[board.run.scores["scored"] & (board.run.scores["metric"] == metric)]
        means = values.groupby(["explainer", "subset", "variant", "model"], observed=True)["value"].mean()
        for name in METHODS:
            assert rows[name][2].split()[0] == f"{means[name].mean():.3f}"  # the mean of the cells' means
            assert re.fullmatch(r"0\.\d+ 0\.\d+ – 0\.\d+", rows[name][2])  # and its interval
        order = means.groupby("explainer", observed=True).mean().sort_values(ascending=False)
        assert list(rows) == order.index.tolist()
    assert "guided_gradcam" in rows_of(site / "index.html", "data")
    assert rows_of(site / "index.html", "data")["guided_gradcam"][0] == "–"  # it was not scored in every cell


@pytest.mark.parametrize(("truth", "metric"), [("data", "emd_perf"), ("intervention", "topk_precision")])
def test_the_terminal_the_page_of_a_run_and_the_site_agree(site, board, truth, metric):
    """All three show the same mean and place of a method, and the same order."""
    run, of_page = board.run, board.boards[truth]
    data = board_values(of_page)
    lines = dict(zip(data["ranked"], data["boards"][".."]["metrics"][data["ranking"]], strict=True))
    terminal = printable(run, leaderboard(run, board.summary, truth, board.pairs))
    terminal["method"] = terminal["method"].str.replace(r" \(.*", "", regex=True)
    table = leaderboard_table(run, truth, of_page.rows(), "")
    rows = rows_of(site / "index.html", truth)
    assert list(rows) == [table.row_attributes(row)["data-e"] for row in table.rows]
    assert list(rows) == sorted(METHODS, key=lambda name: lines[name][0])
    assert [run.explainers[name].label for name in rows] == terminal["method"].tolist()
    placed = 0
    for (name, cells), printed, row in zip(rows.items(), terminal.to_dict("records"), table.rows, strict=True):
        _, first, last, _, _, mean, *_ = lines[name]
        place = "–" if first is None else f"{first}" if first == last else f"{first}–{last}"
        placed += first is not None
        assert cells[0] == place
        assert printed["place"] == place.replace("–", "", first is None)
        ranks, _, score = (cell for _, cell, _ in table.cells(row)[:3])
        assert (ranks.value, ranks.suffix) == (first, f"–{last}" if first != last else "")
        assert cells[2].split()[0] == printed[run.metrics[metric].label] == f"{mean:.3f}" == f"{score.value:.3f}"
    assert 0 < placed < len(METHODS) - 2  # some methods are not ranked, and neither are the two controls
    assert rows["guided_gradcam"][0] == "–"


def test_the_usual_verdict_is_stated_once_and_other_rows_have_a_badge(site):
    rows = rows_of(site / "index.html", "data")
    assert rows["lime"][1].startswith("LIME bit-equal")
    assert "verified" not in " ".join(row[1] for row in rows.values())
    card = text(site / "methods" / "lime.html")
    assert "bit-equal, with xaibench 0.2.0 (<code>0123456789</code>)" in card
    assert "1 of 7 results verified; without a mark: not verified" in text(site / "index.html")


def test_where_all_results_are_verified_alike_the_head_says_so(one, tmp_path):
    for name in ("lime", "saliency", "sobel"):
        verified(one / name / f"tiny@{VERSION}")
    built = xb.leaderboard.write_site(one, tmp_path / "site")
    assert text(built.page).count("bit-equal") == 1
    assert "2 methods · 1 control · 4 cells · all results verified: bit-equal · newest result" in text(built.page)


def test_the_numbers_of_every_choice_of_cells_are_in_files_of_their_own(site, board):
    page = json.loads(re.search(r'id="page-data">(.*?)</script>', text(site / "index.html"), re.S)[1])
    assert {key for truth in page["truths"].values() for key in truth["boards"]} == {".."}
    key = "0.."  # the first subset
    assert key in page["choices"]
    name, value = re.fullmatch(
        r"xaibenchData\((.*?),(.*)\);\n",
        text(site / "data" / f"tiny.{VERSION}" / f"cells-{key}.js"),
    ).groups()
    assert json.loads(name) == f"tiny.{VERSION}/cells-{key}"
    values = board.run.scores[board.run.scores["scored"] & (board.run.scores["metric"] == "emd_perf")]
    mine = values[values["subset"] == board.run.subsets[0]]
    means = mine.groupby(["explainer", "variant", "model"], observed=True)["value"].mean()
    line = json.loads(value)["data"]["metrics"][0][page["truths"]["data"]["ranked"].index("lime")]
    assert line[5] == pytest.approx(means["lime"].mean(), abs=1e-5)


def test_history_shows_every_version_in_the_order_of_its_results(site):
    page = text(site / "methods" / "lime.html")
    standings = page[page.index('id="standings"') : page.index('id="cells"')]
    assert re.findall(r"<code>(\w{32})</code>", standings) == [VERSION, OTHER]
    assert standings.count("2026-01-01") == 2


def test_everything_is_there_as_parquet_and_as_csv(site, board):
    down = site / "downloads"
    for name in (
        "results",
        f"tiny.{VERSION}/leaderboard",
        f"tiny.{VERSION}/cells",
        f"tiny.{VERSION}/methods/lime",
    ):
        one, other = pd.read_parquet(down / f"{name}.parquet"), pd.read_csv(down / f"{name}.csv")
        assert list(one) == list(other)
        assert len(one) == len(other) > 0
    cells = pd.read_parquet(down / f"tiny.{VERSION}" / "cells.parquet")
    assert cells["mean"].to_numpy() == pytest.approx(board.summary["mean"].to_numpy(), nan_ok=True)
    pairs = [
        pd.read_parquet(down / f"tiny.{VERSION}/pairs.parquet"),
        pd.read_csv(down / f"tiny.{VERSION}/pairs.csv.gz"),
    ]
    for table in pairs:
        assert len(table) == len(board.pairs)
        assert table["p_holm"].to_numpy() == pytest.approx(board.pairs["p_holm"].to_numpy(), nan_ok=True)
    assert text(down / "citations.bib").count("@misc{") == len(METHODS)
    assert "Shapley" not in text(down / "citations.bib")


def test_every_link_of_the_site_leads_somewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(METHODS)
    for page in pages:
        for link in re.findall(r'(?:href|src)="([^"#]+)', text(page)):
            if not link.startswith(("data:", "http")):
                assert (page.parent / link).is_file(), (page.name, link)


def test_the_same_results_make_the_same_bytes(repository, site, tmp_path):
    again = tmp_path / "again"
    xb.leaderboard.write_site(repository, again)
    files = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert [name for name in files if (site / name).read_bytes() != (again / name).read_bytes()] == []


def test_another_suite_opens_the_site_where_the_largest_cannot_be_shown(one, tmp_path):
    """Verified results of earlier versions of a suite are not checked again."""
    for name in ("lime", "saliency", "sobel"):
        (one / name / f"tiny@{VERSION}" / "scores.parquet").write_bytes(b"PAR1")
    write_repository(one, methods=METHODS[:2], suite="small", pictures=False)
    built = xb.leaderboard.write_site(one, tmp_path / "site")
    assert (built.suites, built.methods, len(built.left_out)) == (1, 2, 3)
    assert f"url=suites/small.{VERSION}.html" in text(built.page)
    for name in METHODS[:2]:
        shutil.rmtree(one / name / f"small@{VERSION}")
    refused(SiteError, "", lambda: xb.leaderboard.write_site(one, tmp_path / "other"))


def test_a_site_that_is_not_built_to_its_end_leaves_the_earlier_one(one, tmp_path):
    xb.leaderboard.write_site(one, tmp_path / "site")
    before = text(tmp_path / "site" / "index.html")
    with_text(one / "lime" / f"tiny@{VERSION}", schema=1)
    refused(SiteError, f"lime/tiny@{VERSION}", lambda: xb.leaderboard.write_site(one, tmp_path / "site", strict=True))
    assert text(tmp_path / "site" / "index.html") == before
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
    built = xb.leaderboard.write_site(one, tmp_path / "site")  # replaces it
    page = text(tmp_path / "site" / "index.html")
    assert set(rows_of(built.page, "data")) == {"saliency", "sobel"}
    assert f"1 result is not shown:</strong> lime/tiny@{VERSION}: " in page


def test_a_method_whose_maps_ignore_the_network_is_a_control_whatever_it_declares(one, tmp_path):
    verified(one / "lime" / f"tiny@{VERSION}", changed={"weights": 0.0, "image": 1.0})
    built = xb.leaderboard.write_site(one, tmp_path / "site")
    row = rows_of(built.page, "data")["lime"]
    assert (row[0], row[1]) == ("–", "LIME bit-equal 4 of 4 cells control maps do not depend on the network")
    page = text(tmp_path / "site" / "methods" / "lime.html")
    assert "Control: its maps do not depend on the network" in page
    assert "0 % with randomized weights, 100 % with another image of the same class" in page


def test_the_first_page_is_of_most_information_or_of_the_suite_that_is_named(tmp_path):
    for suite, methods in (("tiny", METHODS[:1]), ("many", METHODS[:2])):
        write_repository(tmp_path / "results", methods=methods, suite=suite, pictures=False)
    results, _ = read_results(tmp_path / "results")
    pages = [{one.suite: one.page for one in _suite_entries(results, first)} for first in ("", "tiny")]
    facts = next(one.facts for one in results if one.manifest.suite == "tiny")
    cells = pd.DataFrame([{"subset": f"s{i}", "variant": "-", "model": "m", "mean": 90.0} for i in range(3)])
    (facts.folder / FACTS_FILE).write_bytes(dataclasses.replace(facts, accuracy=cells).to_json())
    results, _ = read_results(tmp_path / "results")
    assert next(one.page for one in _suite_entries(results) if one.suite == "tiny") == "index.html"
    assert [page["many"] for page in pages] == ["index.html", f"suites/many.{VERSION}.html"]
    assert [page["tiny"] for page in pages] == [f"suites/tiny.{VERSION}.html", "index.html"]
    with pytest.raises(SiteError, match="no results of the suite 'tinny'; did you mean 'tiny'"):
        xb.leaderboard.write_site(tmp_path / "results", tmp_path / "site", first="tinny")


def test_a_method_without_a_defined_score_has_a_page_and_no_place(one, tmp_path):
    change_scores(one / "lime" / f"tiny@{VERSION}", lambda rows: rows.assign(value=np.nan))
    built = xb.leaderboard.write_site(one, tmp_path / "site")
    assert set(rows_of(built.page, "data")) == {"saliency", "sobel"}
    assert "LIME" in text(tmp_path / "site" / "methods" / "lime.html")


def test_only_a_site_or_an_empty_folder_is_written_over(one, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years")
    refused(SiteError, "is not a site of `xaibench leaderboard`", xb.leaderboard.write_site, one, mine)
    assert (mine / "thesis.tex").read_text() == "years"


def test_the_command_says_what_it_built_and_what_it_left_out(one, tmp_path):
    with_text(one / "lime" / f"tiny@{VERSION}", schema=1)
    result = CliRunner().invoke(app, ["leaderboard", str(one), "--out", str(tmp_path / "site")])
    assert result.exit_code == 0, result.output
    assert f"2 methods on 1 suite: {tmp_path / 'site' / 'index.html'}" in result.output
    assert f"Left out: lime/tiny@{VERSION}." in result.output
    result = CliRunner().invoke(app, ["leaderboard", str(one), "--out", str(tmp_path / "site"), "--strict"])
    assert result.exit_code == 2


def test_pairs_in_files_are_the_paired_tests(site, board):
    pairs = json.loads(
        re.search(r'id="pairs-data">(.*?)</script>', text(site / "pairs" / f"tiny.{VERSION}.html"), re.S)[1]
    )
    names, metrics = list(board.run.explainers), list(board.run.metrics)
    low, high = sorted(map(names.index, ("integrated_gradients", "lime")))
    content = text(site / "data" / f"tiny.{VERSION}" / f"pairs-{low}.js")
    flat = json.loads(content.partition(",")[2][:-3])[f"{low} {high}"]
    rows = {tuple(flat[at : at + 2]): flat[at + 2 : at + 6] for at in range(0, len(flat), 6)}
    mine = board.pairs[(board.pairs["first"] == names[low]) & (board.pairs["second"] == names[high])]
    assert len(rows) == len(mine) + len(metrics)
    for metric, name in enumerate(metrics):  # the means over all cells
        difference, least, most, _ = rows[-1, metric]
        assert difference == pytest.approx(mine["difference"][mine["metric"] == name].mean(), rel=1e-5)
        assert least < difference < most
    for row in mine.to_dict("records"):
        cell = pairs["cells"].index({name: row[name] for name in ("subset", "variant", "model")})
        found = rows[cell, metrics.index(row["metric"])]
        assert found == pytest.approx([row[name] for name in ("difference", "low", "high", "p_holm")], rel=1e-5)
