import math
import pickle
import sys

import pytest
from refusals import refused

import xaibench
from xaibench.data import DATASETS
from xaibench.explainers import EXPLAINERS
from xaibench.metrics import METRICS
from xaibench.models import MODELS
from xaibench.registry.table import Registry, UnknownNameError, import_target

REGISTRIES = {"data": DATASETS, "models": MODELS, "explainers": EXPLAINERS, "metrics": METRICS}


@pytest.fixture
def registry():
    return Registry(
        "function",
        {"square_root": "math:sqrt", "floor": "math:floor", "lost": "math:lost", "gone": "xaibench.gone:f"},
        {"entier": "floor"},
    )


@pytest.fixture
def own(tmp_path, monkeypatch):
    """``own(code)``: a module of the user's, named ``own_parts``."""

    def write(code):
        (tmp_path / "own_parts.py").write_text(code)

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    sys.modules.pop("own_parts", None)


def test_a_registry_lists_its_names_and_no_aliases(registry):
    assert list(registry) == ["square_root", "floor", "lost", "gone"]
    assert len(registry) == 4
    assert "floor" in registry
    assert "entier" not in registry


@pytest.mark.parametrize("spelling", ["square_root", "square-root", "Square_Root", "SQUARE-ROOT", "entier", "Entier"])
def test_other_spellings_and_aliases_are_understood(registry, spelling):
    name, value = ("square_root", 3.0) if "root" in spelling.lower() else ("floor", 9)
    assert registry.canonical(spelling) == name
    assert registry.resolve(spelling)(9.0) == value


def test_unknown_names_are_left_as_they_are_by_canonical(registry):
    assert registry.canonical("nothing") == "nothing"
    assert registry.canonical("own_parts:thing") == "own_parts:thing"
    assert registry.canonical("math:sqr") == "math:sqr"


@pytest.mark.parametrize("target", ["xaibench.metrics.localization.iou:iou", "xaibench.metrics:iou", "xaibench:iou"])
def test_a_listed_part_is_known_from_wherever_it_is_imported(target):
    assert METRICS.canonical(target) == METRICS.name_of(METRICS.resolve(target)) == "iou"
    assert METRICS.resolve(target) is METRICS.resolve("iou")


@pytest.mark.parametrize("target", ["math:sqrt", "xaibench.metrics.localization.iou:top_pixels"])
def test_what_is_not_listed_keeps_its_target(target):
    assert METRICS.canonical(target) == target
    assert METRICS.name_of(METRICS.resolve(target)) is None


def test_a_target_of_several_names_is_none_of_them():
    assert Registry("function", {"a": "textwrap:dedent", "b": "textwrap:dedent"}).canonical("textwrap:dedent") == (
        "textwrap:dedent"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flor", "Unknown function 'flor'; did you mean 'floor'? Known: floor, gone, lost, square_root."),
        ("entire", "did you mean 'entier'?"),
        ("squareroot", "did you mean 'square_root'?"),
        ("zzz", "Unknown function 'zzz'. Known: floor, "),
        ("zzz", "A part of your own is given as 'package.module:name'."),
        ("", "Unknown function ''"),
        ("no_such_package:f", "Function 'no_such_package:f': there is no module 'no_such_package' to import"),
        ("xaibench.nothing:f", "there is no module 'xaibench.nothing' to import"),
        ("math.deeper:f", "there is no module 'math.deeper' to import"),
        ("math:sqr", "Function 'math:sqr': 'math' has no attribute 'sqr'; did you mean 'sqrt'?"),
        ("math:sqrt.zzz", "'math.sqrt' has no attribute 'zzz'"),
        ("lost", "'math' has no attribute 'lost'"),
        ("gone", "there is no module 'xaibench.gone' to import"),
        *(
            (target, "expected 'package.module:name'")
            for target in (":x", "..a:b", "math:", "ma th:sqrt", "math:sqrt.")
        ),
    ],
)
def test_an_unknown_name_is_told_the_nearest_or_what_is_missing(registry, name, message):
    refused(UnknownNameError, message, registry.resolve, name)


def test_the_error_can_be_caught_as_either_and_travels(registry):
    for kind in (KeyError, ValueError):
        refused(kind, "did you mean 'floor'", registry.resolve, "flor")
    error = UnknownNameError("unknown function 'flor'")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "unknown function 'flor'"


def test_a_part_of_the_users_own(registry, own):
    own("class Box:\n    def thing(): return 'mine'\n")
    assert registry.resolve("own_parts:Box.thing")() == "mine"
    assert import_target("own_parts:Box").thing() == "mine"


def test_a_dependency_that_is_missing_speaks_for_itself(registry, own):
    own("import a_package_that_is_not_installed\n")
    refused(ModuleNotFoundError, "'a_package_that_is_not_installed'", registry.resolve, "own_parts:thing")


def test_an_error_inside_the_users_module_is_not_covered_up(registry, own):
    own("1 / 0\n")
    refused(ZeroDivisionError, "division by zero", registry.resolve, "own_parts:thing")


def test_nothing_is_imported_before_it_is_asked_for(own):
    own("raise AssertionError('imported too early')\n")
    registry = Registry("function", {"own": "own_parts:thing"})
    assert "own" in registry
    assert registry.canonical("Own") == "own"
    assert "own_parts" not in sys.modules
    refused(AssertionError, "imported too early", registry.resolve, "own")


@pytest.mark.parametrize("part", REGISTRIES)
def test_every_registered_name_resolves_within_its_part(part):
    registry = REGISTRIES[part]
    for name in registry:
        assert registry.resolve(name).info.revision >= 1, name
        assert registry.target(name).startswith((f"xaibench.{part}.", "xaibench.benchmarks.")), name
        assert name == name.lower()


@pytest.mark.parametrize("part", REGISTRIES)
def test_every_alias_is_of_a_registered_name_and_hides_none(part):
    registry = REGISTRIES[part]
    for alias, name in registry._aliases.items():
        assert name in registry or registry.resolve(name) is registry.resolve(alias)
        assert registry.canonical(alias) == name


def test_a_metric_is_not_hidden_by_the_module_it_lives_in():
    for name in METRICS:
        metric = METRICS.resolve(name)  # imports the module, which would take a name that it shares
        assert getattr(xaibench.metrics, name) is metric
        assert getattr(xaibench, name) is metric


def test_a_name_is_a_text(registry):
    refused(TypeError, "function: got int, expected a name or 'package.module:name'", registry.resolve, 3)


def test_a_function_is_to_be_given_by_its_name_in_a_file():
    def squared():
        pass

    refused(TypeError, "Put squared into a file", EXPLAINERS.resolve, squared)
    refused(TypeError, "expected a name or 'package.module:name'.", EXPLAINERS.resolve, lambda: None)


def test_a_scheme_makes_the_part_from_what_follows_the_colon():
    registry = Registry("folder", {"here": "math:pi"}, schemes={"path": "pathlib:PurePosixPath"})
    assert registry.resolve("path:/a/b:c").parts == ("/", "a", "b:c")
    assert registry.target("path:/a") == "pathlib:PurePosixPath"
    assert list(registry) == ["here"]
    assert registry.resolve("math:e") == math.e
    refused(UnknownNameError, "Unknown folder 'path'", registry.resolve, "path")


def test_a_listed_part_without_its_record_names_the_decorator():
    described = Registry("metric", {"floor": "math:floor"}, record="MetricInfo")
    refused(TypeError, "'floor' has no info; decorate math:floor with @MetricInfo", described.resolve, "floor")
    assert described.resolve("math:ceil")(0.5) == 1  # of the user
