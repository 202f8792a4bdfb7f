import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import ranking as oracle
from part_cases import MetricCase
from sklearn.metrics import average_precision_score, roc_auc_score

from xaibench.metrics import average_precision, roc_auc

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
METRICS = [roc_auc, average_precision]
both = pytest.mark.parametrize("metric", METRICS, ids=["roc_auc", "average_precision"])
PEER = {roc_auc: roc_auc_score, average_precision: average_precision_score}
values = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0, -0.0]), st.floats(-1e9, 1e9))
CASES = {"roc_auc": MetricCase(constant=0.5), "average_precision": MetricCase(constant=6 / 30)}


@both
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_against_the_definition(metric, data):
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    pair = data.draw(hnp.arrays(np.float64, shape, elements=values)), data.draw(hnp.arrays(np.bool_, shape))
    np.testing.assert_allclose(metric(*pair), getattr(oracle, metric.__name__)(*pair), rtol=1e-14)


@both
@pytest.mark.parametrize("ties", [None, 2, 10, 1000])
def test_against_scikit_learn(metric, ties):
    rng = np.random.default_rng(0)
    maps, masks = rng.standard_normal((20, 30, 40)), rng.random((20, 30, 40)) < rng.random((20, 1, 1))
    masks[:, 0, 0], masks[:, 0, 1] = True, False
    if ties:
        maps = np.round(maps * ties / 4) + 0.5
        assert len(np.unique(maps)) <= 3 * ties
    expected = [PEER[metric](mask.ravel(), values.ravel()) for values, mask in zip(maps, masks, strict=True)]
    np.testing.assert_allclose(metric(maps, masks, reduction="none"), expected, rtol=1e-11)


@both
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_only_the_order_counts(metric, data):
    maps = data.draw(hnp.arrays(np.float64, (3, 4), elements=st.integers(-50, 50).map(float)))
    mask = data.draw(hnp.arrays(np.bool_, (3, 4)))
    maps[0, 0] = 51.0
    # Changes that leave no two values closer than a tie.
    for change in (lambda m: m * 2.0**40, lambda m: m**3, lambda m: np.exp(m / 8)):
        np.testing.assert_array_equal(metric(change(maps), mask), metric(maps, mask))


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_turning_the_map_over_turns_the_auc_over(data):
    maps = data.draw(hnp.arrays(np.float64, (3, 4), elements=values))
    mask = data.draw(hnp.arrays(np.bool_, (3, 4)))
    np.testing.assert_allclose(roc_auc(-maps, mask), 1 - roc_auc(maps, mask), rtol=0, atol=1e-15)
    np.testing.assert_allclose(roc_auc(maps, ~mask), 1 - roc_auc(maps, mask), rtol=0, atol=1e-15)


def test_a_constant_map_is_no_better_than_chance():
    mask = np.zeros((4, 5), dtype=bool)
    mask[1, :3] = True
    for constant in (1.0, -2.0, 1e-300):
        assert roc_auc(np.full((4, 5), constant), mask) == 0.5
        assert average_precision(np.full((4, 5), constant), mask) == 3 / 20


def test_ties_do_not_depend_on_where_they_are():
    # A sort would rank the tied pixels in the order in which it leaves them.
    maps = np.array([[2.0, 1, 1, 1]])
    scores = [[metric(maps, np.eye(4)[[place]]) for place in (1, 2, 3)] for metric in METRICS]
    assert scores == [[1 / 3] * 3, [1 / 4] * 3]


def test_undefined_cases():
    maps, mask = np.arange(4.0).reshape(2, 2), np.eye(2)
    assert math.isnan(roc_auc(maps, np.ones((2, 2))))
    assert math.isnan(roc_auc(maps, np.zeros((2, 2))))
    assert math.isnan(average_precision(maps, np.zeros((2, 2))))
    assert average_precision(maps, np.ones((2, 2))) == 1.0
    assert math.isnan(roc_auc(maps * 0, mask))
    assert math.isnan(average_precision(maps * 0, mask))


def test_worst_and_best_map():
    mask = np.zeros((8, 8))
    mask[2:4, 2:4] = 1
    order = np.arange(64.0).reshape(8, 8)
    assert [metric(order + 100 * mask, mask) for metric in METRICS] == [1.0, 1.0]
    assert roc_auc(order - 100 * mask, mask) == 0.0
    assert average_precision(order - 100 * mask, mask) == pytest.approx(sum(i / (60 + i) for i in (1, 2, 3, 4)) / 4)


@both
def test_a_batch_of_photographs_takes_well_under_a_second(metric):
    rng = np.random.default_rng(0)
    maps, masks = rng.standard_normal((32, 224, 224)).astype(np.float32), rng.random((32, 224, 224)) < 0.2
    start = time.process_time()
    scores = metric(maps, masks, reduction="none")
    assert time.process_time() - start < 2.0  # some 0.3 s; a busy machine must not fail it
    expected = [PEER[metric](masks[i].ravel(), maps[i].ravel()) for i in (0, 31)]
    np.testing.assert_allclose(scores[[0, 31]], expected, rtol=1e-11)
