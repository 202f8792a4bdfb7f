"""Suites: reading, quick forms, and every way a TOML file can be wrong."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xaibench.component.registry import UnknownNameError
from xaibench.runner.suites.files import SUITES, load_suite
from xaibench.runner.suites.parsing import parse_suite
from xaibench.runner.suites.schema import SuiteError, check_variables
from xaibench.runner.suites.toml_writing import to_toml

MINIMAL = {
    "name": "s",
    "title": "S",
    "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr"]}],
    "explainers": {"saliency": {}},
    "metrics": {"emd_perf": {}},
}


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
    with pytest.raises(SuiteError, match=r"root is '\$MY_SETS/here', but the environment has no MY_SETS"):
        check_variables(suite)
    monkeypatch.setenv("MY_SETS", "/sets")
    check_variables(suite)


def test_lines_are_those_of_the_form_that_is_read(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\ntitle = "Own"\n[[cells]]\ndatasets = ["xai-tris/lin-white-8x8"]\nmodels = ["llr"]\n'
        "[explainers]\nsaliency = {}\n[metrics]\niou = {}\n"
        '[quick]\ncells = [{ datasets = ["xai-tris/lin-corr-8x8"], models = ["mlp"] }]\n'
    )
    paths = [("cells", 0), ("cells", 0, "models"), ("metrics", "iou")]
    found = {quick: load_suite(file, quick=quick)[0].origin.lines for quick in (False, True)}
    assert [found[False][path] for path in paths] == [3, 5, 9]
    assert [found[True][path] for path in paths] == [11, 11, 9]


def test_quick_changes_only_what_its_table_names():
    full, _ = load_suite("xai-tris-8x8")
    quick, _ = load_suite("xai-tris-8x8", quick=True)
    assert quick.training.epochs < full.training.epochs
    assert quick.training.lr == full.training.lr
    assert quick.explainers == full.explainers


def test_a_part_can_stand_twice_under_names_of_its_own():
    tables = MINIMAL | {"explainers": {"lime": {}, "lime-500": {"use": "lime", "n_samples": 500}}}
    suite = parse_suite(tables)
    assert [(part.name, part.use) for part in suite.explainers] == [("lime", "lime"), ("lime-500", "lime")]
    assert dict(suite.explainers[1].parameters) == {"n_samples": 500}


def test_toml_is_written_as_it_is_read():
    tables = MINIMAL | {"data": {"seeds": [0, 1], "parameters": {"alpha": 0.5, "mask": True}}, "citation": 'a "b" \\ é'}
    assert tomllib.loads(to_toml(tables)) == tables


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
    read = tomllib.loads(to_toml(tables))
    assert read == tables
    assert dict(parse_suite(read).explainers[0].parameters) == {"options": parameters}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"explainers": {}}, "names no explainers"),
        ({"metrics": {}}, "names no metrics"),
        ({"cells": []}, "names no data sets and models"),
        ({"explainers": {"lime": 3}}, r"lime is 3; expected a table"),
        ({"training": {"epoch": 5}}, r"unknown entry 'epoch'; did you mean 'epochs'"),
        ({"training": {"epochs": 0}}, r"training.epochs is 0; expected 1 or more"),
        ({"training": {"epochs": "many"}}, r"epochs is 'many'; expected a whole number"),
        ({"training": {"epochs": True}}, r"epochs is True; expected a whole number"),
        ({"training": {"seeds": [0, 0]}}, r"training.seeds is \[0, 0\]; expected one or more different"),
        ({"data": {"seeds": [0.5]}}, r"seeds is \[0.5\]; expected a list of whole numbers"),
        ({"explaining": {"samples": "some"}}, r"samples is 'some'; expected a whole number or 'all'"),
        ({"explaining": {"min_accuracy": 100.5}}, r"min_accuracy is 100.5; expected a percentage from 0 to 100"),
        ({"explaining": {"min_accuracy": -1.0}}, r"min_accuracy is -1.0; expected a percentage from 0 to 100"),
        ({"explaining": {"trainings": "worst"}}, r"trainings is 'worst'; expected 'best' or 'all'"),
        ({"explaining": {"output": "softmax"}}, r"output is 'softmax'; expected 'default' or 'probability'"),
        ({"cells": [{"datasets": ["a"]}]}, r"cells.* number 1: models missing"),
        ({"explaining": {"scored": "some"}}, r"scored is 'some'; expected 'correct' or 'correct-by-all' or 'all'"),
        ({"title": 5}, r"title is 5; expected a string"),
        ({"data": 5}, r"\[data\]: expected a table"),
        ({"data": {"parameters": "x"}}, r"\[data\]: parameters is 'x'; expected a table of parameters"),
        ({"data": {"seeds": [-1]}}, r"data.seeds is \[-1\]; expected .* none below 0"),
        ({"explaining": {"seed": -1}}, r"explaining.seed is -1; expected 0 or more"),
        ({"explainers": ["lime"]}, r"explainers is \['lime'\]; expected a table"),
        ({"explainers": {"lime": {"use": 3}}}, r"lime.use is 3; expected the name of a part"),
        ({"cells": {"datasets": ["a"], "models": ["b"]}}, r"cells is .*; expected one or more tables \[\[cells\]\]"),
        ({"cells": [{"datasets": [3], "models": ["b"]}]}, r"datasets is \[3\]; expected a list of strings"),
        (
            {"cells": [{"datasets": ["a"], "models": ["b"], "training": {"epochs": "x"}}]},
            r"number 1, training: epochs is 'x'; expected a whole number",
        ),
    ],
)
def test_a_wrong_entry_is_named(change, message):
    with pytest.raises(SuiteError, match=message):
        parse_suite(MINIMAL | change, "s.toml")


def test_unknown_suite_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'xai-tris-8x8'"):
        load_suite("xai-tris-8x")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SuiteError, match=r"Cannot read the suite .*nowhere.toml"):
        load_suite(tmp_path / "nowhere.toml")
    (tmp_path / "broken.toml").write_text("name = ")
    with pytest.raises(SuiteError, match=r"broken.toml is not valid TOML"):
        load_suite(tmp_path / "broken.toml")
    with pytest.raises(SuiteError, match="'mine:suite' is not a suite; give the name of one"):
        load_suite("mine:suite")
    (tmp_path / "quick.toml").write_text("quick = 3")
    with pytest.raises(SuiteError, match=r"quick.toml: quick is 3; expected a table \[quick\]\."):
        load_suite(tmp_path / "quick.toml", quick=True)
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(SuiteError, match=r"Cannot read the suite .*latin.toml: it is not text in UTF-8"):
        load_suite(tmp_path / "latin.toml")
    (tmp_path / "full.toml").write_text(to_toml(MINIMAL))
    with pytest.raises(SuiteError, match=r"no \[quick\] table"):
        load_suite(tmp_path / "full.toml", quick=True)
