"""Whether the network is better than chance, or would be with other pixels or labels; importance at the border."""

import numpy as np
import pytest
import torch
from oracles.tag_network import tag_network, tagged_images
from scipy.stats import hypergeom
from torch import nn

import xaibench as xb
from xaibench.auditing.findings import (
    check_accuracy,
    find_input_range,
    find_suspicious_images,
    information,
    shuffled_copy,
)
from xaibench.auditing.images import make_subject
from xaibench.auditing.questions import find_decisive_regions

LABELS = torch.tensor([0, 1] * 15)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Brightness(nn.Module):
    """Class 1 if the mean of its input is above a threshold."""

    def __init__(self, threshold):
        super().__init__()
        self.layer = nn.Linear(1, 2)
        with torch.no_grad():
            self.layer.weight[:, 0] = torch.tensor([-1.0, 1.0])
            self.layer.bias[:] = torch.tensor([threshold, -threshold])

    def forward(self, images):
        return self.layer(images.flatten(1).mean(1, keepdim=True))


def bright(channels, dark=0.2, light=0.47):
    noise = np.random.default_rng(0).uniform(-0.02, 0.02, (len(LABELS), channels, 4, 4))
    return (torch.from_numpy(noise) + torch.where(LABELS == 1, light, dark)[:, None, None, None]).float()


def hint(network, images, labels=LABELS, **options):
    return find_input_range(make_subject(network, images, labels=labels, **options))


@pytest.mark.parametrize(
    ("threshold", "channels", "light", "name"),
    [
        (0.0, 3, 0.47, "ImageNet's normalization"),
        (0.0, 1, 0.47, "mean 0 and standard deviation 1"),
        (0.2, 3, 0.62, "pixels from -1 to 1"),
        (100.0, 3, 0.47, "pixels from 0 to 255"),
    ],
)
def test_the_normalization_that_fits_is_named(threshold, channels, light, name):
    text = hint(Brightness(threshold), bright(channels, 0.58 if light == 0.62 else 0.2, light))
    assert f"with {name}, 30 of 30 answers would be right, instead of 15" in text


def test_one_output_and_several_labels():
    class One(Brightness):
        def forward(self, images):
            return super().forward(images)[:, 1:]

    assert "30 of 30" in hint(One(0.0), bright(3), output="sigmoid")
    several = torch.stack([1 - LABELS, LABELS], 1)
    assert "100% of the labels would be right, instead of 50%" in hint(
        Brightness(0.0), bright(3), several, output="sigmoid"
    )


def test_nothing_is_said_where_there_is_no_reason():
    images = bright(3)
    assert hint(Brightness(0.3), images) is None  # right as it is
    assert hint(Brightness(0.0), images, None) is None
    assert hint(Brightness(0.0), images - 0.3) is None  # normalized already
    assert hint(xb.models.Classifier(Brightness(100.0), MEAN, STD), images) is None
    assert hint(Brightness(0.0), images[:8], LABELS[:8]) is None  # 4 images more
    # The other answer to all images is right more often, but tells nothing.
    assert hint(Brightness(1.0), images, torch.tensor([0] * 3 + [1] * 27)) is None


def findings_of(subject, maps=()):
    """The texts and images of the findings, by key."""
    nothing = find_decisive_regions(subject, 1, np.random.default_rng(0))
    unknown = np.full(len(subject.images), np.nan)
    found = find_suspicious_images(subject, dict(maps), list(dict(maps)), unknown, nothing)
    return {finding.key: finding for finding in found}


def test_other_pixels_are_a_finding():
    found = findings_of(make_subject(Brightness(0.0), bright(3), labels=LABELS))
    assert "ImageNet's normalization" in found["normalization"].text


def test_a_better_assignment_of_the_labels_is_named():
    images, labels = tagged_images(20)
    names = {"label_names": {"folder a": 1, "folder b": 0}, "classes": ["tagged", "plain"]}
    text = findings_of(make_subject(tag_network(), images, labels=1 - labels, **names))["labels"].text
    assert "20 of 20" in text
    assert "instead of 0" in text
    assert "folder a: output 0 instead of 1" in text


def test_no_assignment_is_named_where_chance_explains_it():
    images, labels = tagged_images(20)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(labels))
    # A network that always gives the first answer would be right more often about the more frequent label.
    constant = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    constant[1].weight.data.zero_()
    constant[1].bias.data = torch.tensor([1.0, 0.0])
    rare = torch.tensor([0] * 2 + [1] * 18)
    for network, shown, given in (
        (tag_network(), images, labels),
        (tag_network(), images, shuffled),
        (constant, torch.rand(20, 1, 4, 4), rare),
    ):
        assert "labels" not in findings_of(make_subject(network, shown, labels=given))


def test_importance_in_the_first_slices_is_at_the_border():
    maps = torch.zeros(15, 8, 10, 12)
    maps[:, 4, 5, 6] = 1
    maps[3, 0, 5, 6] = 9
    network = nn.Sequential(nn.Flatten(), nn.Linear(960, 2))
    subject = make_subject(network, torch.zeros(15, 1, 8, 10, 12))
    assert list(findings_of(subject, {"a": maps})["border"].images) == [3]


def random_network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    ).eval()


IMAGES, ANSWERS = tagged_images(24)


@pytest.mark.parametrize(
    ("labels", "output", "by", "value", "passed"),
    [
        (ANSWERS, None, "labels", 1.0, True),
        (ANSWERS[torch.from_numpy(np.random.default_rng(0).permutation(24))], None, "labels", None, False),
        (torch.stack([1 - ANSWERS, ANSWERS], 1), "sigmoid", "labels", 1.0, True),
        # Labels of one class say nothing, so that weights are shuffled.
        (torch.zeros(24, dtype=torch.long), None, "shuffled weights", None, True),
    ],
)
def test_a_network_that_fits_its_labels_passes(labels, output, by, value, passed):
    found = check_accuracy(make_subject(tag_network(), IMAGES, labels=labels, output=output), 0)
    assert (found.by, found.passed) == (by, passed)
    assert value in (None, found.value)
    assert value is None or found.expected == pytest.approx(0.5, abs=0.02)


def test_random_weights_pass_about_as_often_as_the_level_says():
    images, _ = tagged_images(10)
    p = [check_accuracy(make_subject(random_network(seed), images), seed).p for seed in range(20)]
    assert sum(value <= 0.02 for value in p) <= 2
    assert 0.25 < np.mean(p) < 0.75


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
    found = check_accuracy(make_subject(tag_network(), images, labels=labels), 0)
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
    assert check_accuracy(make_subject(tag_network(), images, labels=1 - answers), 0).needed is None
    assert check_accuracy(make_subject(tag_network(), images, labels=answers), 0).needed is None
