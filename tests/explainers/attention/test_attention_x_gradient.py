import pytest
import torch
from generators.planted_transformer import batch, swin_of_timm, swin_of_torchvision
from part_cases import ExplainerCase

from xaibench.explainers import explain
from xaibench.explainers.shared.tokens import record_attention

CASES = {"attention_x_gradient": ExplainerCase(network="generators.networks:Attending")}


@pytest.mark.parametrize("build", [swin_of_torchvision, swin_of_timm])
def test_what_lies_in_windows_is_put_where_it_lies(build):
    """The sum over the map is that over all windows, and a patch's value moves with the patch's own window."""
    model, (images, targets) = build(), batch(32)
    maps = explain("attention_x_gradient", model, images, targets, device="cpu", resize=None)
    with record_attention(model) as seen:
        logits = model(images).gather(1, targets[:, None])
    weights = seen[-1].weights
    (gradient,) = torch.autograd.grad(logits.sum(), weights)
    product = (weights * gradient).detach().mean(1).sum(1).reshape(len(images), -1)
    assert maps.shape == (3, 4, 4)
    assert maps.abs().max() > 1e-6
    torch.testing.assert_close(maps.sum((1, 2)), product.sum(1))
    torch.testing.assert_close(maps.flatten(1).sort(1).values, product.sort(1).values)
