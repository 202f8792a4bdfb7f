"""A good metric passes its trials, a bad one does not."""

import numpy as np
import pandas as pd
import pytest

from xaibench import meta_evaluate
from xaibench.meta_evaluation import MetaEvaluation
from xaibench.metrics import METRICS, mass_accuracy, roc_auc
from xaibench.registry.info import MetricInfo

FEW = {"draws": 6, "samples": 6}


def flipped(maps, masks, *, reduction="mean"):
    return -mass_accuracy(maps, masks, reduction=reduction)


def constant(maps, masks, *, reduction="mean"):
    return np.full(len(maps), 0.7)


def whimsical(maps, masks, *, reduction="mean"):
    return np.random.default_rng(0).random(len(maps))


def undefined(maps, masks, *, reduction="mean"):
    return np.full(len(maps), np.nan)


@MetricInfo("Misses", "ground-truth", higher_is_better=False, range=(0.0, 1.0))
def misses(maps, masks, *, reduction="mean"):
    return 1 - mass_accuracy(maps, masks, reduction=reduction)


@pytest.mark.parametrize("truth", ["data", "human", "use"])
def test_bad_metrics_are_found_out_and_good_ones_pass(truth):
    found = meta_evaluate([mass_accuracy, misses, flipped, constant, whimsical, undefined], truth, **FEW).verdicts()
    assert {metric: verdict for (metric, _), verdict in found.items()} == {
        "mass_accuracy": "passes",
        "misses": "passes",
        "flipped": "fails",
        "constant": "coarse",
        "whimsical": "fails",
        "undefined": "coarse",
    }


def test_a_metric_that_decides_its_truth_is_tried_with_that_one_and_others_with_each():
    found = meta_evaluate(["mass_outside", "roc_auc"], draws=1, samples=4).verdicts()
    assert set(found) == {("mass_outside", "use"), *(("roc_auc", truth) for truth in ("data", "use", "human"))}


def test_what_takes_no_notice_of_the_image_pleases_stability_and_noise_pleases_randomization():
    table = meta_evaluate(["data_consistency", "parameter_randomization"], draws=2, samples=8).table()
    verdicts = table.set_index(["metric", "degraded"])["verdict"].to_dict()
    assert verdicts["data_consistency", "noisy"] == verdicts["parameter_randomization", "unmoved"] == "passes"
    assert verdicts["data_consistency", "unmoved"] == verdicts["parameter_randomization", "noisy"] == "fails"


def test_a_trial_is_the_same_whichever_others_are_asked():
    alone = meta_evaluate("roc_auc", "data", **FEW).trials
    beside = meta_evaluate({"iou": {}, "roc_auc": {}}, "data", **FEW).trials
    pd.testing.assert_frame_equal(alone, beside[beside["metric"] == "roc_auc"].reset_index(drop=True))
    other = meta_evaluate("roc_auc", "data", **FEW, seed=1).trials
    assert not alone["one_right"].equals(other["one_right"])


def test_the_table_counts_draws_and_says_how_sure_it_is():
    rows = [("a", "data", "moved", draw, "lin", draw < 18, draw == 19, 0.5, 0.25) for draw in range(20)]
    names = ["metric", "truth", "degraded", "draw", "case", "right", "wrong", "one_right", "one_wrong"]
    (row,) = MetaEvaluation(pd.DataFrame(rows, columns=names), 20, 5).table().to_dict("records")
    assert row["draws"] == 20
    assert (row["right"], row["wrong"], row["one_right"], row["one_wrong"]) == (0.9, 0.05, 0.5, 0.25)
    assert (row["low"], row["high"]) == pytest.approx((0.699, 0.972), abs=1e-3)  # Wilson's, of 18 of 20
    assert row["verdict"] == "coarse"


def test_parameters_reach_the_metric():
    cut = meta_evaluate({"recall": {"threshold": 1.0}}, "data", **FEW).verdicts()
    assert cut["recall", "data"] != "passes"  # nothing is above the largest value
    assert roc_auc.__name__ in METRICS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"metrics": "sparseness"}, "sparseness describes the map .* omit it"),
        ({"metrics": "mass_outside", "truth": "data"}, "mass_outside has the truth use, got 'data'; omit truth"),
        ({"metrics": "roc_auc", "truth": "dat"}, "truth='dat'.*data"),
        ({"metrics": "roc_auc", "draws": 0}, "draws"),
        ({"metrics": "roc_auc", "samples": 0}, "samples"),
        ({"metrics": "auk"}, "roc_auc"),
    ],
)
def test_what_cannot_be_tried_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        meta_evaluate(**arguments)
