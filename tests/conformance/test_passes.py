"""Every explainer states its passes, and they are those that go through the network; and none exceeds its budget."""

import contextlib
import dataclasses
import functools
import re

import pytest
import torch
from explainer_trials import CASE, NAMES, maps_of, network

from xaibench.explainers import EXPLAINERS, build, explain
from xaibench.explainers.propagation import deeplift
from xaibench.explainers.propagation.forward_trace import OperationInterceptor
from xaibench.explainers.shared.passes import Adjustable, passes_of
from xaibench.kernels.pixel_updates.first_layer import FlatLinear
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses
from xaibench.network.explained_output import ExplainedOutput

ADJUSTABLE = [name for name in NAMES if isinstance(build(name), Adjustable)]
every_explainer = pytest.mark.parametrize("name", NAMES)
every_adjustable = pytest.mark.parametrize("name", ADJUSTABLE)
#: What is chosen within a budget; other parameters stay.
COUNTS = {"n_samples", "n_steps", "n_baselines", "n_designs", "n_masks", "stride", "window"}
#: Of Sobol's indices two points at 65 passes each are the fewest.
BUDGET = 150


@pytest.fixture(autouse=True)
def whole_passes(monkeypatch):
    """What small networks carry on from row to row stands for rows; without it, they are there to be counted."""
    for kind in (IncrementalPasses, FlatLinear):
        monkeypatch.setattr(kind, "find", lambda *given: None)


#: What checks the trace of a network is no pass of the method.
PAUSED = [False]


@contextlib.contextmanager
def paused(*_):
    PAUSED[0] = True
    try:
        yield
    finally:
        PAUSED[0] = False


@pytest.fixture(autouse=True)
def uncounted_checks(monkeypatch):
    plain = OperationInterceptor.plain_outputs

    def outputs(self, images):
        with paused():
            return plain(self, images)

    monkeypatch.setattr(OperationInterceptor, "plain_outputs", outputs)
    monkeypatch.setattr(deeplift, "_uncounted", paused)


def images_of(count):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(count) % 2


#: What goes back from within the network too: seen where the last layer begins, where all that goes back comes by.
FROM_WITHIN = {"ig2"}


def counted(name, count, **settings):
    """Rows that went forward, and back, when so many images were explained."""
    model, seen = network(CASE[name].network), []

    def look(module, inputs, outputs):
        if PAUSED[0]:
            return
        seen.append(len(outputs))
        begins = before[-1] if name in FROM_WITHIN else outputs
        if begins.requires_grad:
            begins.register_hook(lambda gradient: None if PAUSED[0] else seen.append(len(gradient)))

    before = []
    [last] = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1:]
    last.register_forward_pre_hook(lambda module, inputs: before.append(inputs[0]))

    model.register_forward_hook(look)
    maps_of(name, model, *images_of(count), **settings)
    return sum(seen)


@functools.cache
def each(name, **settings):
    """Passes for an image more: what is looked up once, however many there are, is not among them."""
    return (counted(name, 4, **settings) - counted(name, 2, **settings)) / 2


def part_of(name):
    own = {field.name for field in dataclasses.fields(build(name))}
    return build(name, **{key: value for key, value in CASE[name].parameters.items() if key in own})


def stated(part, name):
    return passes_of(part, images_of(1)[0].double(), ExplainedOutput(network(CASE[name].network).double()))


def counts(part):
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.name in COUNTS}


@every_explainer
def test_the_passes_are_those_that_go_through_the_network(name):
    measured, declared = each(name), stated(part_of(name), name)
    assert measured == declared, (
        f"{name}: {measured:g} passes per image, but it declares {declared} (ExplainerInfo passes=)"
    )


def test_passes_that_are_not_stated_are_seen(monkeypatch):
    monkeypatch.setattr(EXPLAINERS.resolve("smoothgrad"), "each", 1)  # as if the way back cost nothing
    assert each.__wrapped__("smoothgrad") == 2 * stated(part_of("smoothgrad"), "smoothgrad")


def test_what_samples_or_steps_can_be_given_a_budget():
    assert {name for name in NAMES if counts(build(name))} == set(ADJUSTABLE)


@every_adjustable
def test_a_budget_is_kept_and_the_next_count_would_exceed_it(name):
    images, _ = images_of(3)
    part = part_of(name).within(BUDGET, images)
    assert each(name, budget=BUDGET) == stated(part, name) <= BUDGET
    assert part.within(BUDGET, images) == part
    if name == "occlusion":
        assert part.stride == 1  # nothing is finer
        return
    (counted,) = {type(part).counted}
    more = getattr(part, counted) * 2 if name == "sobol" else getattr(part, counted) + 1
    assert stated(dataclasses.replace(part, **{counted: more}), name) > BUDGET


@every_adjustable
def test_maps_within_a_budget_are_those_of_the_count_by_hand(name):
    model, (images, targets) = network(CASE[name].network), images_of(3)
    by_hand = counts(part_of(name).within(BUDGET, images))
    maps = maps_of(name, model, images, targets, budget=BUDGET)
    given = {key: value for key, value in CASE[name].parameters.items() if key not in by_hand}
    assert torch.equal(maps, maps_of(name, model, images, targets, **given | by_hand))


@every_explainer
def test_a_budget_that_does_not_suffice_says_what_would(name):
    model, (images, targets) = network(CASE[name].network), images_of(3)
    told, needed = re.compile(r"got budget=\d+, expected at least (\d+)"), 0
    if stated(part_of(name), name):
        with pytest.raises(ValueError, match=told) as caught:
            maps_of(name, model, images, targets, budget=0)
        needed = int(told.search(str(caught.value))[1])
        with pytest.raises(ValueError, match=told):
            maps_of(name, model, images, targets, budget=needed - 1)
    assert each(name, budget=needed) <= needed
    assert maps_of(name, model, images, targets, budget=needed).isfinite().all()


def test_superpixels_of_an_image_decide_its_permutations_and_no_others():
    images = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images[2:] = 0.5  # flat ones fall into more superpixels than noise
    part = build("shapley_sampling", feature_mask="slic", n_segments=30)
    assert part.features(images).counts == (23, 15, 35, 35)
    assert [part.within(80, images[which]).n_samples for which in part.alike(images)] == [5, 3, 2]
    model, targets = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 144, 2)), torch.arange(4) % 2
    maps = explain(part, model, images, targets, budget=80, device="cpu")
    for place in range(4):
        one = slice(place, place + 1)
        alone = explain(part.within(80, images[one]), model, images[one], targets[one], device="cpu")
        torch.testing.assert_close(maps[one], alone)


def test_what_states_nothing_is_stopped_when_it_has_spent_it():
    def greedy(model, images, targets):
        for _ in range(5):
            outputs = model(images)
        return images[:, 0] * outputs.sum()

    images, targets = images_of(3)
    assert explain(greedy, network(), images, targets, budget=5).shape == (3, 8, 8)
    with pytest.raises(ValueError, match="greedy: got a budget of 12 passes for these images, expected more"):
        explain(greedy, network(), images, targets, budget=4)
