import copy
import math
from functools import partial

import captum.attr
import captum.metrics
import numpy as np
import pytest
import torch
from oracles import robustness as oracle
from oracles.networks import batch, small_cnn
from torch import nn

from xaibench.metrics.robustness import data_consistency, parameter_randomisation, sensitivity_max
from xaibench.metrics.samples import draw

METRICS = {
    "data_consistency": partial(data_consistency, n_samples=4),
    "data_consistency, relative": partial(data_consistency, n_samples=4, relative=True),
    "sensitivity_max": partial(sensitivity_max, n_samples=4, radius=0.2),
    "parameter_randomisation": parameter_randomisation,
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


def saliency(model, images, targets):
    images = images.detach().requires_grad_()
    outputs = model(images).softmax(1).gather(1, targets[:, None])
    return torch.autograd.grad(outputs.sum(), images)[0].sum(1)


def constant(model, images, targets):
    """A control: knows neither model nor image."""
    return torch.arange(images.shape[-2] * images.shape[-1]).reshape(1, *images.shape[-2:]).expand(len(images), -1, -1)


def nothing(model, images, targets):
    return torch.zeros(len(images), *images.shape[-2:])


@pytest.fixture(scope="module")
def case():
    images, _, targets = batch(n=4, size=(6, 5))
    return saliency, small_cnn().double(), images.double(), targets


def test_data_consistency_mask_by_mask(case):
    _, model, images, targets = case
    scores = data_consistency(*case, fraction=0.25, n_samples=3, seed=2, reduction="none")
    relative = data_consistency(*case, fraction=0.25, n_samples=3, seed=2, relative=True, reduction="none")
    original, changed = saliency(model, images, targets), []
    for index in range(3):
        hidden = images.clone()
        for pixel in draw(2, index).permutation(30)[:8]:
            hidden[:, :, pixel // 5, pixel % 5] = 0
        changed.append(saliency(model, hidden, targets).numpy())
    for i, one in enumerate(original.numpy()):
        expected = oracle.mean_change(one, [maps[i] for maps in changed])
        assert scores[i] == pytest.approx(expected, rel=1e-9)
        assert relative[i] == pytest.approx(expected / np.abs(one).mean(), rel=1e-9)


def test_sensitivity_draw_by_draw_and_as_captum_has_it(case):
    _, model, images, targets = case
    scores = sensitivity_max(*case, radius=0.3, n_samples=5, seed=4, reduction="none")
    noise = [torch.from_numpy(draw(4, index).uniform(-0.3, 0.3, (2, 6, 5))) for index in range(5)]
    original = saliency(model, images, targets).numpy()
    changed = [saliency(model, images + delta, targets).numpy() for delta in noise]
    expected = [oracle.largest_change(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)

    @torch.enable_grad()
    def explain(inputs, target):  # a tuple of one at first, then a tensor; Captum compares tuples
        return (saliency(model, inputs[0] if isinstance(inputs, tuple) else inputs, target),)

    theirs = captum.metrics.sensitivity_max(
        explain,
        images,
        # Captum repeats each image five times in a row.
        perturb_func=lambda inputs: inputs + torch.stack(noise).repeat(4, 1, 1, 1),
        n_perturb_samples=5,
        target=targets,
    )
    np.testing.assert_allclose(scores, theirs, rtol=1e-6)


def test_parameter_randomisation_layer_by_layer(case):
    _, model, images, targets = case
    scores, curves = parameter_randomisation(*case, reduction="none", return_curves=True)
    twin, changed, untouched = copy.deepcopy(model), [], []
    with torch.random.fork_rng():
        for index, layer in enumerate([twin[7], twin[3], twin[1], twin[0]]):  # what has parameters, from the top
            torch.manual_seed(int(draw(0, index).integers(2**63)))
            layer.reset_parameters()
            changed.append(saliency(twin, images, targets).detach().numpy())
            untouched.append(torch.equal(twin[0].weight, model[0].weight))
    assert untouched == [True, True, True, False]
    original = saliency(model, images, targets).numpy()
    expected = [oracle.mean_rank_correlation(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert curves.fractions.tolist() == [0.25, 0.5, 0.75, 1.0]
    np.testing.assert_allclose(curves.values.mean(1), scores, rtol=1e-12)
    magnitude = parameter_randomisation(*case, magnitude=True, reduction="none")
    expected = [oracle.mean_rank_correlation(abs(o), [abs(m[i]) for m in changed]) for i, o in enumerate(original)]
    np.testing.assert_allclose(magnitude, expected, rtol=1e-9)


def test_parameters_of_a_module_that_cannot_reset_itself():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(1, 2, 400).reshape(1, 1, 20, 20))

        def forward(self, images):
            return (self.weight * images).flatten(1)

    seen = []

    def weights(model, images, targets):
        seen.append(model.weight.detach().clone()[0])
        return model.weight[0]

    score = parameter_randomisation(weights, Scale(), torch.ones(1, 1, 20, 20), torch.tensor([0]))
    assert abs(score) < 0.2
    assert seen[1].mean() == pytest.approx(1.5, abs=0.05)
    assert seen[1].std() == pytest.approx(seen[0].std().item(), rel=0.15)


@every_metric
def test_the_best_and_the_undefined(case, metric):
    _, model, images, targets = case
    score = metric(constant, model, images, targets)
    # A map that knows nothing does not change: consistent and insensitive, but it fails the sanity check.
    assert score == (1.0 if metric is parameter_randomisation else 0.0)
    if metric is METRICS["data_consistency"]:
        assert metric(nothing, model, images, targets) == 0
    else:
        assert math.isnan(metric(nothing, model, images, targets))


@every_metric
def test_one_undefined_sample_leaves_the_others_alone(case, metric):
    _, model, images, targets = case
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
def test_batches_change_nothing(case, metric):
    explainer, model, images, targets = case
    whole = metric(*case, reduction="none")
    assert whole.shape == (4,)
    order = torch.tensor([2, 0, 3, 1])
    moved = metric(explainer, model, images[order], targets[order], reduction="none")
    np.testing.assert_allclose(moved, whole[order], rtol=1e-7)
    for size in (1, 3):
        np.testing.assert_allclose(metric(*case, batch_size=size, reduction="none"), whole, rtol=1e-7)
    alone = metric(explainer, model, images[2], targets[2])
    assert alone == pytest.approx(whole[2].item(), rel=1e-7)
    assert metric(*case) == pytest.approx(whole.mean().item(), rel=1e-12)
    arrays = metric(explainer, model, images.numpy(), targets.numpy(), reduction="none")
    assert isinstance(arrays, np.ndarray)
    np.testing.assert_array_equal(arrays, whole.numpy())


@every_metric
def test_the_model_is_safe_from_the_explainer(case, metric):
    _, model, images, targets = case
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
def test_gradients_are_there_whatever_the_caller_does(case, metric):
    whole = metric(*case)
    with torch.inference_mode():
        assert metric(*case) == whole
    with torch.no_grad():
        assert metric(*case) == whole


@every_metric
@pytest.mark.parametrize(
    ("explainer", "message"),
    [
        (lambda model, images, targets: images, r"must return maps \[N, H, W\], got \[4, 2, 6, 5\]"),
        (lambda model, images, targets: nothing(model, images, targets) / 0, "maps of the explainer must be finite"),
    ],
)
def test_bad_maps_are_refused(case, metric, explainer, message):
    with pytest.raises(ValueError, match=message):
        metric(explainer, *case[1:])


@every_metric
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"reduction": "max"}, "reduction must be"),
    ],
)
def test_bad_settings_are_refused(case, metric, settings, message):
    with pytest.raises(ValueError, match=message):
        metric(*case, **settings)


