import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import overlap as oracle
from part_cases import MetricCase

from xaibench.core.messages import ParameterWarning
from xaibench.data import Split
from xaibench.evaluation import evaluate
from xaibench.metrics import chance_level, f1, iou, precision, recall, topk_precision, undefined_reasons

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
AT_THRESHOLD = [iou, precision, recall, f1]
at_threshold = pytest.mark.parametrize("metric", AT_THRESHOLD, ids=lambda metric: metric.__name__)
values = st.sampled_from([0.0, 0.5, 1.0, -1.0, 0.3])
CASES = {
    "iou": MetricCase(constant=6 / 30),
    "precision": MetricCase(constant=6 / 30),
    "recall": MetricCase(constant=1.0),
    "f1": MetricCase(constant=2 * 6 / 36),
}


@st.composite
def pairs(draw, elements=values, most=6):
    shape = draw(st.tuples(st.integers(1, most), st.integers(1, most)))
    return draw(hnp.arrays(np.float64, shape, elements=elements)), draw(hnp.arrays(np.bool_, shape))


@at_threshold
@given(pair=pairs(), threshold=st.sampled_from([0.0, 0.5, -1.0, 2.0]))
@settings(max_examples=80, deadline=None)
def test_against_sets_of_pixels(metric, pair, threshold):
    expected = getattr(oracle, metric.__name__)(*pair, threshold)
    np.testing.assert_allclose(metric(*pair, threshold=threshold), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_published_example_gives_the_published_relations(seed):
    rng = np.random.default_rng(seed)
    maps, gts = rng.random((16, 224, 224)), rng.integers(0, 2, (16, 224, 224))
    # Maps from rand are positive, so all is marked: IoU and precision are the mean of the masks, to the last digit.
    assert iou(maps, gts) == precision(maps, gts) == pytest.approx(gts.mean(), abs=1e-15)
    # Recall cuts at 0.5 and sees half of the masks.
    above = [(m > 0.5)[g == 1].mean() for m, g in zip(maps, gts, strict=True)]
    assert recall(maps, gts) == pytest.approx(np.mean(above), abs=1e-15)
    assert recall(maps, gts) == pytest.approx(0.5, abs=0.005)
    assert recall(maps, gts, threshold=0.0) == 1.0


def test_the_published_example_of_the_legacy_generator():
    rng = np.random.RandomState(0)
    maps, gts = rng.rand(16, 224, 224), rng.randint(0, 2, (16, 224, 224))
    for kind in (np.asarray, torch.from_numpy):
        scores = [metric(kind(maps), kind(gts)) for metric in (iou, precision, recall)]
        assert scores[0] == scores[1]
        assert [round(score, 2) for score in scores] == [0.5, 0.5, 0.5]


def test_published_thresholds_are_the_defaults_and_one_may_be_given_to_all():
    maps, mask = np.array([[0.0, 0.4, 0.5, 0.6]]), np.ones((1, 4))
    assert [metric(maps, mask) for metric in (iou, recall)] == [0.75, 0.25]
    assert f1(maps, mask) == pytest.approx(6 / 7, rel=1e-15)
    assert precision(maps, np.array([[1, 1, 0, 0]])) == pytest.approx(1 / 3, rel=1e-15)
    assert [metric(maps, mask, threshold=0.45) for metric in (iou, recall, precision)] == [0.5, 0.5, 1.0]


def test_published_precision_is_lost_by_one_empty_map_and_ours_is_not():
    maps, masks = np.array([[[0.2, 0.7]], [[-1.0, 0.0]]]), np.array([[[0, 1]], [[0, 1]]])
    # Summed up as published, sample by sample, 0/0 becomes the mean of all.
    with np.errstate(invalid="ignore"):
        published = np.mean([np.sum((m > 0) & (t > 0)) / np.sum(m > 0) for m, t in zip(maps, masks, strict=True)])
    assert np.isnan(published)
    assert precision(maps, masks) == 0.5


def test_published_misprint_of_f1_is_not_followed():
    # The paper prints a denominator of precision times recall.
    maps, masks = np.array([[1.0, 1.0, 1.0, 0.0]]), np.array([[1, 1, 0, 1]])
    p, r = 2 / 3, 2 / 3
    assert f1(maps, masks) == pytest.approx(2 * p * r / (p + r), rel=1e-15)


@given(pair=pairs(), threshold=st.sampled_from([0.0, 0.4]))
@settings(max_examples=80, deadline=None)
def test_f1_follows_from_iou_and_is_symmetric(pair, threshold):
    overlap = iou(*pair, threshold=threshold)
    np.testing.assert_allclose(f1(*pair, threshold=threshold), 2 * overlap / (1 + overlap), rtol=1e-14)
    marked = pair[0] > threshold
    if marked.any() and pair[1].any():
        assert f1(pair[1] * 1.0, marked) == f1(*pair, threshold=threshold)
        assert precision(*pair, threshold=threshold) == recall(pair[1] * 1.0, marked)


def test_a_map_with_nothing_above_the_threshold():
    maps, mask = np.full((1, 2, 2), -1.0), np.eye(2)[None]
    assert [metric(maps, mask) for metric in (iou, recall, f1)] == [0.0, 0.0, 0.0]
    assert math.isnan(precision(maps, mask))


@at_threshold
@given(pair=pairs(most=3))
@settings(max_examples=60, deadline=None)
def test_at_the_area_it_is_the_mean_over_all_choices_among_ties(metric, pair):
    values, mask = pair
    expected = oracle.at_area(getattr(oracle, metric.__name__), values, mask)
    np.testing.assert_allclose(metric(values, mask, threshold="area"), expected, rtol=1e-12)


@pytest.mark.parametrize("metric", [precision, recall, f1], ids=lambda metric: metric.__name__)
def test_at_the_area_the_others_are_topk_precision(metric):
    rng = np.random.default_rng(0)
    maps, masks = rng.random((8, 5, 5)).round(1), rng.random((8, 5, 5)) < 0.4
    expected = topk_precision(maps, masks, reduction="none")
    np.testing.assert_allclose(metric(maps, masks, threshold="area", reduction="none"), expected, rtol=1e-15)


def test_at_the_area_neither_scale_nor_rounding_decides():
    rng = np.random.default_rng(0)
    maps, masks = rng.standard_normal((8, 5, 5)).round(1), rng.random((8, 5, 5)) < 0.4
    scores = iou(maps, masks, threshold="area", reduction="none")
    for other in (maps * 1e6, np.exp(maps), maps * (1 + 1e-13 * rng.standard_normal(maps.shape))):
        np.testing.assert_allclose(iou(other, masks, threshold="area", reduction="none"), scores, rtol=1e-12)


@at_threshold
def test_at_the_area_a_zero_map_has_no_score_and_a_constant_one_that_of_chance(metric):
    mask = np.arange(30).reshape(5, 6) < 6
    assert math.isnan(metric(np.zeros((5, 6)), mask, threshold="area"))
    assert undefined_reasons(np.zeros((5, 6)), mask, metric.__name__, threshold="area") == ["map is all zero"]
    assert undefined_reasons(-np.ones((5, 6)), mask, metric.__name__, threshold="area") == [""]
    (chance,) = chance_level(metric.__name__, mask, {"threshold": "area"})
    assert metric(np.full((5, 6), -2.0), mask, threshold="area") == pytest.approx(chance, rel=1e-12)


POSITIVE = np.array([[[0.9, 0.2], [0.6, 0.7]], [[0.9, 0.8], [0.6, 0.7]]])
MASKS = np.array([[[1, 0], [0, 0]]] * 2)


@at_threshold
@pytest.mark.parametrize(("least", "is_warned"), [(-0.01, True), (0.0, False)])
def test_a_map_that_is_above_the_threshold_everywhere_is_warned_of_once_per_call(metric, least, is_warned):
    maps = POSITIVE - POSITIVE.min(axis=(1, 2), keepdims=True) - least
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        metric(maps, MASKS, threshold=0.0)
    assert [warning.category for warning in seen] == [ParameterWarning] * is_warned
    assert all(warning.filename == __file__ for warning in seen)


@at_threshold
def test_a_loop_over_batches_shows_the_warning_once(metric):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for scale in (1.0, 2.0, 3.0):
            metric(scale * POSITIVE, MASKS, threshold=0.1)
    assert len(seen) == 1


@at_threshold
def test_masks_of_no_or_of_all_pixels_and_other_thresholds_are_not_warned_of(metric):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric(POSITIVE, np.zeros_like(MASKS), threshold=0.0)
        metric(POSITIVE, np.ones_like(MASKS), threshold=0.0)
        metric(POSITIVE, MASKS, threshold="area")
        metric(POSITIVE, MASKS, threshold=0.65)


def test_evaluate_warns_once_for_all_batches():
    split = Split(torch.rand(2, 1, 2, 2), torch.from_numpy(MASKS) == 1, torch.zeros(2, dtype=torch.int64))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        how = {"metrics": ["iou"], "controls": False, "batch_size": 1, "sign": "signed"}
        evaluate({"mine": POSITIVE}, split, protocol="published", **how)
        evaluate({"mine": POSITIVE}, split, **how)
    assert sum(warning.category is ParameterWarning for warning in seen) == 1
