"""What every registered metric promises. (What its numbers mean is tested beside its file.)"""

import inspect
import re
from collections import Counter

import numpy as np
import pytest
import torch
from part_cases import MetricCase, case
from torch import nn

from xaibench.metrics import METRICS
from xaibench.registry.info import MetricInfo

every_metric = pytest.mark.parametrize("name", METRICS)
AGAINST_TRUTH = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
every_truth_metric = pytest.mark.parametrize("name", AGAINST_TRUTH)

#: What a metric of each kind is called with, before its own keyword parameters.
CALLED_WITH = {
    "ground-truth": ["maps", "masks"],
    "model": ["model", "images", "maps", "targets"],
    "explainer": ["explainer", "model", "images", "targets"],
    "map": ["maps"],
}


@pytest.fixture
def pairs():
    """Maps of many kinds, random masks; the first map is zero, the second mask empty."""
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((24, 8, 8))
    maps[8:12] *= rng.random((4, 8, 8)) < 0.1
    maps[12:16] = rng.standard_cauchy((4, 8, 8)) ** 3
    maps[16:20] = np.sign(maps[16:20])
    masks = rng.random((24, 8, 8)) < rng.random((24, 1, 1))
    masks[:, 3, 3], masks[:, 4, 4] = True, False
    maps[0], masks[1] = 0, False
    return maps, masks


@every_metric
def test_info_is_complete(name):
    metric = METRICS.resolve(name)
    info, has_threshold = metric.info, "threshold" in inspect.signature(metric).parameters
    assert isinstance(info, MetricInfo)
    assert info.label
    assert info.citation, f"{name}: give MetricInfo the paper as citation=..."
    for text in ("meaning", "pitfalls"):
        assert re.search(r"[.…]$", getattr(info, text)), f"{name}: give MetricInfo {text}=... as whole sentences"
    assert info.range[0] < info.range[1]
    assert info.revision >= 1
    assert info.thresholded == has_threshold, f"{name}: give MetricInfo thresholded={has_threshold}"


def test_labels_are_unique():
    labels = Counter(METRICS.resolve(name).info.label for name in METRICS)
    assert [label for label, count in labels.items() if count > 1] == []


@every_metric
def test_signature_and_docstring_are_those_of_its_kind(name):
    metric = METRICS.resolve(name)
    parameters = inspect.signature(metric).parameters
    first = CALLED_WITH[metric.info.kind]
    assert list(parameters)[: len(first)] == first, f"{name}: kind={metric.info.kind!r} takes ({', '.join(first)})"
    own = list(parameters.values())[len(first) :]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in own)
    assert all(parameter.default is not parameter.empty for parameter in own)
    assert "reduction" in parameters, f'{name}: add the parameter reduction: Reduction = "mean"'
    assert parameters["reduction"].default == "mean"
    text = inspect.getdoc(metric)
    for needed in ("Args:", "Returns:", "Raises:", "Example:", "``nan``", "is better"):
        assert needed in text, f"the docstring of {name} lacks {needed}"


@every_truth_metric
def test_scores_lie_in_the_range(name, pairs):
    metric = METRICS.resolve(name)
    scores = metric(*pairs, reduction="none")
    defined = scores[~np.isnan(scores)]
    assert scores.shape == (24,)
    assert len(defined) >= 22
    low, high = metric.info.range
    scored = f"{name}: scores from {defined.min()} to {defined.max()}, but MetricInfo has range={metric.info.range}"
    assert low <= defined.min() < defined.max() <= high, scored
    assert metric(*pairs) == pytest.approx(defined.mean(), rel=1e-12)


@every_truth_metric
def test_no_sample_sees_its_neighbors(name, pairs):
    metric, (maps, masks) = METRICS.resolve(name), pairs
    whole = metric(maps, masks, reduction="none")
    order = np.random.default_rng(1).permutation(24)
    assert np.array_equal(metric(maps[order], masks[order], reduction="none"), whole[order], equal_nan=True)
    for size in (1, 5):
        cut = [slice(start, start + size) for start in range(0, 24, size)]
        parts = [metric(maps[some], masks[some], reduction="none") for some in cut]
        same = np.array_equal(np.concatenate(parts), whole, equal_nan=True)
        assert same, f"{name}: a score depends on the other samples of the batch"