def test_bad_input_is_refused(case):
    explainer, model, images, targets = case
    for metric in METRICS.values():
        with pytest.raises(ValueError, match=r"got \[3\] for images \[4, 2, 6, 5\]"):
            metric(explainer, model, images, targets[:3])
        with pytest.raises(ValueError, match="images must be finite"):
            metric(explainer, model, images / 0, targets)
        with pytest.raises(TypeError, match=r"functools.partial\(xaibench.explain, name\)"):
            metric("saliency", model, images, targets)
    for settings, message in (({"fraction": 0}, "fraction"), ({"n_samples": 0}, "n_samples")):
        with pytest.raises(ValueError, match=f"^{message} must"):
            data_consistency(*case, **settings)
    with pytest.raises(ValueError, match="radius must be"):
        sensitivity_max(*case, radius=math.inf)
    with pytest.raises(ValueError, match="Flatten has no parameters"):
        parameter_randomisation(constant, nn.Flatten(), images, targets)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        parameter_randomisation(constant, lambda x: x, images, targets)


def test_extreme_maps_keep_their_scores(case):
    _, model, images, targets = case
    expected = sensitivity_max(*case)
    for scale in (1e-300, 1e300):
        scaled = sensitivity_max(lambda *args, s=scale: saliency(*args) * s, model, images, targets)
        assert scaled == pytest.approx(expected, rel=1e-9)


def test_captums_saliency_as_an_explainer(case):
    def theirs(model, images, targets):
        method = captum.attr.Saliency(lambda x: model(x).softmax(1))
        return method.attribute(images.requires_grad_(), target=targets, abs=False).sum(1)

    assert sensitivity_max(theirs, *case[1:]) == pytest.approx(sensitivity_max(*case), rel=1e-6)
