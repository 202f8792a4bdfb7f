"""Anything that numpy can hold goes into every metric: a score in its range, a documented ``nan``, or a clear error.

python tests/fuzz.py metrics --minutes 60 runs it longer.
"""

import functools
import inspect
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from generators.drawn import BROKEN_IMAGES, BROKEN_TARGETS, IMAGES, JUNK, TARGETS, networks, state_of_the_process
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from part_cases import MetricCase, case
from refusals import is_refusal
from zoo.verdicts import portrait

from xaibench.explainers import explain
from xaibench.metrics import METRICS, undefined_reasons

CASE = {name: case(METRICS, name, MetricCase()) for name in METRICS}

METRICS_OF_TRUTH = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
METRICS_OF_MAPS = [name for name in METRICS if METRICS.resolve(name).info.kind == "map"]
METRICS_OF_MODELS = [name for name in METRICS if METRICS.resolve(name).info.kind == "model"]
METRICS_OF_EXPLAINERS = [name for name in METRICS if METRICS.resolve(name).info.kind == "explainer"]

dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool_])
few = {np.float16: [0, -0.0, 1, -1, 0.5], np.float32: [0, 1, -1, 0.5], np.float64: [0, 1, -1, 0.5, 5e-324, 1.7e308]}
numbers = st.floats(-1e300, 1e300)


@st.composite
def arrays(draw, shape, finite=False):
    """Maps of any type: wide ranges, a few values with many ties, or (rarely) what is not finite."""
    dtype = draw(dtypes)
    kind = draw(st.sampled_from(["any", "any", "ties", "ties", "ties", "any" if finite else "broken"]))
    if kind == "ties" and dtype in few:
        return draw(hnp.arrays(dtype, shape, elements=st.sampled_from(few[dtype])))
    broken = {"allow_nan": kind == "broken", "allow_infinity": kind == "broken"}
    elements = hnp.from_dtype(np.dtype(dtype), **broken) if np.dtype(dtype).kind == "f" else None
    return draw(hnp.arrays(dtype, shape, elements=elements))


@st.composite
def pairs(draw):
    shape = draw(st.one_of(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), st.tuples(*[st.integers(1, 5)] * 3)))
    gray = draw(st.sampled_from([False] * 9 + [True]))
    masks = draw(hnp.arrays(np.float32, shape, elements=st.sampled_from([0, 1, 0.5]))) if gray else None
    return draw(arrays(shape)), draw(hnp.arrays(np.bool_, shape)) if masks is None else masks


def check_score(score, reason, metric):
    """Check that a score is in its range, or undefined for a declared reason."""
    name, (low, high) = metric.__name__, metric.info.range
    if reason:
        assert math.isnan(score), f"{name}: {score} where MetricInfo(undefined=...) or CASES declare nan: {reason}"
    else:
        assert not math.isnan(score), f"{name}: nan without a reason; give MetricInfo undefined=(EMPTY_MASK, ...)"
        assert low <= score <= high, f"{name}: {score} is outside of range=({low}, {high}) of MetricInfo"


@pytest.mark.parametrize("name", METRICS_OF_TRUTH)
@given(pair=pairs(), data=st.data())
@settings(deadline=None)
def test_any_maps_and_masks_give_a_score_a_reason_or_an_error(name, pair, data):
    metric, (maps, masks) = METRICS.resolve(name), pair
    parameters = {}
    if metric.info.thresholded:
        parameters["threshold"] = data.draw(st.one_of(st.sampled_from([0.0, 0.5]), numbers))
    parameters |= data.draw(st.fixed_dictionaries(CASE[name].drawn))
    if not np.isin(masks, (0, 1)).all() or not np.isfinite(maps).all():
        with pytest.raises(ValueError, match=r"masks must be binary|maps must be finite"):
            metric(maps, masks, **parameters)
        return
    scores = metric(maps, masks, reduction="none", **parameters)
    threshold = {key: value for key, value in parameters.items() if key == "threshold"}
    reasons = undefined_reasons(maps, masks, name, **threshold)
    assert scores.dtype == np.float64
    assert len(scores) == len(reasons) == (len(maps) if maps.ndim == 3 else 1)
    for score, reason in zip(scores, reasons, strict=True):
        check_score(score, reason, metric)
    check_score(metric(maps, masks, **parameters), np.isnan(scores).all(), metric)


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
    largest = CASE[name].largest(maps.shape[-1] * maps.shape[-2])
    for score, reason in zip(scores, reasons, strict=True):
        check_score(score, reason, metric)
        assert not score > largest


