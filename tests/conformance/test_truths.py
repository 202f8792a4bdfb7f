"""Every registered data set and metric says which kind of truth it is of, and a score takes one of them."""

import re
import typing

import pytest

from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS, Truth
from xaibench.data import DATASETS
from xaibench.data.annotated import AnnotatedSet
from xaibench.metrics import METRICS
from xaibench.registry.info import DatasetInfo, MetricInfo, truth_of

#: Kind of truth by family of metrics; None: the masks decide, unless the metric is about what the network uses.
BY_FAMILY = {
    "localization": None,
    "sparsity": NO_TRUTH,
    **dict.fromkeys(("faithfulness", "sensitivity", "randomization"), "intervention"),
}
ABOUT_USE = {"mass_outside", "grid_pointing", "use_auc", "use_ap"}


def test_a_metric_has_the_truth_of_its_family():
    for name in METRICS:
        info, family = METRICS.resolve(name).info, re.split("[.:]", METRICS.target(name))[2]
        expected = "use" if name in ABOUT_USE else BY_FAMILY[family]
        assert info.own_truth == expected, name
        assert info.truth in (None, "use"), name  # the kind says the rest
        for truth in TRUTHS:
            of_set = DatasetInfo("mine", ("a", "b"), (1, 8, 8), truth=truth)
            assert truth_of(info, of_set) == (expected or truth), name


def test_a_data_set_is_of_the_truth_of_its_masks():
    for name in [*DATASETS, "certified:xor"]:
        part = DATASETS.resolve(name)
        generated = name.startswith(("xai-tris/", "pattern-gam/", "watermarks/", "parts/"))
        expected = "data" if generated else "use" if name.startswith("certified:") else "human"
        assert part.info.truth == expected, name
        assert (expected == "human") == isinstance(part, AnnotatedSet), name


def test_what_says_nothing_of_itself_is_of_maps_and_the_masks_of_people():
    assert DatasetInfo("mine", ("a", "b"), (1, 8, 8)).truth == truth_of(None, None) == "human"
    assert truth_of(None, DatasetInfo("mine", ("a", "b"), (1, 8, 8), truth="use")) == "use"
    own = MetricInfo("Mine", "model", higher_is_better=True, range=(0.0, 1.0), truth="use")
    assert truth_of(own, None) == "use"


def test_each_kind_is_a_question_with_what_a_low_score_means_and_what_it_cannot_tell():
    assert tuple(TRUTHS) == typing.get_args(Truth)
    for words in TRUTHS.values():
        assert words.question.endswith("?")
        assert all(text.endswith(".") for text in (words.source, words.low, words.silent))


def test_an_unknown_truth_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"truth='usage': expected one of 'data', 'use', 'human', 'intervention'"):
        DatasetInfo("mine", ("a", "b"), (1, 8, 8), truth="usage")
    with pytest.raises(ValueError, match=r"truth='humans': expected one of"):
        MetricInfo("Mine", "map", higher_is_better=True, range=(0.0, 1.0), truth="humans")
