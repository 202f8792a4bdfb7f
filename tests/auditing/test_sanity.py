"""Sanity checks find maps that ignore the network or the class, and those that change by chance."""

import numpy as np
import pytest
import torch
from oracles.tag_network import SIDE, edges, tag_network, tagged_images
from torch import nn

from xaibench.auditing.candidates import Candidates, Task
from xaibench.auditing.images import make_subject
from xaibench.auditing.sanity import (
    agreement,
    check_sanity,
    randomized_copy,
    sanity_tasks,
    similarity,
)


def noise(model, images, targets):
    """Another map at every call."""
    noise.calls += 1
    return torch.rand(images.shape[0], *images.shape[2:], generator=torch.Generator().manual_seed(noise.calls))


noise.calls = 0


def of_the_network_only(model, images, targets):
    """The weights of the first class, whatever is asked."""
    weights = model.network[1].weight[0].reshape(images.shape[2:])
    return weights.detach().expand(len(images), -1, -1).clone()


def sanity_checks(network, images, explainers, repeats=6, **given):
    """All checks of explainers on images, by key."""
    subject = make_subject(network, images, **given)
    candidates = Candidates(explainers, dict.fromkeys(explainers, 10))
    tasks = sanity_tasks(subject, 0, repeats)
    wanted = lambda label: [task for task in tasks if candidates.explains(label, task)]  # noqa: E731
    own = Task("images", [(subject.model, subject.images, subject.targets)])
    maps = {
        label: candidates.compute(label, [own, *wanted(label)], subject.stored, lambda count: None)
        for label in explainers
    }
    return {check.key: check for check in check_sanity(subject, candidates, maps, tasks, 16)}


def linear_network(classes=3):
    """Random weights for every pixel."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, classes))
    generator = torch.Generator().manual_seed(0)
    network[1].weight.data = torch.randn(classes, SIDE * SIDE, generator=generator)
    network[1].bias.data.zero_()
    return network


@pytest.fixture(scope="module")
def checks():
    explainers = {"ig": "integrated_gradients", "edges": edges, "noise": noise, "one class": of_the_network_only}
    return sanity_checks(linear_network(), tagged_images(8)[0], explainers)


def failing(check):
    return {label for label in check.values if check.has_failed(label)}


def test_a_map_that_ignores_the_network_fails(checks):
    assert failing(checks["weights"]) == {"edges"}


def test_a_map_that_ignores_the_class_fails(checks):
    assert failing(checks["class"]) == {"edges", "one class"}


def test_a_map_that_changes_with_every_call_fails(checks):
    assert failing(checks["seed"]) == {"noise"}
    assert failing(checks["noise"]) == {"noise"}


def test_nobody_fails_because_the_network_looks_at_one_place(checks):
    assert failing(checks["image"]) == set()
    assert checks["image"].mean("one class") == pytest.approx(1.0)


def test_integrated_gradients_add_up(checks):
    assert set(checks["completeness"].values) == {"ig"}
    assert failing(checks["completeness"]) == set()


def test_similarity_is_spearmans():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    first, second = (torch.from_numpy(rng.normal(size=(3, 4, 5))) for _ in range(2))
    found = similarity(first, second, magnitude=False)
    expected = [spearmanr(a.flatten(), b.flatten()).statistic for a, b in zip(first, second, strict=True)]
    assert found == pytest.approx(expected)
    assert similarity(first, -first, magnitude=True) == pytest.approx([1.0] * 3)


def test_agreement_is_the_mean_over_pairs():
    maps = {name: torch.rand(4, 6, 6, generator=torch.Generator().manual_seed(i)) for i, name in enumerate("abc")}
    table, each = agreement(maps, list("abc"))
    pairs = [similarity(maps[one], maps[other], magnitude=True) for one, other in ("ab", "ac", "bc")]
    assert each == pytest.approx(np.mean(pairs, axis=0))
    assert table[0, 1] == pytest.approx(pairs[0].mean())
    assert np.isnan(agreement(maps, ["a"])[1]).all()


def test_a_randomized_copy_leaves_the_network_alone():
    network = tag_network()
    before = network[1].weight.clone()
    copied = randomized_copy(network, 0)
    assert torch.equal(network[1].weight, before)
    assert not torch.equal(copied[1].weight, before)
