import captum.attr
import pytest
import torch
from generators.volumes import Residual
from oracles import rise as oracle
from torch import nn

from xaibench.explainers.perturbation.occlusion import Occlusion


def batch(n=3, size=(9, 12)):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, 2, *size, generator=rng, dtype=torch.float64), torch.arange(n) % 2


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(2, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(54, 2))
        return nn.Sequential(*layers).double().eval()


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (3, 2), (4, 4), (5, 3), (9, 9)])
@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_oracle_and_captum(model, window, stride, baseline):
    images, targets = batch()
    maps = Occlusion(window=window, stride=stride, baseline=baseline)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.occlusion(model, image, target, window, stride, baseline))
    theirs = captum.attr.Occlusion(model).attribute(
        images, (2, window, window), (2, stride, stride), baselines=baseline, target=targets
    )
    torch.testing.assert_close(maps.float(), theirs[:, 0].float())  # Captum rounds to float32


@pytest.mark.parametrize("size", [(5, 7, 6), (2, 6, 9)])  # the second has fewer slices than the window
def test_volumes_are_covered_by_cubes(size):
    model = Residual(channels=2).double()
    images, targets = batch(2, size)
    maps = Occlusion(window=3, stride=2, baseline=0.7)(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.occlusion(model, image, target, 3, 2, 0.7))


def test_the_window_of_a_volume_does_not_depend_on_its_few_slices():
    images = torch.zeros(1, 1, 2, 40, 60)
    assert Occlusion().passes(images) == Occlusion(window=3, stride=1).passes(images)
    assert Occlusion(window=3, stride=3).passes(images) == 1 + 1 * 14 * 20
    with pytest.raises(ValueError, match=r"expected stride <= window <= 40, the middle side of the images \(2×40×60\)"):
        Occlusion(window=41)(Residual(), images, torch.tensor([0]))


def test_by_hand():
    # the output is the sum of the pixels: each window falls by what it covers
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 1, bias=False))
    nn.init.ones_(model[1].weight)
    images = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 1, 2, 2)
    targets = torch.tensor([0])
    torch.testing.assert_close(Occlusion()(model, images, targets), images[0])
    torch.testing.assert_close(Occlusion(window=2)(model, images, targets), torch.full((1, 2, 2), 10.0))
    torch.testing.assert_close(Occlusion(baseline=1.0)(model, images, targets), images[0] - 1)


@pytest.mark.parametrize(("size", "window", "windows"), [(8, 1, 64), (64, 5, 31**2), (224, 16, 27**2)])
def test_defaults_follow_the_size_of_the_image(size, window, windows):
    class Count(nn.Module):
        rows = 0
        covered = 0

        def forward(self, x):
            self.rows += len(x)
            self.covered = max(self.covered, int((x == 0).flatten(1).sum(1).max()))
            return x.flatten(1)[:, :2]

    model = Count()
    Occlusion(batch_size=256)(model, torch.ones(1, 1, size, size), torch.tensor([0]))
    assert model.rows == windows + 1
    assert model.covered == window**2
