import copy

import pytest
import torch
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.metrics.shared.perturb import patch_numbers
from xaibench.models import TrainingDivergedError, accuracy, fine_tune_for_deletion
from xaibench.models.training import deletion_training


def split(count, seed):
    """Two ways to tell the class: the upper left pixel, which is loud, and the others, each of which whispers."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % 2
    sign = 2.0 * targets - 1
    images = torch.randn(count, 1, 8, 8, generator=generator) + 0.3 * sign[:, None, None, None]
    images[:, 0, :2, :2] = 8 * sign[:, None, None]
    return xb.data.Split(images, torch.ones(count, 8, 8, dtype=torch.bool), targets)


@pytest.fixture(scope="module")
def loud():
    """A network that looks at the upper left patch alone."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    weight = torch.zeros(2, 8, 8)
    weight[0, :2, :2], weight[1, :2, :2] = -0.05, 0.05
    model[1].weight.data, model[1].bias.data = weight.reshape(2, 64), torch.tensor([0.1, 0.0])
    return model


def without_patch(data):
    images = data.images.clone()
    images[:, :, :2, :2] = 0
    return xb.data.Split(images, data.masks, data.targets)


def test_accuracy_rises_where_a_patch_is_deleted_and_stays_elsewhere(loud):
    train, test = split(256, 0), split(200, 1)
    tuned = fine_tune_for_deletion(loud, train, epochs=9, lr=0.1, batch_size=64, progress=False)
    assert accuracy(loud, test) == 1
    assert accuracy(loud, without_patch(test)) == 0.5  # it sees nothing
    assert accuracy(tuned, without_patch(test)) > 0.9
    assert accuracy(tuned, test) > 0.95
    assert not tuned.training


def test_the_given_network_and_the_random_state_stay_as_they_were_and_the_seed_decides(loud):
    model, data = copy.deepcopy(loud).train(), split(64, 0)
    before, random_state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    settings = {"epochs": 2, "batch_size": 16, "progress": False, "delete": "pixels", "beta": 0.5}
    one, again, other = (fine_tune_for_deletion(model, data, seed=seed, **settings) for seed in (0, 0, 1))
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.equal(one[1].weight, again[1].weight)
    assert not torch.equal(one[1].weight, other[1].weight)


def test_half_of_the_images_lack_a_patch_of_the_metrics_grid():
    images, chance = torch.ones(400, 1, 10, 9), torch.Generator().manual_seed(0)
    gone = deletion_training._draw_patches(images, 4, chance)[:, 0]
    some = gone.flatten(1).any(1)
    assert 0.4 < some.float().mean() < 0.6
    labels = patch_numbers((10, 9), 4).flatten()
    patches = {tuple(mask.flatten().nonzero()[:, 0].tolist()) for mask in gone[some]}
    assert patches == {tuple((labels == number).nonzero()[:, 0].tolist()) for number in range(16)}


def test_a_share_of_the_pixels_goes_of_every_image():
    gone = deletion_training._draw_pixels(torch.ones(50, 3, 10, 10), 0.1, torch.Generator().manual_seed(0))
    assert gone.shape == (50, 1, 10, 10)
    assert (gone.sum((1, 2, 3)) == 10).all()
    assert gone.float().mean(0).max() < 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"delete": "half"}, "delete="), ({"grid": 1}, "grid="), ({"beta": 1.0}, "beta="), ({"epochs": 0}, "epochs=")],
)
def test_bad_parameters_are_refused(loud, settings, message):
    refused(ValueError, message, lambda: fine_tune_for_deletion(loud, split(8, 0), **settings))


def test_a_loss_that_is_no_number_is_an_error(loud):
    settings = {"epochs": 200, "lr": 1e30, "progress": False}
    refused(TrainingDivergedError, "learning rate", lambda: fine_tune_for_deletion(loud, split(64, 0), **settings))
