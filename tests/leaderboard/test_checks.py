"""Attacks on the check and on the site: each is refused with a reason, and takes nothing else down."""

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from leaderboard.conftest import SUITE
from leaderboard.forging import ATTACKS, OF_ONE_RESULT, OTHER, facts, inflated, with_scores, with_text
from refusals import refused

import xaibench as xb
from xaibench.leaderboard.checks import _expected_rows, check
from xaibench.leaderboard.facts import read_facts
from xaibench.leaderboard.repository import ResultError, Verification, record_verification, result_checksum
from xaibench.leaderboard.scores import read_scores
from xaibench.leaderboard.site.results import read_results
from xaibench.leaderboard.verification import compare_scores


def older_scores(table):
    """The scores as older versions wrote them, which named the samples that count ``correct``."""
    counts = table["scored"]
    return table.drop_columns("scored").set_column(table.column_names.index("correct"), "correct", counts)


def older_facts(words):
    head, *lines = (line.split(",") for line in words["networks"])
    words["networks"] = [",".join(one) for one in (head[:5], *([*line[:4], line[5]] for line in lines))]


def test_results_and_facts_of_older_versions_are_accepted(repository):
    results = [folder for folder in repository.glob("*/tiny@*") if folder.parent.name != "suites"]
    facts(older_facts)(results[0])  # of both
    assert [check(folder) for folder in results] == [[], []]
    known = read_scores(results[0], 10**6)
    with_scores(results[0], older_scores)
    assert [check(folder) for folder in results] == [[], []]
    older = read_scores(results[0], 10**6)
    assert older["correct"].isna().all()
    assert older["scored"].tolist() == known["scored"].tolist()
    assert compare_scores(older, known)[0] == 0
    with_scores(results[0], lambda table: older_scores(table.append_column("scored", pc.invert(table["correct"]))))
    assert "scored differs from the suite" in check(results[0])[0]


def test_honest_results_are_accepted(repository):
    assert [check(folder) for folder in repository.glob("*/tiny@*") if folder.parent.name != "suites"] == [[], []]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_with_a_reason(name, result):
    ATTACKS[name](result)
    problems = check(result)
    assert problems
    assert all(problem and problem.replace("\n", "").isprintable() for problem in problems)


def test_facts_with_other_trainings_than_the_plan_are_named(result):
    ATTACKS["facts with another training"](result)
    (problem,) = check(result)
    assert "has the trainings [0, 9] of" in problem


def test_facts_lack_no_training_of_a_suite_that_explains_all(repository, ships):
    (folder,) = repository.glob("suites/tiny@*")
    every = SUITE.replace("samples = 6", "samples = 6\ntrainings = 'all'")
    ships(every.replace("seeds = [0]\nepochs", "seeds = [0, 1]\nepochs"))
    refused(ResultError, ["has the trainings [0] of", "expected [0, 1]"], _expected_rows, read_facts(folder), "tiny")


def test_rows_that_do_not_match_are_all_that_is_said_of_a_result(result):
    ATTACKS["later samples"](result)
    problems = check(result)
    assert ["not in the suite" in problem or "lacks" in problem for problem in problems] == [True, True], problems


def test_attacks_take_neither_other_results_nor_the_site_down(repository, typed):
    """One result per attack on a result, next to an honest one."""
    (honest,) = repository.glob("mine-gxi/*")
    folders = []
    for number, name in enumerate(OF_ONE_RESULT):
        folder = Path(shutil.copytree(honest, repository / f"attack{number}" / honest.name))
        with_scores(folder, lambda table, n=number: _renamed(table, f"attack{n}"))
        with_text(folder, method=f"attack{number}")
        assert check(folder) == []
        ATTACKS[name](folder)
        folders.append(folder)
    printed = typed(["results", "check", str(repository)])
    assert printed.exit_code == 1
    assert printed.output.count("refused") == len(OF_ONE_RESULT)
    assert printed.output.count("ok  ") == 2
    built = xb.leaderboard.write_site(repository, repository.parent / "site")
    assert built.methods == 2
    assert len(built.left_out) == len(OF_ONE_RESULT)
    page = built.page.read_text()
    assert f"{len(OF_ONE_RESULT)} results are not shown" in page


def test_odd_names_of_folders_are_printed_by_their_codes(result, typed):
    repository = result.parents[1]
    shutil.copytree(result.parent, repository / "a\n\x1b[2J\u202e\udcff")
    printed = typed(["results", "check", str(repository)], color=True)
    assert printed.exit_code == 1
    assert rf"a\n\x1b[2J\u202e\udcff/{result.name}" in printed.output
    built = xb.leaderboard.write_site(repository, repository.parent / "site")
    (left_out,) = built.left_out
    assert (left_out.name + left_out.reason).isprintable()
    assert left_out.name in (built.page.parent / "downloads.html").read_text()


def _renamed(table, name):
    names = pa.array([name] * len(table))
    return table.set_column(table.column_names.index("explainer"), "explainer", names)


def test_a_method_may_lack_all_scores_of_a_network(result):
    with_scores(result, lambda table: table.filter(pc.not_equal(table["model"], "mlp")))
    assert check(result) == []


def test_nothing_in_a_result_is_imported_or_run(result, monkeypatch):
    monkeypatch.syspath_prepend(result.parent)
    (result.parent / "imported_by_a_check.py").write_text("raise SystemExit('imported')\n")
    with_text(result, entry="imported_by_a_check:gxi", parameters={"explainer": "imported_by_a_check:gxi"})
    assert check(result) == []


def test_a_verified_result_of_an_earlier_version_is_accepted_until_it_changes(result):
    place = with_text(result, version=OTHER).rename(result.with_name(f"tiny@{OTHER}"))
    assert check(place)
    record_verification(
        place.parent.parent, Verification(f"mine-gxi/{place.name}", result_checksum(place), "0.1", "", 0.0)
    )
    assert check(place) == []
    with_text(place, label="Other")
    assert check(place)


def test_a_formula_is_text_in_the_tables_of_the_site(result):
    with_text(result, label="=cmd|' /C calc'!A0", authors=["@x"])
    assert check(result) == []
    built = xb.leaderboard.write_site(result.parent.parent, result.parents[2] / "site")
    for file in (built.page.parent / "downloads").rglob("*.csv"):
        cells = pd.read_csv(file, dtype=str, keep_default_na=False).to_numpy().ravel()
        assert [cell for cell in cells if cell[:1] in ("=", "@", "\t") or (cell[:1] == "+" and len(cell) > 1)] == []


@pytest.mark.parametrize(("label", "is_right"), [("S\u0430liency", False), ("Карта важности", True), ("α-LRP", True)])
def test_labels_do_not_imitate_others(result, label, is_right):
    with_text(result, label=label)
    assert (check(result) == []) == is_right


def test_methods_whose_labels_look_alike_are_shown_with_their_names(repository):
    mine, theirs = sorted(folder for folder in repository.glob("*/tiny@*") if folder.parent.name != "suites")
    with_text(theirs, label="Карта")
    with_text(mine, label="Kарта")  # its first letter is Latin
    labels = [one.manifest.label for one in read_results(repository)[0]]
    assert labels == ["Kарта (mine-gxi)", "Карта (saliency)"]
    with_text(mine, label="Map")
    assert [one.manifest.label for one in read_results(repository)[0]] == ["Map", "Карта"]


def test_a_table_of_too_many_rows_is_not_read(result, monkeypatch):
    with_scores(result, inflated)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was read"))
    assert "rows" in check(result)[0]
