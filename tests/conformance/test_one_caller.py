"""One map, one score: whoever asks for it (Python, the command line, a suite), and however its parts are named."""

import ast
import csv
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from part_cases import ExplainerCase, case
from typer.testing import CliRunner

import xaibench as xb
from xaibench.data import load
from xaibench.explainers import EXPLAINERS, build
from xaibench.metrics import METRICS
from xaibench.models import build as build_model
from xaibench.runner import run
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.stages.train import network_seed
from xaibench.runner.suites.parsing import parse_suite

CELL = "xai-tris/lin-white-8x8"
NETWORK = "generators.networks:Small"
#: Those that none of the small networks suits.
NETWORKS = {name: its.network for name in EXPLAINERS if ":" in (its := case(EXPLAINERS, name, ExplainerCase())).network}
INFOS = {name: METRICS.resolve(name).info for name in METRICS}


#: As if its masks were of what the network uses, so that every metric may be asked.
@replace(load(CELL, n_samples=20).info, truth="use")
def tiny(seed=0):
    """Tetrominoes, four of them to test on."""
    return load(CELL, n_samples=40, seed=seed, split=(0.8, 0.1, 0.1))


TINY = f"{__name__}:tiny"


def network(kind=NETWORK):
    """As a run makes it."""
    return build_model(kind, (1, 8, 8), 2, seed=network_seed(DataJob(TINY, 0, (), ""), 0)).eval()


def spellings(registry, name):
    """Every way to write a listed name, beginning with the name itself."""
    aliases = [alias for alias, known in registry._aliases.items() if known == name]
    target = registry.target(name)
    shorter = f"xaibench.{registry.kind}s:{target.partition(':')[2]}"
    return list(dict.fromkeys([name, *aliases, name.upper(), name.replace("_", "-").title(), target, shorter]))


def suite_scores(folder, explainers, metrics, kind=NETWORK, protocol="area", sign="magnitude"):
    """``{(explainer, metric): scores}`` of a suite run in this process, each part under the number of its spelling."""
    lines = [
        'name = "one"\ntitle = "One"',
        "[training]\nseeds = [0]\nmethod = 'none'",
        f"[explaining]\nsamples = 4\nscored = 'all'\nprotocol = '{protocol}'\nsign = '{sign}'",
        f"[[cells]]\ndatasets = ['{TINY}']\nmodels = ['{kind}']",
    ]
    for table, parts in (("explainers", explainers), ("metrics", metrics)):
        lines += [f"[{table}]", *(f"part-{number} = {{ use = '{use}' }}" for number, use in enumerate(parts))]
    path = folder / "one.toml"
    path.write_text("\n".join(lines))
    result = run(path, folder / "run", engine="serial", device="cpu")
    assert result.failures == {}
    found = pd.read_parquet(result.folder / "scores.parquet")
    named = {
        (explainers[int(e.removeprefix("part-"))], metrics[int(m.removeprefix("part-"))]): rows.sort_values("sample")
        for (e, m), rows in found.groupby(["explainer", "metric"], observed=True)
    }
    assert len(named) == len(explainers) * len(metrics)
    return {key: list(zip(rows["value"], rows["reason"], strict=True)) for key, rows in named.items()}


def python_scores(methods, metrics, kind=NETWORK, protocol="area", sign="magnitude"):
    """``{(method, metric): scores}`` of :func:`xaibench.evaluate`."""
    how = {"controls": False, "device": "cpu", "protocol": protocol, "sign": sign, "scored": "all"}
    result = xb.evaluate(methods, tiny(), network(kind), metrics, **how)
    return {
        key: list(zip(rows["value"], rows["reason"], strict=True))
        for key, rows in result.scores.groupby(["method", "metric"])
    }


def same(one, other):
    """Whether scores and reasons are equal to the bit; on a GPU, which adds up batches otherwise, nearly so."""
    values = [np.array([value for value, _ in scores], np.float64) for scores in (one, other)]
    if torch.cuda.is_available():
        equal = np.allclose(*values, rtol=1e-9, atol=1e-12, equal_nan=True)
    else:
        one_nan = [np.where(np.isnan(each), np.nan, each).tobytes() for each in values]  # NaN has two signs
        equal = one_nan[0] == one_nan[1]
    return equal and [why for _, why in one] == [why for _, why in other]


