"""Wrong parameters of parts are found before any job runs, and errors name their table and the parameter."""

import itertools
from dataclasses import dataclass
from typing import Literal, get_args

import pytest
from PIL import Image
from refusals import refused

from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.evaluation.protocol import Protocol
from xaibench.explainers import EXPLAINERS
from xaibench.metrics import METRICS
from xaibench.registry.table import UnknownNameError
from xaibench.runner import SuiteError, load_suite, run
from xaibench.runner.plan.plan import make_plan

SUITE = """name = "checked"
title = "Every part with its parameters"

[data]
parameters = { n_samples = 200 }

[training]
epochs = 1

[explaining]
samples = 2

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["mlp"]

[explainers]
ig = { n_steps = 3 }

[explainers.lime]
n_samples = 10
seed = 1

[metrics]
iou = { threshold = 0.5 }
"""


def planned(tmp_path, text):
    path = tmp_path / "my-suite.toml"
    path.write_text(text)
    return make_plan(load_suite(path)[0])


def test_the_suite_as_it_stands_can_be_planned(tmp_path):
    assert {job.stage for job in planned(tmp_path, SUITE).jobs} == {"data", "train", "explain", "score"}


STEPS, CELL = "n_steps = 3", 'models = ["mlp"]'


@pytest.mark.parametrize(
    ("old", "new", "table", "parameter"),
    [
        (STEPS, "n_stps = 3", "[explainers.ig]", "n_stps"),
        (STEPS, 'n_steps = "3"', "[explainers.ig]", "n_steps"),
        (STEPS, "budget = 0.5", "[explainers.ig]", "budget"),
        (STEPS, "budget = -1", "[explainers.ig]", "budget"),
        (STEPS, "budget = 1", "[explainers.ig]", "budget"),
        (STEPS, "n_steps = 0", "[explainers.ig]", "n_steps"),
        (STEPS, 'channels = "x"', "[explainers.ig]", "channels"),
        (STEPS, 'output = "logit"', "[explainers.ig]", "output"),
        (STEPS, 'device = "cpu"', "[explainers.ig]", "device"),
        (STEPS, "baseline = [0, 0]", "[explainers.ig]", "baseline"),
        ("seed = 1", "seed = -1", "[explainers.lime]", "seed"),
        ("seed = 1", "sed = 1", "[explainers.lime]", "sed"),
        ("threshold", "treshold", "[metrics.iou]", "treshold"),
        ("threshold = 0.5", 'threshold = "0.5"', "[metrics.iou]", "threshold"),
        ("threshold = 0.5", 'reduction = "mean"', "[metrics.iou]", "reduction"),
        ("n_samples = 200", "n_sample = 200", "[data] parameters", "n_sample"),
        ("n_samples = 200", "n_samples = 200, seed = 3", "[data] parameters", "seed"),
        ("n_samples = 200", "n_samples = 200, alpha = 2", "[data] parameters", "alpha"),
        (CELL, f'{CELL}\ndata = {{ alpha = "2" }}', "[[cells]] 1 data", "alpha"),
        (CELL, f'{CELL}\nbuild = {{ fold = "pet" }}', "[[cells]] 1 build", "fold"),
        (CELL, f"{CELL}\nbuild.num_classes = 3", "[[cells]] 1 build", "num_classes"),
        (CELL, f"{CELL}\ntraining = {{ epochs = 0 }}", "[[cells]] 1 training", "epochs"),
        (CELL, f"{CELL}\nmetrics = ['hit']", "[[cells]] 1", "metrics"),
        (CELL, f"{CELL}\nexplainers = ['hit']", "[[cells]] 1", "explainers"),
        ("epochs = 1", "lr = 0", "[training]", "lr"),
        ("epochs = 1", 'loss = "logit"', "[training]", "loss"),
        ("epochs = 1", "epoch = 1", "[training]", "epoch"),
        ("iou = { threshold = 0.5 }", "mass_outside = {}", "[metrics.mass_outside]", ""),
        ("epochs = 1", "seeds = 10_000_000", "[training]", "seeds"),
        ("[explaining]\nsamples = 2", "[explaining]\nsamples = 10_000_000\nsamples_per_job = 1", "", ""),
    ],
)
def test_an_error_names_the_table_and_the_parameter(tmp_path, old, new, table, parameter):
    assert SUITE.count(old) == 1
    named = ", ".join(filter(None, ("my-suite.toml", f"{table} {parameter}".strip())))
    error = refused(SuiteError, named, planned, tmp_path, SUITE.replace(old, new))
    assert (error.table, error.parameter) == (table, parameter)


def test_an_unknown_part_is_named_with_its_table(tmp_path):
    refused(UnknownNameError, "[explainers.ik]: Unknown", planned, tmp_path, SUITE.replace("ig =", "ik ="))
    refused(UnknownNameError, "[[cells]] 1 models: Unknown", planned, tmp_path, SUITE.replace('"mlp"', '"mpl"'))


def test_nothing_has_run_when_a_parameter_is_wrong(tmp_path):
    path = tmp_path / "my-suite.toml"
    path.write_text(SUITE.replace("threshold", "treshold"))
    refused(SuiteError, "treshold", lambda: run(path, tmp_path / "run", engine="serial"))
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Own:
    levels: tuple[float, ...] = ()
    how: Literal["a", "b"] | None = None
    anything: object = None

    def __call__(self, model, images, targets):
        return images[:, 0]


def test_a_users_own_part_is_built_too(tmp_path):
    own = '[explainers]\n"' + __name__ + ':Own" = { %s }'
    planned(tmp_path, SUITE.replace("[explainers]", own % "levels = [1, 2.5], anything = { x = 1 }"))
    for wrong, parameter in (("levels = 3", "levels"), ('how = "c"', "how")):
        error = refused(SuiteError, "", planned, tmp_path, SUITE.replace("[explainers]", own % wrong))
        assert (error.table, error.parameter) == (f"[explainers.{__name__}:Own]", parameter)


def test_registered_parts_are_right_without_parameters():
    for explainer in EXPLAINERS:
        AppliedExplainer(explainer, {})
    for metric, protocol in itertools.product(METRICS, get_args(Protocol)):
        AppliedMetric(metric, protocol=protocol)


def test_a_metric_of_what_is_used_is_planned_for_certified_networks(tmp_path):
    text = SUITE.replace("iou = { threshold = 0.5 }", "mass_outside = {}")
    certified = text.replace("xai-tris/lin-white-8x8", "certified:or").replace('"mlp"', '"certified:or-mlp"')
    assert planned(tmp_path, certified.replace("epochs = 1", 'method = "none"')).jobs


def test_a_folder_of_one_class_for_a_classifier_is_an_error_with_the_class(tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "cats" / "a.png")
    text = SUITE.replace("xai-tris/lin-white-8x8", f"photographs:{tmp_path / 'photos'}").replace('"mlp"', '"resnet18"')
    text = text.replace("parameters = { n_samples = 200 }", "")
    refused(SuiteError, "photos: cats. Expected <class>/", planned, tmp_path, text)
