"""Anything that numpy can hold goes into every metric: a score in its range, a documented ``nan``, or a clear error.

pytest tests/metrics/test_fuzz.py --hypothesis-profile=fuzz      # 10,000 inputs for each metric
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xaibench.metrics import METRICS, undefined_reasons

THRESHOLDED = ("iou", "precision", "recall", "f1")
METRICS_OF_TRUTH = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
METRICS_OF_MAPS = [name for name in METRICS if METRICS.resolve(name).info.kind == "map"]

dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool_])
few = {np.float16: [0, -0.0, 1, -1, 0.5], np.float32: [0, 1, -1, 0.5], np.float64: [0, 1, -1, 0.5, 5e-324, 1.7e308]}
numbers = st.floats(-1e300, 1e300)


@st.composite
def arrays(draw, shape):
    """Maps of any type: wide ranges, a few values with many ties, or (rarely) what is not finite."""
    dtype = draw(dtypes)
    kind = draw(st.sampled_from(["any", "any", "ties", "ties", "ties", "broken"]))
    if kind == "ties" and dtype in few:
        return draw(hnp.arrays(dtype, shape, elements=st.sampled_from(few[dtype])))
    finite = {"allow_nan": kind == "broken", "allow_infinity": kind == "broken"}
    elements = hnp.from_dtype(np.dtype(dtype), **finite) if np.dtype(dtype).kind == "f" else None
    return draw(hnp.arrays(dtype, shape, elements=elements))


@st.composite
def pairs(draw):
    shape = draw(st.one_of(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), st.tuples(*[st.integers(1, 5)] * 3)))
    grey = draw(st.sampled_from([False] * 9 + [True]))
    masks = draw(hnp.arrays(np.float32, shape, elements=st.sampled_from([0, 1, 0.5]))) if grey else None
    return draw(arrays(shape)), draw(hnp.arrays(np.bool_, shape)) if masks is None else masks


def in_range(score, metric):
    low, high = metric.info.range
    return low <= score <= high


@pytest.mark.parametrize("name", METRICS_OF_TRUTH)
@given(pair=pairs(), data=st.data())
@settings(deadline=None)
def test_any_maps_and_masks_give_a_score_a_reason_or_an_error(name, pair, data):
    metric, (maps, masks) = METRICS.resolve(name), pair
    parameters = {}
    if name in THRESHOLDED:
        parameters["threshold"] = data.draw(st.one_of(st.sampled_from([0.0, 0.5]), numbers))
    elif name == "hit":
        parameters["tolerance"] = data.draw(st.one_of(st.integers(0, 9), st.floats(0, 1e300)))
    if not np.isin(masks, (0, 1)).all() or not np.isfinite(maps).all():
        with pytest.raises(ValueError, match=r"masks must be binary|maps must be finite"):
            metric(maps, masks, **parameters)
        return
    scores = metric(maps, masks, reduction="none", **parameters)
    threshold = parameters if name == "precision" else {}
    reasons = undefined_reasons(maps, masks, name, **threshold)
    assert scores.dtype == np.float64
    assert len(scores) == len(reasons) == (len(maps) if maps.ndim == 3 else 1)
    for score, reason in zip(scores, reasons, strict=True):
        assert math.isnan(score) if reason else in_range(score, metric)
    mean = metric(maps, masks, **parameters)
    assert math.isnan(mean) if np.isnan(scores).all() else in_range(mean, metric)


@pytest.mark.parametrize("name", METRICS_OF_MAPS)
@given(maps=hnp.array_shapes(min_dims=2, max_dims=3, max_side=6).flatmap(arrays))
@settings(deadline=None)
def test_any_maps_give_a_score_a_reason_or_an_error(name, maps):
    metric = METRICS.resolve(name)
    if not np.isfinite(maps).all():
        with pytest.raises(ValueError, match="maps must be finite"):
            metric(maps)
        return
    scores = metric(maps, reduction="none")
    reasons = undefined_reasons(maps, np.ones_like(maps, dtype=bool), name)
    largest = math.log(maps.shape[-1] * maps.shape[-2]) if name == "complexity" else 1.0
    for score, reason in zip(scores, reasons, strict=True):
        assert math.isnan(score) if reason else in_range(score, metric) and score <= largest
