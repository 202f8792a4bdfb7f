"""Wrong parameters of parts are found before any job runs, and errors name their line of the file."""

from dataclasses import dataclass
from typing import Literal

import pytest
from PIL import Image

from xaibench.component.registry import UnknownNameError
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
ig = { n_steps = 3 }  # line 18

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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("n_steps = 3", "n_stps = 3", r"line 18, \[explainers\] ig: .*no parameter 'n_stps'; did you mean 'n_steps'"),
        ("n_steps = 3", 'n_steps = "3"', r"line 18, \[explainers\] ig: n_steps is '3'; expected a whole number\."),
        ("n_steps = 3", "budget = 0.5", r"line 18, \[explainers\] ig: budget is 0.5; expected a whole number\."),
        ("n_steps = 3", "budget = -1", r"line 18, \[explainers\] ig: .*: got budget=-1, expected at least 2"),
        (
            "n_steps = 3",
            "budget = 1",
            r"line 18, \[explainers\] ig: IntegratedGradients: got budget=1, expected at least 2",
        ),
        ("n_steps = 3", "n_steps = 0", r"line 18, \[explainers\] ig: IntegratedGradients\(n_steps=0\): expected"),
        ("n_steps = 3", 'channels = "x"', r"line 18, \[explainers\] ig: channels is 'x'; expected 'sum' or 'abs_sum'"),
        (
            "n_steps = 3",
            'output = "logit"',
            r"line 18, .*output is not a parameter that a suite .*\[explaining\]",
        ),
        ("n_steps = 3", 'device = "cpu"', r"line 18, .*device is not a parameter that a suite can give .*--device"),
        ("n_steps = 3", "baseline = [0, 0]", r"line 18, .*baseline is \[0, 0\]; expected a number"),
        ("seed = 1", "seed = -1", r"line 22, \[explainers\] lime: seed is -1; expected 0 or more"),
        ("seed = 1", "sed = 1", r"line 22, \[explainers\] lime: LIME has no parameter 'sed'; did you mean 'seed'"),
        ("threshold", "treshold", r"line 25, \[metrics\] iou: .*'treshold'; did you mean 'threshold'"),
        ("threshold = 0.5", 'threshold = "0.5"', r"line 25, \[metrics\] iou: threshold is '0.5'; expected a number"),
        ("threshold = 0.5", 'reduction = "mean"', r"line 25, \[metrics\] iou: reduction is not a parameter"),
        (
            "n_samples = 200",
            "n_sample = 200",
            r"line 5, \[\[cells\]\] .*'n_sample'; did you mean 'n_samples'",
        ),
        ("n_samples = 200", "n_samples = 200, seed = 3", r"line 5, .*seed is not a parameter .*seeds in \[data\]"),
        ("n_samples = 200", "n_samples = 200, alpha = 2", r"line 5, .*alpha=2: expected a signal-to-noise ratio"),
        ('models = ["mlp"]', 'models = ["mlp"]\ndata = { alpha = "2" }', r"line 16, .*alpha is '2'; expected a number"),
        ('models = ["mlp"]', 'models = ["mlp"]\nbuild = { fold = "pet" }', r"line 16, .*mlp: .*'fold'"),
        ('models = ["mlp"]', 'models = ["mlp"]\nbuild.num_classes = 3', r"line 16, .*num_classes is not a parameter"),
        (
            'models = ["mlp"]',
            'models = ["mlp"]\ntraining = { epochs = 0 }',
            r"line 16, .*training.epochs is 0",
        ),
        ("epochs = 1", "lr = 0", r"line 8: training.lr is 0; expected a number above 0"),
        ("epochs = 1", 'loss = "logit"', r"line 8: training.loss is 'logit'; expected one of logits, probabilities"),
        ("epochs = 1", "epoch = 1", r"line 8, \[training\]: unknown entry 'epoch'; did you mean 'epochs'"),
    ],
)
def test_a_wrong_parameter_is_an_error_with_its_line(tmp_path, old, new, message):
    assert SUITE.count(old) == 1
    with pytest.raises(SuiteError, match=r"my-suite\.toml, " + message):
        planned(tmp_path, SUITE.replace(old, new))


def test_an_unknown_part_is_named_on_its_line(tmp_path):
    with pytest.raises(UnknownNameError, match=r"line 18, \[explainers\] ik: Unknown explainer 'ik'"):
        planned(tmp_path, SUITE.replace("ig =", "ik ="))
    with pytest.raises(UnknownNameError, match=r"line 15, \[\[cells\]\] number 1, mpl: Unknown model 'mpl'"):
        planned(tmp_path, SUITE.replace('"mlp"', '"mpl"'))


def test_an_entry_of_quick_has_its_own_line(tmp_path):
    path = tmp_path / "my-suite.toml"
    path.write_text(SUITE + "\n[quick]\nexplainers = { ig = { n_stps = 1 } }\n")
    make_plan(load_suite(path)[0])
    with pytest.raises(SuiteError, match=r"my-suite\.toml, line 28, \[explainers\] ig: .*'n_stps'"):
        make_plan(load_suite(path, quick=True)[0])


def test_nothing_has_run_when_a_parameter_is_wrong(tmp_path):
    path = tmp_path / "my-suite.toml"
    path.write_text(SUITE.replace("threshold", "treshold"))
    with pytest.raises(SuiteError, match="treshold"):
        run(path, tmp_path / "run", engine="serial")
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
    for wrong, message in (("levels = 3", "levels is 3; expected a list"), ('how = "c"', "expected 'a' or 'b'")):
        with pytest.raises(SuiteError, match=rf"line 18, .*{message}"):
            planned(tmp_path, SUITE.replace("[explainers]", own % wrong))


@dataclass(frozen=True)
class Limited:
    low: int = 0
    high: int = 1

    def __post_init__(self):
        if self.high > 9:
            raise ValueError("The upper end, unlike low, is at most 9.")

    def __call__(self, model, images, targets):
        return images[:, 0]


def test_the_line_of_an_error_does_not_depend_on_its_words(tmp_path):
    own = f'[explainers."{__name__}:Limited"]\nlow = 1\nhigh = 10\n\n[explainers.lime]'
    with pytest.raises(SuiteError, match=r"line 22, .*: The upper end, unlike low, is at most 9"):
        planned(tmp_path, SUITE.replace("[explainers.lime]", own))


def test_a_metric_of_what_is_used_is_refused_on_masks_of_something_else(tmp_path):
    text = SUITE.replace("iou = { threshold = 0.5 }", "iou = { threshold = 0.5 }\nmass_outside = {}")
    message = (
        r"line 26, \[metrics\] mass_outside: mass_outside asks 'Does the map highlight what this network "
        r"uses\?', which the "
        r"masks of xai-tris/lin-white-8x8 cannot answer .*Leave the metric or the data set out\."
    )
    with pytest.raises(SuiteError, match=message):
        planned(tmp_path, text)
    certified = text.replace("xai-tris/lin-white-8x8", "certified:or").replace('"mlp"', '"certified:or-mlp"')
    assert planned(tmp_path, certified.replace("epochs = 1", 'method = "none"')).jobs


def test_a_folder_of_one_class_for_a_classifier_is_an_error_with_the_class(tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "cats" / "a.png")
    text = SUITE.replace("xai-tris/lin-white-8x8", f"photographs:{tmp_path / 'photos'}").replace('"mlp"', '"resnet18"')
    with pytest.raises(
        SuiteError, match=r"needs at least 2\. Classes of photographs:.*photos: cats\. Expected <class>/"
    ):
        planned(tmp_path, text.replace("parameters = { n_samples = 200 }", ""))
