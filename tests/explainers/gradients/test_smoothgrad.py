import pytest
import torch
from part_cases import ExplainerCase
from torch import nn

from xaibench.compute.random_numbers import sample_generators
from xaibench.explainers.gradients.smoothgrad import SmoothGrad

CASES = {"smoothgrad": ExplainerCase(parameters={"n_samples": 4})}


def batch(n=3, channels=3):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, channels, 6, 7, generator=rng, dtype=torch.float64), torch.arange(n) % 2


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(120, 2)).double().eval()


def test_smoothgrad_oracle(model):
    images, targets = batch()
    maps = SmoothGrad(n_samples=7, noise=0.2, seed=5, channels="sum")(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(5, images), strict=True):
        total = torch.zeros_like(image)
        for _ in range(7):
            noise = torch.from_numpy(rng.standard_normal(image.shape))
            copy = (image + 0.2 * (image.max() - image.min()) * noise).requires_grad_()
            total += torch.autograd.grad(model(copy[None])[0, target], copy)[0]
        torch.testing.assert_close(found, (total / 7).sum(0))


def test_without_noise_it_is_the_gradient(model):
    images, targets = batch()
    x = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).gather(1, targets[:, None]).sum(), x)
    largest = gradient.gather(1, gradient.abs().argmax(1, keepdim=True))[:, 0]
    torch.testing.assert_close(SmoothGrad(noise=0.0, n_samples=3)(model, images, targets), largest)


def test_noise_smooths_a_kink():
    # the gradient of |x - 0.1| at 0 is -1; over wide noise its mean is near 0, for an image with a range of 2
    class Kink(nn.Module):
        def forward(self, x):
            return (x.flatten(1)[:, :1] - 0.1).abs()

    images = torch.tensor([0.0, 1.0, -1.0, 0.0]).reshape(1, 1, 2, 2)
    targets = torch.tensor([0])
    assert SmoothGrad(noise=0.0)(Kink(), images, targets)[0, 0, 0] == -1
    assert abs(SmoothGrad(noise=1.0, n_samples=2000)(Kink(), images, targets)[0, 0, 0]) < 0.1
