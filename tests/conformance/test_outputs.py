"""Every explainer and every metric that calls the model knows every output and every kind of targets.

Each is held to another way to compute the same: the sigmoid of z is the softmax of (0, z), a function that selects a
logit is that logit, and multi-hot targets are their labels one after the other.
"""

import copy
import functools
import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from explainer_trials import CASE, NAMES, maps_of, pooled_network, training_batch
from part_cases import MetricCase, case
from torch import nn

from xaibench import explain, models
from xaibench.explainers import EXPLAINERS, UnsupportedModelError, build, gradient_free, label_pairs
from xaibench.metrics import METRICS

INFOS = {name: EXPLAINERS.resolve(name).info for name in NAMES}
#: A global mean is computed by fit, where the output is a parameter of its own.
EVERY = [name for name in NAMES if not INFOS[name].control and name != "global_mean"]
FROM_LOGITS = [name for name in EVERY if getattr(EXPLAINERS.resolve(name), "explains_only", False)]
every_explainer = pytest.mark.parametrize("name", EVERY)
every_metric = pytest.mark.parametrize(
    "name", [n for n in METRICS if METRICS.resolve(n).info.kind in ("model", "explainer")]
)

LABEL = 2


def network(name, classes=4):
    """A network that the explainer supports, whose logits differ between labels and have both signs."""
    return shared_network(CASE[name].network if name in CASE else "cnn", classes)


@functools.cache
def shared_network(kind, classes):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if kind == "pooled":
            model = pooled_network(classes)
        else:
            built = models.build("vit" if ":" in kind else kind, (1, 8, 8), max(classes, 2), seed=3)
            model = nn.Sequential(built, nn.Linear(max(classes, 2), classes)) if classes == 1 else built
            for parameter in model.parameters():
                parameter.data += 0.1 * torch.randn_like(parameter)
    return model.double().eval()


class Then(nn.Module):
    """A network followed by a function of its outputs."""

    def __init__(self, network, function):
        super().__init__()
        self.network, self.function = network, function

    def forward(self, x):
        return self.function(self.network(x))


def two_classes(z):
    return torch.stack([torch.zeros_like(z), z], 1)


def make_images():
    return torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64).clamp(-1, 1)


@pytest.fixture
def images():
    return make_images()


@functools.cache
def known_maps(name, output=None):
    """The maps of the label for these images, computed once for all tests."""
    return maps_of(name, network(name), make_images(), LABEL, output=output)


def close(maps, expected):
    torch.testing.assert_close(maps, expected, rtol=1e-7, atol=1e-7 * expected.abs().max().item() + 1e-300)


#: FinerCAM compares the target with other classes, so the label among others is another map than with zero alone. So is
#: that of AGOP, which is fitted to all outputs.
@pytest.mark.parametrize("name", [n for n in EVERY if n not in FROM_LOGITS and n not in ("finercam", "agop")])
def test_a_sigmoid_is_the_softmax_of_zero_and_the_logit(name, images):
    model = network(name)
    if name == "lrp":  # knows modules only
        select = nn.Linear(4, 2, bias=False).double()
        select.weight.data = torch.eye(4, dtype=torch.float64)[[LABEL, LABEL]] * torch.tensor([[0.0], [1.0]])
        oracle = nn.Sequential(model, select)
    else:
        oracle = Then(model, lambda z: two_classes(z[:, LABEL]))
    output = {"output": "logit"} if name == "cam" else {"output": "probability"}
    expected = maps_of(name, oracle, images, 1, **output)
    close(known_maps(name, "sigmoid"), expected)
    assert (expected != 0).any()


@pytest.mark.parametrize("name", FROM_LOGITS)
def test_what_propagates_from_the_logit_begins_there_for_a_sigmoid(name, images):
    model = network(name)
    expected = known_maps(name, "logit")
    close(known_maps(name, "sigmoid"), expected)
    close(maps_of(name, nn.Sequential(model, nn.Sigmoid()), images, LABEL, output="sigmoid"), expected)
    with pytest.raises(UnsupportedModelError, match=r"sigmoid"):
        maps_of(name, Then(model, torch.sigmoid), images, LABEL, output="sigmoid")


@every_explainer
def test_a_sigmoid_is_not_applied_twice_and_no_softmax_of_it(name, images):
    model = network(name)
    ended = nn.Sequential(model, nn.Sigmoid())
    close(maps_of(name, ended, images, LABEL, output="sigmoid"), known_maps(name, "sigmoid"))
    with pytest.raises(ValueError, match=r"ends in a sigmoid \('1'\), got output=None\. .* Pass output='sigmoid'"):
        maps_of(name, ended, images, LABEL)


