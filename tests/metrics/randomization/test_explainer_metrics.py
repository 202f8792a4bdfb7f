"""What every metric that asks the explainer promises: whatever the batch, the sample's score; and clear errors."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from oracles.simple_explainers import constant, nothing, saliency

from xaibench.explainers import explain
from xaibench.metrics import (
    data_consistency,
    efficient_mprt,
    parameter_randomization,
    random_logit,
    sensitivity_max,
    smooth_mprt,
)

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
METRICS = {
    "data_consistency": partial(data_consistency, n_samples=4),
    "data_consistency, relative": partial(data_consistency, n_samples=4, relative=True),
    "sensitivity_max": partial(sensitivity_max, n_samples=4, radius=0.2),
    "parameter_randomization": parameter_randomization,
    "smooth_mprt": partial(smooth_mprt, n_samples=2),
    "efficient_mprt": efficient_mprt,
    "random_logit": random_logit,
    "random_logit, spearman": partial(random_logit, similarity="spearman"),
}
#: Those that ask how alike two maps are: of a map that knows nothing, they are the same.
ALIKE = [metric for name, metric in METRICS.items() if name.startswith(("parameter", "smooth", "random"))]
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


@every_metric
def test_the_best_and_the_undefined(small_case, metric):
    _, model, images, targets = small_case
    score = metric(constant, model, images, targets)
    # A map that knows nothing does not change: consistent and insensitive, but it fails the sanity check.
    assert score == pytest.approx(1.0 if metric in ALIKE else 0.0, abs=1e-12)
    if metric is METRICS["data_consistency"]:
        assert metric(nothing, model, images, targets) == 0
    else:
        assert math.isnan(metric(nothing, model, images, targets))


@every_metric
def test_the_stated_output_is_the_one_that_is_explained(small_case, metric):
    output = "logit"
    _, model, images, targets = small_case
    method = partial(explain, "saliency", device="cpu", progress=False)
    expected = metric(partial(method, output=output), model, images, targets, reduction="none")
    scores = metric(method, model, images, targets, output=output, reduction="none")
    assert torch.equal(scores, expected)
    assert torch.equal(
        metric(partial(method, output=output), *small_case[1:], output=output, reduction="none"), expected
    )
    assert not torch.equal(scores, metric(method, model, images, targets, reduction="none"))
    with pytest.raises(ValueError, match="output='probability'"):
        metric(partial(method, output="probability"), model, images, targets, output=output)


@every_metric
def test_an_explainer_without_a_parameter_for_the_output_is_called_as_before(small_case, metric):
    assert metric(*small_case, output="logit") == metric(*small_case)


@every_metric
def test_one_undefined_sample_leaves_the_others_alone(small_case, metric):
    _, model, images, targets = small_case
    scores = metric(saliency, model, images, targets, reduction="none")

    def failing(model, images, targets):
        maps = saliency(model, images, targets)
        maps[1] = 0
        return maps

    with_zero = metric(failing, model, images, targets, reduction="none")
    keep = torch.tensor([0, 2, 3])
    assert torch.equal(with_zero[keep], scores[keep])
    if metric is not METRICS["data_consistency"]:
        assert with_zero[1].isnan()


@every_metric
def test_batches_change_nothing(small_case, metric):
    explainer, model, images, targets = small_case
    whole = metric(*small_case, reduction="none")
    assert whole.shape == (4,)
    order = torch.tensor([2, 0, 3, 1])
    moved = metric(explainer, model, images[order], targets[order], reduction="none")
    np.testing.assert_allclose(moved, whole[order], rtol=1e-7)
    for size in (1, 3):
        np.testing.assert_allclose(metric(*small_case, batch_size=size, reduction="none"), whole, rtol=1e-7)
    alone = metric(explainer, model, images[2], targets[2])
    assert alone == pytest.approx(whole[2].item(), rel=1e-7)
    assert metric(*small_case) == pytest.approx(whole.mean().item(), rel=1e-12)
    arrays = metric(explainer, model, images.numpy(), targets.numpy(), reduction="none")
    assert isinstance(arrays, np.ndarray)
    np.testing.assert_array_equal(arrays, whole.numpy())


@every_metric
def test_the_model_is_safe_from_the_explainer(small_case, metric):
    _, model, images, targets = small_case
    model = copy.deepcopy(model).train()
    state = copy.deepcopy(model.state_dict())
    random_state = torch.get_rng_state()
    modes = []

    def vandal(lent, images, targets):
        modes.append(lent.training)
        maps = saliency(lent, images, targets)
        lent(images).sum().backward()
        lent[0].register_forward_hook(lambda *_: None)
        lent[3].weight.data.zero_()
        return maps

    metric(vandal, model, images, targets)
    assert not any(modes)
    assert model.training
    assert not model[0]._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


@every_metric
def test_gradients_are_there_whatever_the_caller_does(small_case, metric):
    whole = metric(*small_case)
    with torch.inference_mode():
        assert metric(*small_case) == whole
    with torch.no_grad():
        assert metric(*small_case) == whole
