"""Suites: reading, quick forms, and every way a TOML file can be wrong."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.registry.table import UnknownNameError
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import without_missing, write_suite
from xaibench.runner.suites.parsing import SUITES, load_suite, parse_suite
from xaibench.runner.suites.schema import SuiteError

MINIMAL = {
    "name": "s",
    "title": "S",
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr"]}],
    "explainers": {"saliency": {}},
    "metrics": {"emd_perf": {}},
}


CELL = {"datasets": ["a"], "models": ["mlp"]}


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("quick", [False, True])
def test_built_in_suites_are_whole(name, quick):
    suite, text = load_suite(name, quick=quick)
    assert suite.name == name + ("-quick" if quick else "")
    tables = tomllib.loads(text)
    tables.pop("quick", None)
    assert parse_suite(tables) == suite, "the text that is kept in the run folder is the suite that was run"


def test_paper_suite_has_the_papers_numbers():
    suite, _ = load_suite("xai-tris-8x8-paper")
    assert suite.data.seeds == tuple(range(25))
    assert (suite.explaining.samples, suite.explaining.trainings) == ("all", "all")
    assert (suite.training.epochs, suite.training.batch_size, suite.training.lr) == (500, 512, 0.004)
    rigid = {cell.models: dict(cell.training) for cell in suite.cells if "rigid" in cell.datasets[0]}
    assert rigid == {("mlp",): {"lr": 0.0004}, ("cnn",): {}}
    assert len({dataset for cell in suite.cells for dataset in cell.datasets}) == 8


def test_64x64_paper_suite_has_the_papers_numbers():
    suite, _ = load_suite("xai-tris-64x64-paper")
    assert dict(suite.data.parameters) == {"n_samples": 40_000}
    assert (suite.explaining.samples, suite.explaining.trainings, len(suite.training.seeds)) == (2000, "all", 5)
    assert (suite.training.epochs, suite.training.batch_size, suite.training.lr) == (500, 512, 0.0005)
    assert (len(suite.explainers), len(suite.metrics)) == (20, 4)
    cells = {(dataset, model) for cell in suite.cells for dataset in cell.datasets for model in cell.models}
    assert len(cells) == 12 * 2 + 3, "MLP and CNN everywhere, LLR for LIN"
    assert len({dataset for dataset, _ in cells}) == 12
    imagenet = [cell for cell in suite.cells if "imagenet" in cell.datasets[0]]
    assert {dict(cell.data)["images_dir"] for cell in imagenet} == {"$XAIBENCH_IMAGES"}


def test_64x64_suite_has_all_cells_of_the_paper():
    suite, _ = load_suite("xai-tris-64x64")
    assert (suite.explaining.samples, suite.explaining.trainings) == (50, "all")
    cells = [(dataset, model) for cell in suite.cells for dataset in cell.datasets for model in cell.models]
    paper = load_suite("xai-tris-64x64-paper")[0]
    assert sorted(cells) == sorted((d, m) for cell in paper.cells for d in cell.datasets for m in cell.models)
    trainings = {cell.datasets[0].split("-")[1]: len(suite.training_of(cell).seeds) for cell in suite.cells[:9]}
    assert trainings == {"tris/lin": 3, "tris/xor": 1, "tris/mult": 1, "tris/rigid": 1}
    for cell in suite.cells:
        on_photographs = {"imagenet" in dataset for dataset in cell.datasets}
        assert on_photographs == {cell.data.get("images_dir") == "$XAIBENCH_IMAGES"}
        learns_hard = (
            cell.datasets[0].split("-")[1] in ("tris/mult", "tris/rigid") or "lin-imagenet" in cell.datasets[0]
        )
        assert cell.data.get("n_samples") == (40_000 if learns_hard else None)
        assert (suite.training_of(cell).lr, suite.training_of(cell).batch_size) == (0.0005, 512)


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    suite = parse_suite(MINIMAL | {"data": {"seeds": [0], "parameters": {"root": "$MY_SETS/here"}}})
    monkeypatch.delenv("MY_SETS", raising=False)
    error = refused(SuiteError, "MY_SETS", without_missing, suite)
    assert (error.table, error.parameter) == ("[data]", "parameters.root")
    monkeypatch.setenv("MY_SETS", "/sets")
    assert without_missing(suite) == (suite, {})


def test_quick_changes_only_what_its_table_names():
    full, _ = load_suite("xai-tris-8x8")
    quick, _ = load_suite("xai-tris-8x8", quick=True)
    assert quick.explaining.samples < full.explaining.samples
    assert quick.training == full.training
    assert quick.explainers == full.explainers


def test_a_part_can_stand_twice_under_names_of_its_own():
    tables = MINIMAL | {"explainers": {"lime": {}, "lime-500": {"use": "lime", "n_samples": 500}}}
    suite = parse_suite(tables)
    assert [(part.name, part.use) for part in suite.explainers] == [("lime", "lime"), ("lime-500", "lime")]
    assert dict(suite.explainers[1].parameters) == {"n_samples": 500}


moderate = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
KEYS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.one_of(
    KEYS, st.booleans(), st.integers(), st.floats(allow_nan=False), st.datetimes(), st.dates(), st.times()
)
VALUES = st.recursive(SCALARS, lambda of: st.lists(of, max_size=3) | st.dictionaries(KEYS, of, max_size=3))


@moderate
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_parameters_are_written_as_they_are_read(parameters):
    tables = MINIMAL | {"explainers": {"mine": {"use": "a:b", "options": parameters}}}
    for suite in (parse_suite(tables), parse_suite(tomllib.loads(write_suite(parse_suite(tables))))):
        assert dict(suite.explainers[0].parameters) == {"options": parameters}


@pytest.mark.parametrize(
    ("change", "table", "parameter"),
    [
        ({"explainers": {}}, "[explainers]", ""),
        ({"metrics": {}}, "[metrics]", ""),
        ({"cells": []}, "[[cells]]", ""),
        ({"cells": CELL}, "[[cells]]", "cells"),
        ({"cells": [{"datasets": ["a"]}]}, "[[cells]] 1", ""),
        ({"cells": [CELL | {"datasets": []}]}, "[[cells]] 1", "datasets"),
        ({"cells": [CELL, CELL | {"models": []}]}, "[[cells]] 2", "models"),
        ({"cells": [CELL | {"datasets": [3]}]}, "[[cells]] 1", "datasets"),
        ({"cells": [CELL, CELL | {"training": {"epochs": "x"}}]}, "[[cells]] 2 training", "epochs"),
        ({"optional": 3}, "[optional]", ""),
        ({"optional": {"cells": 3}}, "[optional]", "cells"),
        ({"optional": {"cells": [CELL | {"data": 3}]}}, "[[optional.cells]] 1", "data"),
        ({"explainers": {"lime": 3}}, "[explainers.lime]", ""),
        ({"explainers": ["lime"]}, "[explainers]", "explainers"),
        ({"explainers": {"lime": {"use": 3}}}, "[explainers.lime]", ""),
        ({"training": {"epoch": 5}}, "[training]", "epoch"),
        ({"training": {"epochs": 0}}, "[training]", "epochs"),
        ({"training": {"epochs": "many"}}, "[training]", "epochs"),
        ({"training": {"epochs": True}}, "[training]", "epochs"),
        ({"training": {"seeds": [0, 0]}}, "[training]", "seeds"),
        ({"training": {"seeds": 100_001}}, "[training]", "seeds"),
        ({"data": 5}, "[data]", ""),
        ({"data": {"seeds": [0.5]}}, "[data]", "seeds"),
        ({"data": {"seeds": [-1]}}, "[data]", "seeds"),
        ({"data": {"parameters": "x"}}, "[data]", "parameters"),
        ({"explaining": {"samples": "some"}}, "[explaining]", "samples"),
        ({"explaining": {"samples": "all", "samples_per_job": 3}}, "[explaining]", "samples_per_job"),
        ({"explaining": {"min_accuracy": 100.5}}, "[explaining]", "min_accuracy"),
        ({"explaining": {"min_accuracy": -1.0}}, "[explaining]", "min_accuracy"),
        ({"explaining": {"trainings": "worst"}}, "[explaining]", "trainings"),
        ({"explaining": {"output": "softmax"}}, "[explaining]", "output"),
        ({"explaining": {"scored": "some"}}, "[explaining]", "scored"),
        ({"explaining": {"precision": "fp16"}}, "[explaining]", "precision"),
        ({"training": {"precision": "float64"}}, "[training]", "precision"),
        ({"explaining": {"seed": -1}}, "[explaining]", "seed"),
        ({"title": 5}, "[title]", "title"),
    ],
)
def test_a_wrong_entry_is_named(change, table, parameter):
    error = refused(SuiteError, "s.toml, ", parse_suite, MINIMAL | change, "s.toml")
    assert (error.table, error.parameter) == (table, parameter)


@pytest.mark.parametrize(
    ("content", "quick"),
    [
        *[(None, False), (b"name = ", False), (b"quick = 3", True), (b"\xff", False), (b"", True)],
        *[(b"x = " + b"9" * 5000, False), (b"x = " + b"[" * 100_000, False), (b"x = " + b"{a=" * 5000, False)],
    ],
    ids=["missing", "cut", "quick", "not UTF-8", "empty", "many digits", "many brackets", "many braces"],
)
def test_files_that_cannot_be_read(tmp_path, content, quick):
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_bytes(content)
    refused(SuiteError, "mine.toml", lambda: load_suite(file, quick=quick))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"cells": [CELL | {"datasets": ["xai-tris/nothing"]}]}, "[[cells]] 1 datasets: Unknown data set"),
        ({"cells": [CELL | {"datasets": ["whitened:sphering:nothing"]}]}, "[[cells]] 1 datasets: Unknown data set"),
        ({"cells": [MINIMAL["cells"][0] | {"models": ["disconnected:nothing:x"]}]}, "[[cells]] 1"),
        (
            {"cells": [CELL | {"datasets": ["pet"]}], "data": {"parameters": {"root": {"a": 1}}}},
            "[data] parameters root: root: got dict, expected the path of a folder.",
        ),
        ({"explainers": {"saliency": {"output": [[0] * 9] * 9999}}}, "[explainers.saliency] output: "),
        ({"cells": [CELL | {"data": [0] * 9999}]}, "[[cells]] 1"),
    ],
)
def test_an_error_of_the_plan_names_the_file_and_the_table_in_few_words(change, place):
    with pytest.raises((SuiteError, UnknownNameError)) as error:
        make_plan(without_missing(parse_suite(MINIMAL | change, "s.toml"))[0])
    assert str(error.value).startswith(f"s.toml, {place}")
    assert len(str(error.value)) < 9000


def test_a_part_of_the_user_that_cannot_be_built_is_named(tmp_path, monkeypatch):
    (tmp_path / "suite_with_broken_part.py").write_text("class Broken:\n    def __init__(self, n=1): self.n = 1 // 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    tables = MINIMAL | {"explainers": {"mine": {"use": "suite_with_broken_part:Broken", "n": 2}}}
    error = refused(SuiteError, "s.toml, [explainers.mine]: Zero", make_plan, parse_suite(tables, "s.toml"))
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_part_is_no_suite_and_an_unknown_one_is_told_the_nearest():
    refused(UnknownNameError, "did you mean 'xai-tris-8x8'", load_suite, "xai-tris-8x")
    refused(SuiteError, "'mine:suite' is not a suite", load_suite, "mine:suite")