class Steep(torch.nn.Module):
    """Two classes; the logits reach thousands, so that probabilities are 0 and 1 as well."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.0, -300.0]))

    def forward(self, images):
        return torch.stack([images.sum((1, 2, 3)), images[:, 0, 0, 0]], 1) * self.scale


def draw_samples(data):
    shape = data.draw(st.sampled_from([(1, 2), (1, 3), (3, 2), (4, 4)]))
    count, channels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    images = data.draw(hnp.arrays(np.float32, (count, channels, *shape), elements=st.floats(-9, 9, width=32)))
    return images, data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, 1)))


class Trial(NamedTuple):
    """What a metric was given and gave: maps ``[N, H, W]``, scores ``[N]``, and the model's of the whole images."""

    maps: np.ndarray
    scores: np.ndarray
    parameters: dict
    whole: np.ndarray | None = None


def undefined_of(name, trial):
    if CASE[name].undefined:
        return CASE[name].undefined(trial)
    if METRICS.resolve(name).info.kind == "explainer":
        return [not one.any() for one in trial.maps]
    return [reason != "" for reason in undefined_reasons(trial.maps, np.ones_like(trial.maps, dtype=bool), name)]


def check_scores(scores, count, undefined, metric):
    assert scores.shape == (count,)
    assert scores.dtype == np.float64
    for score, reason in zip(scores, undefined, strict=True):
        check_score(score, reason, metric)


@pytest.mark.filterwarnings("ignore:the outputs of the model look like probabilities")
@pytest.mark.parametrize("name", METRICS_OF_MODELS)
@given(data=st.data())
@settings(deadline=None)
def test_any_map_of_a_model_gives_a_score_a_reason_or_an_error(name, data):
    metric = METRICS.resolve(name)
    images, targets = draw_samples(data)
    maps = data.draw(arrays((len(images), *images.shape[2:]), finite=True))
    parameters = data.draw(st.fixed_dictionaries(CASE[name].drawn | {"batch_size": st.sampled_from([None, 1, 2])}))
    scores = metric(Steep(), images, maps, targets, reduction="none", **parameters)
    with torch.no_grad():
        whole = Steep()(torch.from_numpy(images)).double().softmax(1).numpy()[np.arange(len(images)), targets]
    undefined = undefined_of(name, Trial(maps, scores, parameters, whole))
    check_scores(scores, len(images), undefined, metric)
    mean = metric(Steep(), images, maps, targets, **parameters)
    check_score(mean, all(undefined), metric)


@pytest.mark.parametrize("name", METRICS_OF_EXPLAINERS)
@given(data=st.data())
@settings(deadline=None)
def test_any_explainer_gives_a_score_a_reason_or_an_error(name, data):
    metric = METRICS.resolve(name)
    images, targets = draw_samples(data)
    whole = data.draw(arrays(images.shape[2:], finite=True))
    kind = data.draw(st.sampled_from(["fixed", "fixed", "image", "weights", "zero where dark"]))
    if np.abs(whole.astype(np.float64)).max() > 1e300:
        whole = whole.astype(np.float64) / 1e8  # the mean change of such maps is no float

    def explainer(model, inputs, classes):
        maps = torch.from_numpy(whole).double().expand(len(inputs), *whole.shape)
        if kind == "image":
            maps = maps * inputs[:, 0].double() / 9
        elif kind == "weights":
            maps = maps * model.scale[1].double() / 1000
        elif kind == "zero where dark":
            maps = maps * (inputs[:, 0] > 0)
        return maps

    parameters = data.draw(st.fixed_dictionaries(CASE[name].drawn | {"batch_size": st.sampled_from([None, 1, 2])}))
    scores = metric(explainer, Steep(), images, targets, reduction="none", **parameters)
    with torch.no_grad():
        maps = explainer(Steep(), torch.from_numpy(images), targets).numpy()
    undefined = undefined_of(name, Trial(maps, scores, parameters))
    check_scores(scores, len(images), undefined, metric)


