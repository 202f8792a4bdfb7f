import pytest
import torch
from refusals import refused

import xaibench as xb
from xaibench.benchmarks import disconnected
from xaibench.benchmarks.mosaics.photo_mosaics import make_mosaics
from xaibench.models import build


@pytest.fixture(scope="module")
def mosaic():
    """A network for four cells of 8×8 pixels, mosaics, and the logits that see the explained cell."""
    generator = torch.Generator().manual_seed(0)
    split = make_mosaics(torch.randn(30, 1, 8, 8, generator=generator), torch.arange(30) % 5, count=3)
    model = disconnected(build("cnn", (1, 8, 8), 5, seed=0))
    return model, split, model.columns(split.cells, split.targets, 5)


def test_each_cell_goes_through_its_own_copy(mosaic):
    model, split, columns = mosaic
    images, masks, targets = split[:]
    logits = model(images)
    alone = [images[i, 0][masks[i]].reshape(1, 1, 8, 8) for i in range(len(images))]
    for number, cell in enumerate(alone):
        expected = model.cells[0](cell)[0, targets[number]]
        torch.testing.assert_close(logits[number, columns[number]], expected)
    changed = torch.where(masks[:, None], images, torch.randn(images.shape))
    rows = torch.arange(len(images))
    assert model(changed)[rows, columns].equal(logits[rows, columns])
    assert not model(changed).equal(logits)


@pytest.mark.parametrize(
    "name",
    ["saliency", "integrated_gradients", "input_x_gradient", "smoothgrad", "guided_backprop", "deeplift", "lrp_epsilon",
     "deep_taylor", "lrp_alpha_beta", "occlusion", "pfi"],
)  # fmt: skip
def test_methods_that_promise_zero_leave_the_other_cells_alone(mosaic, name):
    model, split, columns = mosaic
    window = {"window": 2, "stride": 2} if name == "occlusion" else {}  # else one reaches into two cells
    maps = xb.explain(name, model, split.images, columns, output="logit", device="cpu", **window)
    assert xb.mass_outside(maps, split.masks) <= 1e-12
    assert xb.grid_pointing(maps, split.masks, reduction="none").nan_to_num(1).min() == 1


def test_rise_does_not(mosaic):
    model, split, columns = mosaic
    maps = xb.explain("rise", model, split.images, columns, output="logit", device="cpu", n_masks=100)
    assert xb.mass_outside(maps, split.masks) > 0.5


def test_images_and_outputs_that_cannot_be_cut_are_refused(mosaic):
    refused(ValueError, "[1, 1, 15, 16]", mosaic[0], torch.zeros(1, 1, 15, 16))
    refused(ValueError, "in_shape", build, "disconnected:cnn", (1, 15, 16), 20)
    refused(ValueError, "in_shape", build, "disconnected:cnn", (1, 16, 16), 18)


def test_copies_are_made_by_name():
    model = build("disconnected:cnn", (1, 16, 16), 20, side=2, seed=3)
    images = torch.rand(5, 1, 16, 16)
    alone = model.cells[0](images[..., :8, 8:])
    assert model(images)[:, 5:10].equal(alone)
    assert not model.training
    assert build("disconnected:cnn", (1, 24, 24), 45, side=3)(torch.rand(2, 1, 24, 24)).shape == (2, 45)


def test_a_map_of_one_cells_features_is_no_map_of_the_mosaic(mosaic):
    model, split, columns = mosaic
    for name in ("gradcam", "eigencam", "guided_gradcam"):
        refused(xb.explainers.UnsupportedModelError, "Disconnected", xb.explain, name, model, split.images, columns)
