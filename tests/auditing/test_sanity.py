"""Sanity checks find maps that ignore the network or the class, and those that change by chance."""

import itertools

import numpy as np
import pytest
import torch
from oracles.tag_network import SIDE, edges, tag_network, tagged_images
from torch import nn

from xaibench.auditing.images import make_subject
from xaibench.auditing.plan import Candidates, Task
from xaibench.auditing.sanity import (
    SanityCheck,
    agreement,
    check_sanity,
    choose_images,
    divide_pixels,
    sanity_tasks,
    similarity,
)
from xaibench.metrics.shared.explainer_calls import randomized_copy


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
    candidates = Candidates(explainers, dict.fromkeys(explainers, 10), controls=())
    tasks = sanity_tasks(subject, 0, repeats)
    maps = candidates.explain(subject, [Task("images", [(subject.model, subject.images, subject.targets)]), *tasks])
    return {check.key: check for check in check_sanity(subject, candidates, maps, tasks, 16)}


def linear_network(classes=3):
    """Random weights for every pixel."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, classes))
    generator = torch.Generator().manual_seed(0)
    network[1].weight.data = torch.randn(classes, SIDE * SIDE, generator=generator)
    network[1].bias.data.zero_()
    return network


def needs_original(model, images, targets):
    if model.network[1].weight[0, 0] != linear_network()[1].weight[0, 0]:
        raise ValueError("other weights")
    return images[:, 0]


@pytest.fixture(scope="module")
def checks():
    explainers = {"ig": "integrated_gradients", "edges": edges, "noise": noise, "one class": of_the_network_only}
    return sanity_checks(linear_network(), tagged_images(8)[0], explainers | {"original": needs_original})


def failing(check):
    return {label for label in check.values if check.has_failed(label)}


def test_maps_that_ignore_what_changes_fail_and_those_that_change_by_chance(checks):
    assert {key: failing(check) for key, check in checks.items()} == {
        "weights": {"edges"},
        "class": {"edges", "one class", "original"},
        "image": set(),  # nobody fails because the network looks at one place
        "seed": {"noise"},
        "noise": {"noise"},
        "completeness": set(),
    }
    assert checks["image"].mean("one class") == pytest.approx(1.0)
    assert set(checks["completeness"].values) == {"ig"}


def test_an_explainer_that_fails_on_the_copy_is_tested_otherwise(checks):
    assert checks["weights"].reasons == {"original": "other weights"}
    assert "original" not in checks["weights"].values
    assert checks["noise"].mean("original") > 0.9


def disc(share=0.37):
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    distance = (rows - (SIDE - 1) / 2) ** 2 + (columns - (SIDE - 1) / 2) ** 2
    return (distance <= share * SIDE**2 / torch.pi).float()


class Disc(nn.Module):
    """A network that sees a disc in the middle only."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        return self.network(images * disc())


class Brightness(nn.Module):
    """The mean brightness of the image, or of its corner, decides."""

    def __init__(self, side=SIDE):
        super().__init__()
        self.side, self.layer = side, nn.Linear(1, 3)
        self.layer.weight.data, self.layer.bias.data = torch.tensor([[-2.0], [0.5], [2.0]]), torch.zeros(3)

    def forward(self, images):
        return self.layer(images[..., : self.side, : self.side].mean((1, 2, 3))[:, None])


EXACT = {"ig": "integrated_gradients", "ixg": "input_x_gradient", "occlusion": "occlusion"}


@pytest.mark.parametrize("where", ["background", "network", "digits"])
def test_maps_that_are_zero_on_most_of_the_image_are_not_alike(where):
    images = tagged_images(8)[0] + 0.6
    if where == "digits":  # 95 % zeros
        images = images * (disc(0.05) > 0)
    elif where == "background":
        images = images * disc()
    network = Disc(linear_network()) if where == "network" else linear_network()
    checks = sanity_checks(network, images, EXACT | {"edges": edges})
    for label in ("ig", "ixg"):
        assert checks["weights"].mean(label) < 0.6
    assert not {*EXACT} & {label for check in checks.values() for label in failing(check)}
    assert failing(checks["weights"]) == {"edges"}


@pytest.mark.parametrize("side", [SIDE, SIDE // 2])
def test_a_network_that_is_the_same_with_all_weights_refutes_nothing(side):
    images = tagged_images(8)[0] + 0.6
    checks = sanity_checks(Brightness(side), images, EXACT | {"edges": edges})
    assert checks["weights"].mean("ixg") > 0.99
    assert failing(checks["weights"]) == set()
    assert not {*EXACT} & failing(checks["class"])
    assert checks["weights"].reasons["ixg"].startswith("cannot be told from the architecture")


def test_images_of_one_patient_count_once():
    images, groups = tagged_images(9)[0], [7, 7, 3, 7, 1, 3, 2, 9, 5]
    subject = make_subject(linear_network(), images, groups=groups)
    assert choose_images(subject, 6).tolist() == [0, 2, 4, 6, 7, 8]
    check = sanity_checks(linear_network(), images, {"ig": "integrated_gradients"}, groups=groups)["noise"]
    assert check.mean("ig") > 0.9  # the maps before and after are of the same images


def test_regions_divide_what_is_not_black():
    image = torch.rand(2, 12, 10) * (torch.arange(10) < 4)
    numbers = divide_pixels(image, 8)
    assert (numbers[:, 4:] == -1).all()
    assert numbers[:, :4].unique(return_counts=True)[1].tolist() == [6] * 8
    for number in range(8):  # compact: none is longer than 3 pixels
        points = (numbers == number).nonzero()
        assert (points.amax(0) - points.amin(0)).max() <= 2
    assert divide_pixels(torch.zeros(1, 4, 4), 8).unique().tolist() == [-1]


def test_the_p_value_is_that_of_all_signs():
    values = np.array([0.9, 0.8, 1.0, 0.7, 0.95])
    yardstick = np.array([0.1, 0.5, 0.3, 0.75, np.nan])
    check = SanityCheck("w", "w", "", "", 0.5, "above", {"a": values}, "refuted", {"a": values}, {"a": yardstick})
    assert np.isnan(check.p("a"))  # four images
    yardstick[4] = 0.6
    excess = values - yardstick - 0.1
    larger = sum(np.dot(signs, excess) >= excess.sum() - 1e-12 for signs in itertools.product((1, -1), repeat=5))
    assert check.p("a") == larger / 32


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_similarity_is_spearmans_where_a_map_is_not_zero(share):
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    first, second = (torch.from_numpy(rng.normal(size=(2, 8, 8)) * (rng.random((2, 8, 8)) < share)) for _ in range(2))
    expected = []
    for one, other in zip(first, second, strict=True):
        used = (one != 0) | (other != 0)
        expected.append(spearmanr(one[used], other[used]).statistic)
    assert similarity(first, second, magnitude=False) == pytest.approx(expected)
    assert similarity(first, -first, magnitude=True) == pytest.approx([1.0] * 2)
    few = torch.zeros(1, 8, 8)
    few[0, 0, :7] = torch.arange(7) + 1
    assert np.isnan(similarity(few, few, magnitude=False)).all()
    table = agreement({"a": first, "b": second}, ["a", "b"])[0]
    assert table[0, 1] == pytest.approx(similarity(first, second, magnitude=True).mean())


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