METRIC_SPELLINGS = {name: spellings(METRICS, name) for name in METRICS}
EXPLAINER_SPELLINGS = {name: spellings(EXPLAINERS, name) for name in EXPLAINERS}
#: One that reads the network, and one that is fitted first.
ASKED = ["saliency", "pattern_net"]


@pytest.fixture(scope="module", autouse=True)
def fewer_steps():
    """The defaults of those that take longest, made smaller for every caller alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(xb.smooth_mprt.__kwdefaults__, "n_samples", 3)
        for name, parameter, value in (
            ("guided_ig", "n_steps", 10),
            ("ig2", "n_steps", 10),
            ("xrai", "segmentation_size", 32),
        ):
            patch.setitem(EXPLAINERS.resolve(name).__init__.__kwdefaults__, parameter, value)
        yield


@pytest.fixture(scope="module")
def of_metrics():
    return python_scores(ASKED, list(METRICS))


def test_the_scores_that_are_compared_say_something(of_metrics):
    for name in METRICS:
        values = [value for explainer in ASKED for value, _ in of_metrics[explainer, name]]
        assert np.isfinite(values).any()
    assert len({str(scores) for scores in of_metrics.values()}) > 1.5 * len(METRICS)


def by_turns(all_spellings):
    """``{spelling: name}`` with one spelling per part: the first of the first part, the second of the second, ..."""
    return {written[turn % len(written)]: name for turn, (name, written) in enumerate(all_spellings.items())}


def test_every_spelling_is_the_same_part():
    """So that the tests below need to score each part under one of them only."""
    for registry, all_spellings in ((EXPLAINERS, EXPLAINER_SPELLINGS), (METRICS, METRIC_SPELLINGS)):
        known = {written: name for name, all_ in all_spellings.items() for written in all_}
        assert len(known) >= 4 * len(registry)
        assert [w for w, name in known.items() if registry.resolve(w) is not registry.resolve(name)] == []
        kind, one = f"{registry.kind}s", {"explainers": {"saliency": {}}, "metrics": {"iou": {}}}
        given = {f"part-{number}": {"use": written} for number, written in enumerate(known)}
        suite = parse_suite(
            {"name": "one", "title": "One", "cells": [{"datasets": [CELL], "models": ["llr"]}]} | one | {kind: given}
        )
        assert [part.use for part in getattr(suite, kind)] == list(known.values())


def test_a_metric_scores_alike_in_python_however_it_is_given(of_metrics):
    for given in (list(by_turns(METRIC_SPELLINGS)), [METRICS.resolve(name) for name in METRICS]):
        found = python_scores(ASKED, given)
        assert len(found) == len(of_metrics)
        assert [key for key, scores in found.items() if not same(scores, of_metrics[key])] == []


def test_a_metric_scores_alike_in_a_suite_however_it_is_written(of_metrics, tmp_path):
    known = by_turns(METRIC_SPELLINGS)
    found = suite_scores(tmp_path, ASKED, list(known))
    assert [key for key, scores in found.items() if not same(scores, of_metrics[key[0], known[key[1]]])] == []


@pytest.mark.parametrize("sign", ["magnitude", "signed"])
@pytest.mark.parametrize("protocol", ["area", "scaled", "published"])
def test_a_protocol_and_a_sign_are_the_same_in_python_and_in_a_suite(protocol, sign, tmp_path):
    metrics = [name for name, info in INFOS.items() if info.thresholded] + ["hit", "emd_perf", "emd_skill", "roc_auc"]
    python = python_scores(ASKED, metrics, protocol=protocol, sign=sign)
    suite = suite_scores(tmp_path, ASKED, metrics, protocol=protocol, sign=sign)
    assert len(python) == 2 * len(metrics) >= 8
    assert [key for key in python if not same(python[key], suite[key])] == []


def test_the_command_line_scores_a_file_of_maps_as_python_scores_its_maps(of_metrics, tmp_path):
    from xaibench.cli import app

    np.save(tmp_path / "saliency.npy", xb.explain("saliency", network(), *tiny().test[:][::2], device="cpu").numpy())
    written = [given for given, name in by_turns(METRIC_SPELLINGS).items() if INFOS[name].kind != "explainer"]
    arguments = ["--dataset", TINY, "--model", f"{__name__}:network", "--scored", "all", "--metrics", ",".join(written)]
    out = tmp_path / "scores.csv"
    result = CliRunner().invoke(app, ["score", str(tmp_path / "saliency.npy"), *arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    with out.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "saliency"]
    assert len({row["metric"] for row in rows}) == len(written)
    for metric in {row["metric"] for row in rows}:
        mine = [(float(row["value"] or "nan"), row["reason"]) for row in rows if row["metric"] == metric]
        assert same(mine, of_metrics["saliency", metric])


@pytest.mark.parametrize("kind", [NETWORK, NETWORKS["attention_rollout"]])
def test_an_explainer_is_scored_alike_however_it_is_given(kind, tmp_path):
    names = [name for name in EXPLAINERS if NETWORKS.get(name, NETWORK) == kind]
    metrics = ["iou", "average_precision"]
    known = by_turns({name: EXPLAINER_SPELLINGS[name] for name in names})
    expected = python_scores(names, metrics, kind)
    found = suite_scores(tmp_path, list(known), metrics, kind)
    assert [key for key, scores in found.items() if not same(scores, expected[known[key[0]], key[1]])] == []
    ways = itertools.cycle([lambda name: EXPLAINER_SPELLINGS[name][-1], EXPLAINERS.resolve, build])
    # An object may be fitted already, so each that is fitted is given as one.
    given = {name: build(name) if hasattr(EXPLAINERS.resolve(name), "fit") else next(ways)(name) for name in names}
    found = python_scores(given, metrics, kind)
    assert [key for key, scores in found.items() if not same(scores, expected[key])] == []


ROOT = Path(xb.__file__).parent
CALLER = "evaluation/apply.py"
#: Loads the parts before workers are forked, and does no more.
LOADER = "runner/warm_imports.py"


def other_callers(root=ROOT):
    """Where explainers or metrics could be called but in the one caller, a line each: what the rest may have of them is
    the registries, and what it resolves there it only looks at."""
    found = []
    for path in sorted(path for room in ("evaluation", "runner", "cli") for path in (root / room).rglob("*.py")):
        place = path.relative_to(root).as_posix()
        if place == CALLER:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [f"{place}:{line} takes {what}" for line, what in _taken(tree) if place != LOADER]
        found += [f"{place}:{line} calls a part" for line in _called(tree)]
    return found


def _taken(tree):
    parts = {"explain", "explainers", "metrics", *METRICS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((node.lineno, name) for name in names if name.startswith(("xaibench.expl", "xaibench.metr")))
        elif isinstance(node, ast.ImportFrom) and node.module:
            root, _, rest = node.module.partition(".")
            if root != "xaibench":
                continue
            for name in (alias.name for alias in node.names):
                within = rest.partition(".")[0] in ("explainers", "metrics") and name not in ("EXPLAINERS", "METRICS")
                if within or (node.module == "xaibench" and name in parts):
                    yield node.lineno, f"{node.module}.{name}"


def _called(tree):
    """Calls of what a registry resolved, whether at once or under a name."""
    resolved = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _resolves(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (
            _resolves(node.func) or (isinstance(node.func, ast.Name) and node.func.id in resolved)
        ):
            yield node.lineno


def _resolves(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "resolve"


def test_one_module_calls_explainers_and_metrics():
    assert other_callers() == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from xaibench.explainers import explain", "takes xaibench.explainers.explain"),
        ("from xaibench.metrics.localization.iou import iou", "takes xaibench.metrics.localization.iou.iou"),
        ("def f():\n    from xaibench import explain", "takes xaibench.explain"),
        ("import xaibench.metrics", "takes xaibench.metrics"),
        ("from xaibench.metrics import METRICS\nMETRICS.resolve('iou')(maps, masks)", "calls a part"),
        ("metric = registry('metric').resolve(name)\nmetric(maps, masks)", "calls a part"),
    ],
)
def test_that_test_can_fail(tmp_path, code, found):
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "one.py").write_text(code)
    (line,) = other_callers(tmp_path)
    assert line == f"runner/one.py:{len(code.splitlines())} {found}"
