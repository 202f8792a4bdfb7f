import pytest
import torch
from part_cases import ExplainerCase
from torch import nn

import xaibench as xb
from xaibench.explainers import UnsupportedModelError
from xaibench.explainers.gradients.agop import AGOP
from xaibench.explainers.gradients.saliency import Saliency

#: The diagonal is copied to the device.
CASES = {"agop": ExplainerCase(waits=1)}


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 3)
        return nn.Sequential(*layers).double().eval()


def data(n=7, seed=0):
    return torch.randn(n, 2, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outer_product(model, images, columns):
    """The whole matrix M, one image and one output at a time: [32, 32]."""
    total = torch.zeros(32, 32, dtype=torch.float64)
    for image in images:
        jacobian = torch.autograd.functional.jacobian(lambda x: model(x[None])[0], image).reshape(3, 32)
        for k in columns(model(image[None])[0]):
            for i in range(32):
                total[i] += jacobian[k, i] * jacobian[k]
    return total / len(images)


@pytest.mark.parametrize("outputs", ["all", "predicted"])
def test_oracle(outputs):
    model, training, images = network(), data(), data(4, seed=1)
    targets = torch.tensor([0, 1, 2, 0])
    columns = {"all": lambda z: range(3), "predicted": lambda z: [int(z.argmax())]}[outputs]
    diagonal = outer_product(model, training, columns).diagonal().reshape(2, 4, 4)
    fitted = AGOP(outputs=outputs).fit(model, [(training[:4], None), (training[4:], None)])
    torch.testing.assert_close(fitted.diagonal, diagonal)
    for image, target, found in zip(images, targets, fitted(model, images, targets), strict=True):
        gradient = torch.autograd.functional.jacobian(lambda x, k=target: model(x[None])[0, k], image)
        weighted = gradient * (diagonal / diagonal.max()).sqrt()
        expected = torch.where(weighted[0].abs() >= weighted[1].abs(), weighted[0], weighted[1])
        torch.testing.assert_close(found, expected)


def test_the_global_map_is_the_diagonal_for_every_image():
    model, training, images = network(), data(), data(3, seed=1)
    fitted = AGOP(variant="global", channels="sum").fit(model, [training])
    maps = xb.explain(fitted, model, images, torch.tensor([0, 1, 2]), device="cpu")
    torch.testing.assert_close(maps, fitted.diagonal.sum(0).expand(3, 4, 4))
    assert fitted.passes_with(model, images) == 0


def test_with_equal_weights_it_is_the_gradient():
    model, images, targets = network(), data(3), torch.tensor([0, 1, 2])
    fitted = AGOP(diagonal=torch.full((2, 4, 4), 9.0, dtype=torch.float64))
    torch.testing.assert_close(fitted(model, images, targets), Saliency()(model, images, targets))


def test_the_fit_depends_neither_on_the_batches_nor_on_the_mode_of_the_model():
    model, training = network().train(), data()
    whole = AGOP().fit(model, [training])
    assert model.training
    parts = AGOP(batch_size=2).fit(model, training.split(3))
    torch.testing.assert_close(parts.diagonal, whole.diagonal)


def test_a_network_that_depends_on_no_pixel_gets_zeros():
    model, images = network(), data(2)
    nn.init.zeros_(model[0].weight)
    assert not AGOP().fit(model, [images])(model, images, torch.tensor([0, 1])).any()


def test_errors():
    model, images, targets = network(), data(2), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"AGOP: fitted to images \[2, 4, 4\], got \[2, 5, 5\]"):
        AGOP().fit(model, [images])(model, torch.zeros(2, 2, 5, 5), targets)
    with pytest.raises(ValueError, match=r"AGOP\.fit: images \[1, 3, 3\] follow images \[1, 2, 2\]"):
        AGOP().fit(Pool(), [torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 3)])
    with pytest.raises(UnsupportedModelError):
        AGOP().fit(Pool(detach=True), [torch.ones(1, 1, 2, 2)])


class Pool(nn.Module):
    """The mean of an image of any size."""

    def __init__(self, detach=False):
        super().__init__()
        self.detach = detach

    def forward(self, x):
        x = x.mean((2, 3))
        return x.detach() if self.detach else x
