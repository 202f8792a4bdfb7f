"""Whatever an explainer does to the model, the caller's model comes back from ``explain`` as it was given."""

import pytest
import torch
from torch import nn
from zoo.verdicts import portrait

from xaibench.explainers import explain


def test_lrp_gives_back_the_model_and_its_rules(cnn, images, targets):
    from captum.attr._utils.lrp_rules import GammaRule

    cnn.layers[0].rule = GammaRule()
    cnn.double()
    before = portrait(cnn)
    with_rule = explain("lrp", cnn, images, targets)
    with_rule_in_chunks = explain("lrp", cnn, images, targets, batch_size=2)
    assert portrait(cnn) == before
    torch.testing.assert_close(with_rule, with_rule_in_chunks)
    del cnn.layers[0].rule
    assert not torch.allclose(with_rule, explain("lrp", cnn, images, targets))


@pytest.mark.parametrize("name", ["guided_backprop", "deeplift", "lrp"])
def test_the_model_comes_back_when_an_explainer_raises_midway(name, images, targets):
    class Twice(nn.Module):
        """Fails in the last pass, the one with the hooks in place."""

        def __init__(self):
            super().__init__()
            self.first, self.relu, self.last = nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 2)
            self.passes = 0

        def forward(self, x):
            self.passes += 1
            hidden = self.relu(self.first(x.flatten(1)))
            if self.passes > (2 if name == "lrp" else 1):
                raise RuntimeError("worn out")
            return self.last(hidden)

    model = Twice()
    before = portrait(model)
    with pytest.raises(RuntimeError, match="worn out"):
        explain(name, model, images, targets, device="cpu")
    assert portrait(model) == before


def test_hook_handles_still_work_afterwards(cnn, images, targets):
    calls = []
    handle = cnn.layers[0].register_forward_hook(lambda *_: calls.append(1))
    explain("saliency", cnn.double(), images, targets, device="cpu")
    seen = len(calls)
    assert seen > 0
    handle.remove()
    cnn(images.double())
    assert len(calls) == seen


def test_a_model_that_fits_is_not_copied_and_one_that_does_not_is(cnn, images, targets):
    seen = []

    def spy(model, images, targets):
        seen.append(model.network)
        return images[:, 0]

    explain(spy, cnn, images, targets, dtype=torch.float32, device="cpu")
    explain(spy, cnn, images, targets, dtype=torch.float64, device="cpu")
    assert seen[0] is cnn
    assert seen[1] is not cnn
    assert next(cnn.parameters()).dtype is torch.float32