ARRAYS = ("maps", "masks", "images", "targets")
#: What only images may not be.
OF_IMAGES = {"integers", "booleans", "no channels"}
#: A single map is taken, and maps may have any shape if there are no images.
OTHER_SHAPES = {"empty", "a single one", "flat", "an axis more"}


def drawn_pixels(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@st.composite
def calls(draw, name):
    """Draw the arguments of a metric, its parameters, its network, and the names of the arguments that are broken."""
    metric, sides, count = METRICS.resolve(name), st.integers(1, 6), draw(st.integers(1, 3))
    shape = draw(st.integers(1, 3)), *draw(st.tuples(sides, sides))
    drawn, seed = draw(networks(shape)), draw(st.integers(0, 9))
    explainers = [lambda model, images, targets: images[:, 0], functools.partial(explain, "saliency", progress=False)]
    given = {
        "maps": drawn_pixels((count, *shape[1:]), seed),
        "masks": drawn_pixels((count, *shape[1:]), seed + 1) > 0,
        "images": drawn_pixels((count, *shape), seed),
        "targets": torch.arange(count) % 2,
        "model": drawn.network,
        "explainer": draw(st.sampled_from(explainers)),
    }
    signature = inspect.signature(metric).parameters
    given = {argument: given[argument] for argument in signature if argument in given}
    broken = draw(st.sampled_from([None] * 3 + [argument for argument in given if argument in ARRAYS]))
    if broken == "targets":
        given[broken] = draw(st.sampled_from(list(BROKEN_TARGETS.values())))(given[broken], drawn.classes)
    elif broken:
        kinds = BROKEN_IMAGES.keys() - (OF_IMAGES if broken != "images" else ())
        kind = draw(st.sampled_from(sorted(kinds)))
        given[broken] = BROKEN_IMAGES[kind](given[broken].float())
        broken = broken if kind not in OTHER_SHAPES else "perhaps"
    else:
        changed = "images" if "images" in given else "maps"
        given[changed] = draw(st.sampled_from(list(IMAGES.values())))(given[changed])
        if "targets" in given:
            given["targets"] = draw(st.sampled_from(list(TARGETS.values())))(given["targets"], drawn.classes)
    own = draw(st.fixed_dictionaries(CASE[name].drawn))
    others = [parameter for parameter in signature if parameter not in given]
    is_odd = draw(st.integers(0, 3)) == 0
    if is_odd:
        own[draw(st.sampled_from(others))] = draw(st.sampled_from(JUNK))
    return name, given, own, drawn, broken, is_odd


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["ground-truth", "map", "model", "explainer"])
@given(data=st.data())
@settings(deadline=None)
def test_any_call_gives_scores_or_an_error_of_ours(kind, data):
    names = [name for name in METRICS if METRICS.resolve(name).info.kind == kind]
    judge(*data.draw(st.sampled_from(names).flatmap(calls)))


def judge(name, given, own, drawn, broken, is_odd):
    metric, is_called = METRICS.resolve(name), "model" in given
    before, state = portrait(drawn.network), state_of_the_process()
    try:
        scores = metric(**given, **own, **({} if "reduction" in own else {"reduction": "none"}))
    except Exception as error:
        if not (is_refusal(error) or (is_called and drawn.raised(error))):
            raise
        scores = error
    finally:
        assert portrait(drawn.network) == before
        assert drawn.is_random or state_of_the_process() == state
    if isinstance(scores, Exception):
        is_expected = (broken or "none") in str(scores) or broken == "perhaps" or is_odd
        is_expected |= is_called and drawn.fate != "sound"
        assert is_expected or given["images"].shape[2:] == (1, 1), scores  # ROAD has nothing to impute from
        return type(scores).__name__
    assert broken in (None, "perhaps")
    assert not is_called or drawn.fate != "refused"
    if not is_odd:
        low, high = metric.info.range
        assert len(scores) == len(given.get("maps", given.get("images"))) or broken
        for score in scores:
            assert math.isnan(score) or low <= score <= high
    return "scores"
