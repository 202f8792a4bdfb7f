"""The test of whether the network is better than chance."""

import numpy as np
import pytest
import torch
from oracles.tag_network import tag_network, tagged_images
from scipy.stats import hypergeom
from torch import nn

from xaibench.auditing.images import make_subject
from xaibench.auditing.network_accuracy import check_network, information, shuffled_copy


def random_network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    ).eval()


def test_a_network_that_fits_its_labels_passes():
    images, labels = tagged_images(24)
    found = check_network(make_subject(tag_network(), images, labels=labels), 0)
    assert (found.by, found.value, found.passed) == ("labels", 1.0, True)
    assert found.expected == pytest.approx(0.5, abs=0.02)


def test_shuffled_labels_do_not_pass():
    images, labels = tagged_images(24)
    shuffled = labels[torch.from_numpy(np.random.default_rng(0).permutation(24))]
    assert not check_network(make_subject(tag_network(), images, labels=shuffled), 0).passed


def test_labels_of_one_class_say_nothing_so_that_weights_are_shuffled():
    images, _ = tagged_images(12)
    found = check_network(make_subject(tag_network(), images, labels=torch.zeros(12, dtype=torch.long)), 0)
    assert found.by == "shuffled weights"
    assert found.passed


def test_random_weights_pass_about_as_often_as_the_level_says():
    images, _ = tagged_images(10)
    p = [check_network(make_subject(random_network(seed), images), seed).p for seed in range(20)]
    assert sum(value <= 0.02 for value in p) <= 2
    assert 0.25 < np.mean(p) < 0.75


def test_several_labels_per_image():
    images, labels = tagged_images(16)
    rows = torch.stack([1 - labels, labels], 1)
    found = check_network(make_subject(tag_network(), images, labels=rows, output="sigmoid"), 0)
    assert found.passed
    assert found.value == 1.0


def test_information_is_that_of_the_answers():
    certain = torch.eye(4, dtype=torch.float64)
    assert information(certain) == pytest.approx(np.log(4))
    assert information(torch.full((4, 4), 0.25)) == 0.0
    half = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    assert information(half) == pytest.approx(np.log(2) + 0.75 * np.log(0.75) + 0.25 * np.log(0.25))


def test_a_shuffled_copy_has_the_same_weights_in_another_order():
    model = random_network(0)
    model[1].running_mean.fill_(0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    copied = shuffled_copy(model, [0, 0], torch.rand(8, 1, 6, 6))
    for one, other in zip(model.parameters(), copied.parameters(), strict=True):
        assert torch.equal(one.flatten().sort().values, other.flatten().sort().values)
    assert not torch.equal(model[0].weight, copied[0].weight)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    # The statistics of the normalization are those of the copy's own activations.
    with torch.no_grad():
        activations = copied[0](torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(copied[1].running_mean, model[1].running_mean)
    assert torch.allclose(copied[1].running_mean, activations.mean((0, 2, 3)), atol=0.3)


def test_images_needed_give_the_test_a_power_of_80_percent():
    images, answers = tagged_images(14)
    labels = torch.where(torch.arange(14) < 3, 1 - answers, answers)
    found = check_network(make_subject(tag_network(), images, labels=labels), 0)
    assert not found.passed
    assert found.images == 14
    assert "11 of 14" in found.text
    assert f"about {found.needed} images" in found.text
    # Of two classes, the permutation test is Fisher's exact test.
    rng, passed = np.random.default_rng(0), 0
    for _ in range(1000):
        truth = rng.permutation(np.arange(found.needed) % 2)
        answered = np.where(rng.random(found.needed) < 11 / 14, truth, 1 - truth)
        both = int((answered & truth).sum())
        passed += hypergeom.sf(both - 1, found.needed, truth.sum(), answered.sum()) <= 0.02
    assert 0.7 < passed / 1000 < 0.9


def test_no_number_of_images_helps_a_network_that_is_not_better_than_chance():
    images, answers = tagged_images(12)
    assert check_network(make_subject(tag_network(), images, labels=1 - answers), 0).needed is None
    assert check_network(make_subject(tag_network(), images, labels=answers), 0).needed is None
