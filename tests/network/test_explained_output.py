import numpy as np
import pytest
import torch
from oracles.explainers import softmax_gradient
from torch import nn

from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.models import Wrapped
from xaibench.network.explained_output import class_margins, exact_sigmoid, exact_softmax


def rows(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("margin", [0.0, 10.0, 40.0, 100.0, 500.0, 700.0])
@pytest.mark.parametrize("target", [0, 1])
def test_the_gradient_of_two_classes_is_p0_p1_at_any_margin(margin, target):
    logits = rows([margin, 0.0])
    (gradient,) = torch.autograd.grad(exact_softmax(logits)[0, target], logits)
    expected = np.exp(-margin) / (1 + np.exp(-margin)) ** 2
    sign = 1 if target == 0 else -1
    np.testing.assert_allclose(gradient[0].numpy(), [sign * expected, -sign * expected], rtol=1e-13)
    assert gradient[0, 0] != 0


def test_the_textbook_gradient_is_zero_where_ours_is_not():
    logits = rows([100.0, 0.0])
    (textbook,) = torch.autograd.grad(logits.softmax(1)[0, 0], logits)
    assert textbook[0, 0] == 0


@pytest.mark.parametrize(
    "logits", [[1.0, 2.0, 3.0, -1.0], [60.0, 0.0, 10.0, 55.0], [300.0, 1.0, 0.0, 299.0], [5.0, 5.0, 5.0, 5.0]]
)
@pytest.mark.parametrize("target", range(4))
def test_the_gradient_of_many_classes_in_extended_precision(logits, target):
    z = rows(logits)
    (gradient,) = torch.autograd.grad(exact_softmax(z)[0, target], z)
    np.testing.assert_allclose(gradient[0].numpy(), softmax_gradient(logits, target).astype(float), rtol=1e-12)


def test_any_upstream_gradient_gives_the_softmax_jacobian():
    z = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    upstream = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (ours,) = torch.autograd.grad(exact_softmax(z), z, upstream)
    (theirs,) = torch.autograd.grad(z.softmax(1), z, upstream)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(exact_softmax(z), z.softmax(1), rtol=0, atol=0)


@pytest.mark.parametrize("exact", [exact_softmax, exact_sigmoid])
def test_second_derivatives(exact):
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(exact, logits)


def test_margins_are_logits_minus_the_logsumexp_of_the_others():
    z = rows([1.0, -2.0, 3.0], [200.0, 1.0, 0.0], [0.0, 500.0, 500.0])
    expected = torch.stack([z[:, k] - torch.cat([z[:, :k], z[:, k + 1 :]], 1).logsumexp(1) for k in range(3)], 1)
    torch.testing.assert_close(class_margins(z), expected, rtol=1e-13, atol=1e-13)
    for k in range(3):
        ours, theirs = (
            torch.autograd.grad(f[:, k].sum(), z, retain_graph=True)[0] for f in (class_margins(z), expected)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_the_head_is_no_module_and_the_logit_is_what_the_network_returns():
    explained = ExplainedOutput(nn.Identity(), "logit")
    assert [name for name, _ in explained.named_modules()] == ["", "network"]
    z = torch.tensor([[3.0, 1.0]])
    assert explained(z).equal(z)
    torch.testing.assert_close(ExplainedOutput(nn.Identity())(z), z.softmax(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["saliency", "integrated_gradients", "guided_backprop", "fullgrad", "agop"])
def test_a_single_image_whose_tokens_are_averaged_behind_a_batch_normalization(name, dtype):
    torch.manual_seed(0)
    tokens = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.Flatten(2))
    nn.init.uniform_(tokens[1].running_var, 0.5, 2)
    parts = nn.ModuleList([tokens, nn.Linear(6, 2)]).to(dtype)
    model = Wrapped(parts, lambda parts, x: parts[1](parts[0](x).mT.mean(1).square()))
    images = torch.rand(2, 3, 8, 8, dtype=dtype)
    part = build(name).fit(model, [images[:1], images[1:]]) if name == "agop" else name
    maps = explain(part, model, images, [0, 1], output="logit")
    torch.testing.assert_close(explain(part, model, images, [0, 1], output="logit", batch_size=1), maps)
