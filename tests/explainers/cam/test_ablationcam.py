import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle
from torch import nn

from xaibench.explainers.cam.ablationcam import AblationCAM


@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "flattened"])
def test_oracle(pool):
    model = build(pool=pool).double()
    images, targets = batch()
    for size in (None, 4):
        maps = AblationCAM(resize=None, batch_size=size)(model, images, targets)
        assert (maps.flatten(1).amax(1) > 0).any()
        for found, image, target in zip(maps, images, targets, strict=True):
            torch.testing.assert_close(found, oracle.ablationcam(*pieces(model), image, target))


class Shared(nn.Module):
    """A convolution that runs twice, and an activation that is a function."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3), nn.Linear(3, 2)

    def forward(self, x):
        x = self.again(torch.relu(self.again(torch.relu(self.first(x)))))
        return self.last(nn.functional.relu(x, inplace=True).mean((2, 3)))


def test_only_the_last_run_is_ablated_after_its_activation():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Shared().double().eval()
    images, targets = batch(2)
    targets = targets % 2

    def features(image):
        x = model.again(torch.relu(model.again(torch.relu(model.first(image[None])))))
        return torch.relu(x)[0].detach()

    maps = AblationCAM(resize=None)(model, images, targets)
    assert maps.any()
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.ablationcam(features, lambda maps: model.last(maps.mean((1, 2))), image, target)
        torch.testing.assert_close(found, expected)


def test_parity_with_the_grad_cam_package(monkeypatch):
    package = pytest.importorskip("pytorch_grad_cam.ablation_cam", exc_type=ImportError)
    monkeypatch.setattr(package.tqdm, "tqdm", list)
    model = build(pool=False)
    images, targets = batch(6, torch.float32)
    spoken_for = model(images).gather(1, targets[:, None])[:, 0] > 0  # the package divides by the output
    theirs = package_maps("AblationCAM", model, model[0], images, targets)
    assert spoken_for.any()
    ours = unit(AblationCAM()(model, images, targets))
    torch.testing.assert_close(ours[spoken_for], theirs[spoken_for], rtol=0, atol=1e-5)