@every_explainer
def test_one_output_has_two_classes_under_a_sigmoid(name, images):
    model = network(name, classes=1)
    targets = [0, 1, 1, 0]
    if name == "finercam":
        assert (maps_of(name, model, images, targets, output="sigmoid") != 0).any()
        return
    if name in FROM_LOGITS or name == "cam":
        close(maps_of(name, model, images, 1, output="sigmoid"), maps_of(name, model, images, 0, output="logit"))
        return
    if name == "lrp":
        select = nn.Linear(1, 2, bias=False).double()
        select.weight.data = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        oracle = nn.Sequential(model, select)
    else:
        oracle = Then(model, lambda z: torch.cat([-z, z], 1) / 2)
    found = maps_of(name, model, images, targets, output="sigmoid")
    close(found, maps_of(name, oracle, images, targets, output="probability"))
    if name != "lrp":  # also without the dimension of classes
        close(maps_of(name, Then(model, lambda z: z[:, 0]), images, targets, output="sigmoid"), found)


def test_the_negative_class_of_one_output_is_propagated_from_its_negative_logit(images):
    model = network("lrp_epsilon", classes=1)
    for name in ("lrp_epsilon", "lrp_gamma"):
        one, zero = (maps_of(name, model, images, target, output="sigmoid") for target in (1, 0))
        close(zero, -one)
    for name in ("deep_taylor", "lrp_alpha_beta"):  # contributions to -z are not those to z with another sign
        with pytest.raises(UnsupportedModelError, match="falls where an output of the network rises"):
            maps_of(name, model, images, 0, output="sigmoid")


def never_assigned(model):
    """A class that the model assigns to none of the images that IG2 keeps, so that all of them are references."""
    assigned = model(training_batch()[0].double()).argmax(1)
    return next(k for k in range(4) if (assigned != k).all())


@every_explainer
def test_a_function_that_selects_a_logit_is_that_logit(name, images):
    model = network(name)
    label = never_assigned(model) if name == "ig2" else 3
    if name == "finercam":
        with pytest.raises(UnsupportedModelError, match="two or more classes"):
            maps_of(name, model, images, None, output=lambda z: z[:, label])
        return
    # By default, ShapleyCAM explains a logit and its probability.
    settings = {"utility": "output"} if name == "shapleycam" else {}
    expected = maps_of(name, model, images, label, output="logit", **settings)
    close(maps_of(name, model, images, None, output=lambda z: z[:, label]), expected)
    if name == "agop":  # fitted to the logits, which it does not find below
        return
    # Whatever the network returns.
    inside = Then(model, lambda z: [{"scores": z, "more": z.detach()}, "text"])
    close(maps_of(name, inside, images, None, output=lambda found: found[0]["scores"][:, label]), expected)


@every_explainer
def test_multi_hot_targets_are_their_labels_one_after_the_other(name, images):
    model = network(name)
    targets = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]])
    found = maps_of(name, model, images, targets, output="sigmoid")
    rows, labels = label_pairs(targets)
    assert found.shape == (5, 8, 8)
    close(found, maps_of(name, model, images[rows], labels, output="sigmoid"))
    for same in (targets.bool(), targets.double(), targets.numpy(), targets.tolist()) if name == "saliency" else ():
        assert torch.equal(maps_of(name, model, images, same, output="sigmoid"), found)
    with pytest.raises(ValueError, match=r"multi-hot rows and output=None.* Pass output='sigmoid'"):
        maps_of(name, model, images, targets)


#: What networks of other libraries return.
STRUCTURES = {
    "attribute": lambda z: SimpleNamespace(logits=z, hidden=z.new_zeros(len(z), 3)),
    "entry": lambda z: {"features": z.new_zeros(len(z), 3), "logits": z},
    "only table": lambda z: {"features": z.new_zeros(len(z), 3, 2, 2), "scores": z},
    "tuple": lambda z: (z.new_zeros(len(z), 7, 2, 2), z),
}


@every_explainer
def test_logits_are_found_in_what_the_network_returns(name, images):
    model = network(name)
    expected = known_maps(name)
    for structure in list(STRUCTURES.values())[EVERY.index(name) % 2 :: 2]:  # what finds them is the same for all
        close(maps_of(name, Then(model, structure), images, LABEL), expected)


@every_explainer
def test_a_compiled_network_is_explained_as_the_original(name, images):
    model = network(name)
    compiled = torch.compile(model, backend="eager")
    inside = nn.Sequential(torch.compile(model, backend="eager"))
    place = nn.Sequential(copy.deepcopy(model))
    place.compile(backend="eager")
    expected = known_maps(name)
    for one in (compiled, (inside, place)[EVERY.index(name) % 2]):
        parameters = CASE[name].parameters
        explainer = build(name)
        if hasattr(explainer, "fit"):
            explainer = explainer.fit(model if one is compiled else nn.Sequential(model), [training_batch()])
        close(explain(explainer, one, images, LABEL, device="cpu", **parameters), expected)
    assert isinstance(inside[0], torch._dynamo.OptimizedModule)


