import copy

import pytest
import torch
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.models import Wrapped, zero_shot_head


class TwoTowers(nn.Module):
    """As CLIP: images and texts go to the same space; calling it needs both."""

    def __init__(self):
        super().__init__()
        self.image_layer, self.words = nn.Linear(64, 5), nn.Embedding(7, 5)

    def get_image_features(self, images):
        return self.image_layer(images.flatten(1))

    def forward(self, images, words):
        image, text = self.get_image_features(images), self.words(words)
        image, text = image / image.norm(dim=1, keepdim=True), text / text.norm(dim=1, keepdim=True)
        return {"logits_per_image": 10 * image @ text.T - 2}


@pytest.fixture
def towers():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return TwoTowers().eval(), torch.rand(3, 1, 8, 8), torch.tensor([1, 4, 6])


def embed(model, images):
    return model.get_image_features(images)


def test_the_logits_are_those_of_both_towers(towers):
    model, images, words = towers
    head = zero_shot_head(model, model.words(words), scale=10.0, bias=-2.0, embed=embed)
    expected = Wrapped(model, lambda model, x: model(x, words)["logits_per_image"])
    torch.testing.assert_close(head(images), expected(images))
    for name in ("saliency", "integrated_gradients"):
        for output in ("probability", "sigmoid"):
            found, other = (xb.explain(name, one, images, [0, 2, 1], output=output) for one in (head, expected))
            torch.testing.assert_close(found, other)
    assert xb.explain("saliency", head, images, 0, dtype=torch.float64).dtype == torch.float64
    assert torch.equal(copy.deepcopy(head)(images), head(images))


def test_the_length_of_the_text_embeddings_does_not_matter(towers):
    model, images, words = towers
    one, other = (zero_shot_head(model.image_layer, factor * model.words(words)) for factor in (1.0, 7.0))
    torch.testing.assert_close(one(images.flatten(1)), other(images.flatten(1)))


def test_what_is_no_embedding_is_refused(towers):
    model, images, words = towers
    refused(ValueError, "embed=", lambda: zero_shot_head(nn.Flatten(), model.words(words))(images))
    refused(ValueError, "[5]", lambda: zero_shot_head(model, torch.ones(5)))
    refused(ValueError, "zero", lambda: zero_shot_head(model, torch.zeros(2, 5)))
    refused(TypeError, "torch.int64", lambda: zero_shot_head(model, words))
