"""What ``xb.reliance`` returns."""

import pytest
import torch

import xaibench as xb


def test_reliance_gives_each_block_both_ways_with_its_error():
    data = xb.load("xai-tris/xor-corr-8x8", n_samples=100)
    model = xb.models.build("cnn", (1, 8, 8), 2, seed=0)
    found = xb.reliance(model, data, samples=3, block_sizes=[1, 3, 8], n_samples=6, progress=False)
    shapes = {key: tuple(values.shape) for key, values in found.values.items()}
    sides = {1: 8, 3: 3, 8: 1}
    assert shapes == {(how, b): (3, s, s) for how in ("marginal", "conditional") for b, s in sides.items()}
    for key, values in found.values.items():
        assert (found.errors[key] >= 0).all()
        assert (values >= 0).all()
    # Given all others a pixel of correlated noise moves by its rounding; the image as a whole has nothing given.
    assert found.values["conditional", 1].max() < 1e-5 * found.values["marginal", 1].max()
    assert torch.allclose(found.values["conditional", 8], found.values["marginal", 8])


def test_reliance_is_the_map_of_the_explainer():
    data = xb.load("xai-tris/lin-white-8x8", n_samples=100)
    model = xb.models.build("mlp", (1, 8, 8), 2, seed=0)
    images, _, targets = data.test[:3]
    found = xb.reliance(model, data, samples=3, block_sizes=[2], n_samples=4, seed=5, output="logit", progress=False)
    how = {"distribution": data.distribution(), "n_samples": 4, "seed": 5, "block_size": 2, "output": "logit"}
    maps = xb.explain("reliance", model, images, targets, **how)
    assert torch.allclose(maps, found.values["marginal", 2].repeat_interleave(2, 1).repeat_interleave(2, 2) / 4)


def test_nobody_knows_what_other_images_came_from():
    data = xb.load("certified:and", n_samples=20)
    with pytest.raises(
        ValueError, match="the distribution of the images of this data set is unknown, expected a generated"
    ):
        xb.reliance(xb.models.build("mlp", (1, 8, 8), 2), data)


def test_evaluate_fills_in_what_the_images_came_from():
    data = xb.load("xai-tris/lin-white-8x8", n_samples=100)
    model = xb.models.build("mlp", (1, 8, 8), 2, seed=0)
    how = {"controls": False, "scored": "all", "samples": 3, "progress": False}
    result = xb.evaluate("reliance", data, model, "mass_accuracy", **how)
    images, masks, targets = data.test[:3]
    maps = xb.explain("reliance", model, images, targets, distribution=data.distribution(), device="cpu")
    assert result.scores["value"].tolist() == pytest.approx(xb.mass_accuracy(maps, masks, reduction="none").tolist())
