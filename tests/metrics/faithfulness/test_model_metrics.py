"""What every metric that asks the model promises: whatever the batch, the sample's score; and clear errors."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from oracles.networks import batch, small_cnn
from torch import nn

from xaibench.metrics import average_drop, comprehensiveness, deletion, increase_in_confidence, insertion, sufficiency
from xaibench.metrics.faithfulness.adversarial import adversarial
from xaibench.metrics.faithfulness.completeness import completeness_error
from xaibench.metrics.faithfulness.f_fidelity import f_fidelity
from xaibench.metrics.faithfulness.idsds import idsds
from xaibench.metrics.faithfulness.infidelity import infidelity
from xaibench.metrics.faithfulness.insertion_deletion import srg
from xaibench.metrics.faithfulness.monotonicity_correlation import monotonicity_correlation
from xaibench.metrics.faithfulness.road import road
from xaibench.metrics.faithfulness.saco import saco
from xaibench.metrics.faithfulness.sensitivity_n import sensitivity_n

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
METRICS = {
    "deletion": partial(deletion, steps=5),
    "insertion": partial(insertion, steps=5),
    "comprehensiveness": comprehensiveness,
    "sufficiency": sufficiency,
    "srg": partial(srg, steps=5),
    "idsds": idsds,
    "saco": saco,
    "f_fidelity": partial(f_fidelity, n_samples=2),
    "completeness_error": completeness_error,
    "average_drop": average_drop,
    "increase_in_confidence": increase_in_confidence,
    "adversarial": partial(adversarial, steps=3),
    "adversarial, control": partial(adversarial, steps=3, pixels="random"),
    "infidelity": partial(infidelity, n_samples=11),
    "infidelity, gaussian": partial(infidelity, n_samples=11, perturbation="gaussian"),
    "sensitivity_n": partial(sensitivity_n, n_samples=6),
    "monotonicity_correlation": partial(monotonicity_correlation, grid_size=3, n_samples=2),
    "road": partial(road, percentiles=(20, 60)),
    "road, morf": partial(road, percentiles=(20, 60), order="morf"),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
#: Those that look at the order of the pixels alone.
by_rank = pytest.mark.parametrize(
    "metric",
    [m for name, m in METRICS.items() if name not in ("average_drop", "increase_in_confidence", "completeness_error")],
)
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module")
def case():
    images, maps, targets = batch(n=7, size=(6, 5))
    maps[2] = 1.5  # a constant map, undefined where a rank is asked
    return small_cnn(), images, maps, targets


@pytest.fixture(scope="module")
def expected(case):
    return {name: metric(*case, reduction="none") for name, metric in METRICS.items()}


@every_metric
def test_the_size_of_the_batch_changes_nothing(case, metric, expected, request):
    whole = expected[request.node.callspec.id]
    for batch_size in (1, 3, 1000):
        scores = metric(*case, batch_size=batch_size, reduction="none")
        np.testing.assert_allclose(scores, whole, **TOLERANCE)


@every_metric
def test_permuting_and_splitting_the_batch_changes_nothing(case, metric, expected, request):
    model, *arrays = case
    whole = expected[request.node.callspec.id]
    order = torch.tensor([3, 6, 0, 2, 5, 1, 4])
    moved = metric(model, *(array[order] for array in arrays), reduction="none")
    np.testing.assert_allclose(moved, whole[order], **TOLERANCE)
    parts = [metric(model, *(a[cut] for a in arrays), reduction="none") for cut in (slice(0, 1), slice(1, 7))]
    np.testing.assert_allclose(torch.cat(parts), whole, **TOLERANCE)


@every_metric
def test_one_sample_is_a_batch_of_one(case, metric, expected, request):
    model, images, maps, targets = case
    score = metric(model, images[4], maps[4], targets[4])
    assert isinstance(score, float)
    assert score == pytest.approx(expected[request.node.callspec.id][4].item(), rel=1e-4, abs=1e-6)


@every_metric
def test_numpy_is_torch(case, metric, expected, request):
    model, *arrays = case
    scores = metric(model, *(array.numpy() for array in arrays), reduction="none")
    assert isinstance(scores, np.ndarray)
    np.testing.assert_array_equal(scores, expected[request.node.callspec.id].numpy())


@every_metric
def test_a_constant_map_is_undefined_and_no_other(case, metric, expected, request):
    name = request.node.callspec.id
    undefined = expected[name].isnan().tolist()
    if name.startswith("infidelity") or metric is completeness_error:  # asks for no rank: only a zero map says nothing
        assert not any(undefined)
        model, images, _, targets = case
        assert math.isnan(metric(model, images[:1], torch.zeros(1, 6, 5), targets[:1]))
    else:
        assert undefined == [i == 2 for i in range(7)]
    assert metric(*case) == pytest.approx(np.nanmean(expected[name]), rel=1e-12)


@by_rank
def test_scaling_the_map_changes_no_rank(case, metric):
    model, images, maps, targets = case
    maps = maps.clone()
    maps[2, 0, 0] = 2.0
    scores = metric(model, images, maps, targets, reduction="none")
    for scale in (1e-30, 4.0, 1e30):  # infidelity looks for the best scale itself
        np.testing.assert_allclose(metric(model, images, maps * scale, targets, reduction="none"), scores, **TOLERANCE)


@every_metric
def test_scores_lie_in_the_range(case, metric, expected, request):
    low, high = metric.func.info.range if isinstance(metric, partial) else metric.info.range
    scores = expected[request.node.callspec.id]
    defined = scores[~scores.isnan()]
    assert len(defined) >= 6
    assert ((defined >= low - 1e-9) & (defined <= high + 1e-9)).all()


@every_metric
def test_the_model_comes_back_as_it_was(case, metric):
    model, images, maps, targets = case
    model = copy.deepcopy(model).train()
    model[2].eval()
    called = []
    model[0].register_forward_hook(lambda *_: called.append(1))
    model[-1].weight.grad = torch.ones_like(model[-1].weight)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    strides = [parameter.stride() for parameter in model.parameters()]
    random_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    metric(model, images, maps, targets)
    assert called
    assert [module.training for module in model] == [True, True, False, *[True] * 5]
    assert len(model[0]._forward_hooks) == 1
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert [parameter.stride() for parameter in model.parameters()] == strides
    assert model[-1].weight.grad.unique().tolist() == [1.0]
    assert model[0].weight.grad is None
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


@every_metric
def test_the_mode_is_restored_when_the_model_fails(case, metric):
    _, images, maps, targets = case

    class Failing(nn.Module):
        def forward(self, images):
            raise RuntimeError("no such luck")

    model = Failing().train()
    with pytest.raises(ValueError, match=r"cannot take images of shape .*: no such luck"):
        metric(model, images, maps, targets)
    assert model.training


@every_metric
def test_inference_tensors_are_welcome(case, metric, expected, request):
    model, *arrays = case
    with torch.inference_mode():
        scores = metric(model, *(array.clone() for array in arrays), reduction="none")
    np.testing.assert_allclose(scores, expected[request.node.callspec.id], **TOLERANCE)