@every_truth_metric
def test_one_sample_is_a_batch_of_one(name, pairs):
    metric, (maps, masks) = METRICS.resolve(name), pairs
    alone = metric(maps[3], masks[3], reduction="none")
    assert alone.shape == (1,)
    assert alone[0] == metric(maps[3:4], masks[3:4], reduction="none")[0] == metric(maps[3], masks[3])


@every_truth_metric
def test_the_mask_itself_is_the_best_map(name, pairs):
    metric, (maps, masks) = METRICS.resolve(name), pairs
    best = metric.info.range[1] if metric.info.higher_is_better else metric.info.range[0]
    scores = metric(masks[2:] * 1.0, masks[2:], reduction="none")
    if np.isinf(best):  # the largest score depends on the mask
        assert (scores >= metric(maps[2:], masks[2:], reduction="none")).all()
    else:
        wrong = f"{name}: the mask as a map scores {scores[0]}, the best is {best} by range= and higher_is_better="
        assert np.array_equal(scores, np.full(22, best)), wrong
    others = metric(maps[2:], masks[2:], reduction="none")
    assert ((others <= best) if metric.info.higher_is_better else (others >= best)).all()
    wrong = metric(~masks[2:] * 1.0, masks[2:])
    assert wrong < best if metric.info.higher_is_better else wrong > best


@every_truth_metric
def test_torch_is_numpy(name, pairs):
    metric, (maps, masks) = METRICS.resolve(name), pairs
    tensors = torch.from_numpy(maps), torch.from_numpy(masks)
    scores = metric(*tensors, reduction="none")
    assert isinstance(scores, torch.Tensor)
    assert np.array_equal(scores.numpy(), metric(maps, masks, reduction="none"), equal_nan=True)
    assert metric(*tensors) == metric(maps, masks)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_truth_metric
def test_scores_stay_on_the_gpu_of_the_maps(name, pairs):
    metric, (maps, masks) = METRICS.resolve(name), pairs
    scores = metric(torch.from_numpy(maps).cuda(), torch.from_numpy(masks).cuda(), reduction="none")
    assert scores.device.type == "cuda"
    assert np.array_equal(scores.cpu().numpy(), metric(maps, masks, reduction="none"), equal_nan=True)


@pytest.mark.parametrize(
    "name", [name for name in METRICS if METRICS.resolve(name).info.kind in ("model", "explainer")]
)
def test_metrics_of_a_model_do_not_depend_on_autocast_around_them(name):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    images, maps = torch.rand(4, 1, 8, 8, generator=generator), torch.randn(4, 8, 8, generator=generator)
    targets, metric = torch.tensor([0, 1, 2, 0]), METRICS.resolve(name)

    def gradients(network, rows, classes):
        rows = rows.clone().requires_grad_()
        return torch.autograd.grad(network(rows).gather(1, classes[:, None]).sum(), rows)[0].sum(1)

    def scores():
        given = (model, images, maps, targets) if metric.info.kind == "model" else (gradients, model, images, targets)
        return metric(*given, reduction="none", **case(METRICS, name, MetricCase()).quick)

    expected = scores()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(scores().nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("name", AGAINST_TRUTH)
def test_a_metric_that_reads_the_sign_by_value_only_ranks_or_binarizes(name, pairs):
    """``evaluate`` passes such metrics the magnitude of a map by default, which must not be another question."""
    metric, (maps, masks) = METRICS.resolve(name), pairs
    if metric.info.map_sign != "value" or metric.info.skill_of:
        return
    how = {"threshold": "area"} if metric.info.thresholded else {}
    maps, masks = maps[2:12], masks[2:12]  # others have values that are equal up to rounding
    values, order = np.unique(maps, return_inverse=True)
    increasing = order.reshape(maps.shape) - (values < 0).sum()  # keeps order, signs and zeros
    scores = metric(maps, masks, reduction="none", **how)
    hint = f'{name} reads more than the order of the values: give MetricInfo map_sign="own" (signed) or "magnitude"'
    np.testing.assert_array_equal(metric(increasing, masks, reduction="none", **how), scores, err_msg=hint)