@every_explainer
def test_the_list_of_those_without_gradient_is_right(name, images):
    blocked = Then(network(name), lambda z: z.detach())
    if name == "reliance":  # a reference, which is found by its name and listed nowhere
        return
    if name in gradient_free():
        assert maps_of(name, blocked, images, LABEL).isfinite().all()
    else:
        with pytest.raises(UnsupportedModelError) as error:
            maps_of(name, blocked, images, LABEL)
        names = f"needs no gradient: {', '.join(gradient_free())}"
        assert names in str(error.value) or "xaibench.explainers.gradient_free()" in str(error.value)


def call(name, model, images, maps, targets, **settings):
    """Score maps, or an explainer that explains the same output."""
    metric = METRICS.resolve(name)
    parameters = case(METRICS, name, MetricCase()).quick | settings
    if metric.info.kind == "model":
        return np.asarray(metric(model, images, maps, targets, reduction="none", **parameters))
    explainer = functools.partial(explain, "saliency", output=settings.get("output"), device="cpu")
    return np.asarray(metric(explainer, model, images, targets, reduction="none", **parameters))


@pytest.fixture
def scored(images):
    return network("gradcam"), images, torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(2))


@every_metric
def test_metrics_take_the_output(name):
    metric = METRICS.resolve(name)
    default = "logit" if name in ("idsds", "part_rank", "sensitivity_n") else "probability"
    expected = None if metric.info.kind == "explainer" else default  # that of the explainer
    assert inspect.signature(metric).parameters["output"].default == expected


@every_metric
def test_the_score_of_a_sigmoid_is_that_of_the_softmax_of_zero_and_the_logit(name, scored):
    model, images, maps = scored
    oracle = Then(model, lambda z: two_classes(z[:, LABEL]))
    one = torch.full((4,), LABEL)
    if name == "random_logit":  # the other class is another label
        oracle, one = Then(model, lambda z: two_classes(z[:, LABEL])), one
        assert np.isfinite(call(name, model, images, maps, one, output="sigmoid")).all()
        return
    expected = call(name, oracle, images, maps, torch.ones(4, dtype=torch.long), output="probability")
    np.testing.assert_allclose(call(name, model, images, maps, one, output="sigmoid"), expected, rtol=1e-6, atol=1e-9)
    ended = nn.Sequential(model, nn.Sigmoid())
    if METRICS.resolve(name).info.kind == "model":
        np.testing.assert_allclose(
            call(name, ended, images, maps, one, output="sigmoid"), expected, rtol=1e-6, atol=1e-9
        )
        with pytest.raises(ValueError, match=r"ends in a sigmoid, got output='probability'.* Pass output='sigmoid'"):
            call(name, ended, images, maps, one, output="probability")
    assert np.isfinite(expected).any()


@every_metric
def test_one_output_is_scored_as_two_classes(name):
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    maps, model = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(2)), network("gradcam", classes=1)
    oracle = Then(model, lambda z: torch.cat([-z, z], 1) / 2)
    targets = torch.tensor([0, 1, 1, 0])
    expected = call(name, oracle, images, maps, targets, output="probability")
    found = call(name, model, images, maps, targets, output="sigmoid")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@every_metric
def test_the_score_of_a_function_that_selects_a_logit_is_that_of_the_logit(name, scored):
    model, images, maps = scored
    if name == "random_logit":
        with pytest.raises(ValueError, match="at least two classes"):
            call(name, model, images, maps, None, output=lambda z: z[:, LABEL])
        return
    expected = call(name, model, images, maps, torch.full((4,), LABEL), output="logit")
    found = call(name, model, images, maps, None, output=lambda z: z[:, LABEL])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    inside = Then(model, lambda z: [{"scores": z}])
    found = call(name, inside, images, maps, None, output=lambda found: found[0]["scores"][:, LABEL])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@every_metric
def test_multi_hot_targets_are_scored_label_by_label(name, scored):
    model, images, _ = scored
    targets = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]])
    rows, labels = label_pairs(targets)
    maps = torch.randn(5, 8, 8, generator=torch.Generator().manual_seed(2))
    found = call(name, model, images, maps, targets, output="sigmoid")
    np.testing.assert_array_equal(found, call(name, model, images[rows], maps, labels, output="sigmoid"))
    with pytest.raises(ValueError, match=r"multi-hot rows and output='probability'.* Pass output='sigmoid'"):
        call(name, model, images, maps, targets, output="probability")


@every_metric
def test_metrics_find_the_logits_in_what_the_network_returns(name, scored):
    model, images, maps = scored
    targets = torch.full((4,), LABEL)
    expected = call(name, Then(model, lambda z: z), images, maps, targets)
    for structure in STRUCTURES.values():
        found = call(name, Then(model, structure), images, maps, targets)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
