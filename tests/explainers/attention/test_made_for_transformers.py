"""What holds for every explainer made for transformers: it sees the right place, and knows the class."""

import pytest
import torch
from generators.planted_transformer import (
    DECIDES,
    SIDE,
    batch,
    of_timm,
    of_torchvision,
    planted,
    share_of_the_patch,
    swin_of_timm,
    swin_of_torchvision,
)

from xaibench.explainers import EXPLAINERS, UnsupportedModelError, explain
from xaibench.models import Folded

AWARE = [name for name, part in ((n, EXPLAINERS.resolve(n)) for n in EXPLAINERS) if part.info.family == "Attention"]
AWARE.remove("attention_rollout")  # the same for every class
ON_PATCHES = ("gradient_rollout", "attention_x_gradient", "legrad")


def maps_of(name, model, images, targets, **settings):
    own = {"resize": "nearest"} if name in ON_PATCHES else {}
    return explain(name, model, images, targets, device="cpu", **own, **settings)


def in_patch(images, change):
    """Images of which the patch that decides, or all but that, is another."""
    rows, columns = (slice(at * SIDE, (at + 1) * SIDE) for at in DECIDES)
    inside = torch.zeros(images.shape[-2:], dtype=torch.bool)
    inside[rows, columns] = True
    return torch.where(inside == (change == "inside"), -images.flip(0), images)


def test_one_patch_alone_decides_what_the_planted_network_says():
    model, (images, _) = planted(), batch()
    logits = model(images)
    torch.testing.assert_close(model(in_patch(images, "outside")), logits, rtol=1e-9, atol=1e-9)
    assert (model(in_patch(images, "inside")) - logits).abs().amax(1).min() > 0.1


@pytest.mark.parametrize("name", [name for name in AWARE if name != "legrad"])
def test_the_patch_that_decides_is_the_explanation(name):
    model, (images, _) = planted(), batch()
    for target in range(3):
        maps = maps_of(name, model, images, torch.full((3,), target))
        # What keeps only the positive may find nothing for a class that the patch speaks against.
        found = maps.flatten(1).abs().amax(1) > 0
        assert found.any() if name == "gradient_rollout" else found.all()
        assert (share_of_the_patch(maps[found]) > 0.999).all()


def test_legrad_is_drawn_by_what_speaks_for_the_class_attended_to_or_not():
    """It leaves the attention out, so the patch must also be the only one with something in it."""
    model, (images, _) = planted(layers=1), batch()
    rows, columns = (slice(at * SIDE, (at + 1) * SIDE) for at in DECIDES)
    alone = 0.001 * images
    alone[..., rows, columns] = images[..., rows, columns]
    speaks_for = (model(alone) - model(0.001 * images)).argmax(1)
    assert (share_of_the_patch(maps_of("legrad", model, alone, speaks_for)) > 0.95).all()
    assert (share_of_the_patch(maps_of("legrad", model, images, speaks_for)) < 0.5).all()


@pytest.mark.parametrize("make", [of_torchvision, of_timm])
@pytest.mark.parametrize("name", AWARE)
def test_each_class_has_a_map_of_its_own(name, make):
    model, (images, _) = make(), batch(n=1)
    maps = maps_of(name, model, images.expand(3, -1, -1, -1), torch.arange(3)).flatten(1)
    unit = maps / maps.norm(dim=1, keepdim=True)
    assert (unit @ unit.T - torch.eye(3)).max() < 0.9999


@pytest.mark.parametrize("name", AWARE)
def test_batch_size_does_not_matter_and_the_model_comes_back(name):
    model, (images, targets) = of_torchvision().train(), batch()
    before = {key: sorted(vars(module)) for key, module in model.named_modules()}
    expected = maps_of(name, model, images, targets)
    assert expected.dtype == torch.float64
    torch.testing.assert_close(maps_of(name, model, images, targets, batch_size=1), expected)
    torch.testing.assert_close(maps_of(name, model, images.flip(0), targets.flip(0)), expected.flip(0))
    assert {key: sorted(vars(module)) for key, module in model.named_modules()} == before
    for module in model.modules():
        assert module.training
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    single = maps_of(name, model, images, targets, dtype=torch.float32)
    torch.testing.assert_close(single.double(), expected, rtol=1e-2, atol=1e-3 * expected.abs().max().item())


@pytest.mark.parametrize("name", AWARE)
def test_classes_taken_together(name):
    """Of a group of one class the logit is that class's, and so is the map."""
    model, (images, targets) = of_torchvision(), batch()
    folded = Folded(model, {"first": [0], "second": [1], "third": [2]}, "sum")
    torch.testing.assert_close(maps_of(name, folded, images, targets), maps_of(name, model, images, targets))


DEITS = ("deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224")


@pytest.mark.parametrize("network", DEITS)
@pytest.mark.parametrize("name", AWARE)
def test_deit(name, network):
    maps = maps_of(name, of_timm(network), *batch())
    assert maps.shape == (3, 16, 16)
    assert (maps.flatten(1).std(1) > 0).all()


@pytest.mark.parametrize("make", [swin_of_torchvision, swin_of_timm])
@pytest.mark.parametrize("name", AWARE)
def test_swin_is_explained_or_refused_with_the_reason(name, make):
    model, (images, targets) = make(), batch(32)
    if name in ("gradient_rollout", "legrad"):
        with pytest.raises(
            UnsupportedModelError, match=f"^{name}: .*windows; the method is defined for self-attention"
        ):
            maps_of(name, model, images, targets)
        return
    maps = maps_of(name, model, images, targets)
    assert maps.shape == (3, 32, 32)
    assert maps.isfinite().all()
    assert (maps.flatten(1).std(1) > 0).all()


@pytest.mark.parametrize("name", AWARE)
def test_a_network_without_attention_is_an_error(name, cnn):
    images = torch.rand(2, 1, 8, 8)
    with pytest.raises(UnsupportedModelError, match=f"^{name}: .* has no attention"):
        explain(name, cnn, images, torch.tensor([0, 1]), device="cpu")
