import pytest
import torch
from generators.planted_transformer import batch, of_torchvision, seeded
from part_cases import ExplainerCase
from torch import nn

from xaibench.explainers import explain
from xaibench.models import Wrapped

CASES = {"legrad": ExplainerCase(network="generators.networks:Attending")}


def test_the_last_layers_alone():
    model, (images, targets) = of_torchvision(), batch(n=2)
    both, last, all_ = (
        explain("legrad", model, images, targets, device="cpu", resize=None, n_layers=layers) for layers in (2, 1, None)
    )
    assert torch.equal(both, all_)
    assert (last <= both).all()
    assert not torch.allclose(last, both)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_agrees_with_the_authors_package(layers, capsys):
    legrad, open_clip = pytest.importorskip("legrad"), pytest.importorskip("open_clip")
    vision = {"image_size": 16, "layers": 3, "width": 16, "head_width": 8, "patch_size": 4}
    text = {"context_length": 4, "vocab_size": 8, "width": 16, "heads": 2, "layers": 1}
    model = seeded(lambda: open_clip.model.CLIP(12, vision, text)).float()
    images = batch()[0].float()
    texts = nn.functional.normalize(torch.randn(3, 12, generator=torch.Generator().manual_seed(0)), dim=-1)
    # How like an image is to each text is what the authors' package explains of a CLIP.
    retrieval = Wrapped(model.visual, lambda visual, x: nn.functional.normalize(visual(x), dim=-1) @ texts.T)
    maps = explain("legrad", retrieval, images, torch.arange(3), device="cpu", n_layers=layers)
    for block in model.visual.transformer.resblocks:
        block.attn.batch_first = False  # the package hands on tokens as [T, N, D], which open_clip once did too
    wrapped = legrad.LeWrapper(model, layer_index=-layers)
    for found, image, one in zip(maps, images, texts, strict=True):
        expected = wrapped.compute_legrad_clip(one[None], image[None]).reshape(found.shape)
        scaled = (found - found.min()) / (found.max() - found.min())
        torch.testing.assert_close(scaled, expected.detach(), rtol=0, atol=1e-4)
