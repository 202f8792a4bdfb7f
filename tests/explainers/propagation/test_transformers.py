"""The explainers of any network on transformers: which explain them, and that their maps are those of the equations."""

import pytest
import torch
from generators.transformers import TRANSFORMERS, noise, transformer
from torch import nn
from torch.overrides import TorchFunctionMode

from xaibench.explainers import EXPLAINERS, UnsupportedModelError, explain
from xaibench.explainers.propagation.deeplift import layer_norm_rule, softmax_rule
from xaibench.explainers.propagation.lrp import DeepTaylor, LRPAlphaBeta, LRPEpsilon, LRPGamma

TARGETS = torch.tensor([0, 2])
QUICK = {
    **{name: {"n_samples": 4, "feature_mask": "grid"} for name in ("lime", "kernel_shap")},
    "pfi": {"feature_mask": "grid", "cell_size": 16},
    "shapley_sampling": {"n_samples": 1, "feature_mask": "grid", "cell_size": 16},
    "integrated_gradients": {"n_steps": 2},
    "random_baseline_ig": {"n_baselines": 1, "n_steps": 2},
    "guided_ig": {"n_steps": 2},
    "xrai": {"n_steps": 2, "segmentation_size": 32},
    "blur_ig": {"n_steps": 2},
    **{
        name: {"n_samples": 2}
        for name in ("smoothgrad", "smoothgrad_squared", "vargrad", "expected_gradients", "gradient_pattern")
    },
    "pattern_local": {"n_samples": 4},
    "rise": {"n_masks": 4},
    "sobol": {"n_designs": 2, "grid_size": 2},
    "hsic": {"n_samples": 4},
    "occlusion": {"window": 16, "stride": 16},
}
#: Of averaged patches behind nothing but a linear layer, so that the class activation map of the paper is defined.
AVERAGED = ("torchvision swin", "timm swin")


@pytest.fixture(params=TRANSFORMERS)
def case(request):
    if request.param.startswith("timm"):
        pytest.importorskip("timm")
    return request.param, transformer(request.param).double()


def maps(name, model, **given):
    return explain(name, model, noise().double(), TARGETS, device="cpu", dtype=torch.float64, **given)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["torchvision vit", "timm vit", "torchvision swin"])
def test_all_but_those_that_cannot_by_definition_explain_it(name):
    if name.startswith("timm"):
        pytest.importorskip("timm")
    model, images = transformer(name).double(), noise().double()  # Deep Taylor may leave the range of float32
    averaged, refused = {"lrp", "pattern_net", "pattern_attribution", "fullgrad"}, {}
    for explainer in EXPLAINERS:
        part = EXPLAINERS.resolve(explainer)
        if part.info.control or part.info.family == "Attention":
            continue
        built = part(**QUICK.get(explainer, {}))
        try:
            if hasattr(built, "fit"):
                built = built.fit(model, [(images, TARGETS)])
            found = explain(built, model, images, TARGETS, device="cpu", dtype=torch.float64)
            assert found.shape == (2, 32, 32)
            assert found.isfinite().all()
        except UnsupportedModelError as error:
            refused[explainer] = str(error)
    assert set(refused) == (averaged if name in AVERAGED else averaged | {"cam"})
    assert all("gradcam" in message or "lrp_epsilon" in message for message in refused.values())


def test_deeplift_shares_out_the_whole_difference(case):
    _, model = case
    x = noise().double()
    expected = (model(x) - model(torch.zeros_like(x))).gather(1, TARGETS[:, None])[:, 0].detach()
    torch.testing.assert_close(maps("deeplift", model, output="logit").sum((1, 2)), expected)


def test_deeplift_is_the_gradient_where_there_is_next_to_no_difference(case):
    _, model = case
    x = noise().double()
    nearly = x - 1e-5 * noise(seed=1).double()
    found = explain("deep_shap", model, x[:1], TARGETS[:1], device="cpu", dtype=torch.float64, output="logit",
                    baselines=nearly[:1], channels="sum")  # fmt: skip
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(model(x)[0, 0], x)
    expected = (gradient * (x - nearly)).sum(1)[:1].detach()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def pair(*shape):
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return x, torch.randn(1, *shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64).repeat(2, 1, 1)


def test_softmax_by_the_rescale_rule_of_its_parts():
    x, signal = pair(3, 4)
    (found,) = softmax_rule(None, signal, x)
    s, t = x  # of the image and of the baseline
    for row in range(3):
        e, f = s[row].exp(), t[row].exp()
        log_sum = [((e - f) / (s[row] - t[row]))[j] * (e.sum().log() - f.sum().log()) / (e.sum() - f.sum())
                   for j in range(4)]  # fmt: skip
        a, b = e / e.sum(), f / f.sum()
        by_log = (a - b) / (a.log() - b.log())
        expected = [
            sum(signal[0, row, i] * by_log[i] * (float(i == j) - log_sum[j]) for i in range(4)) for j in range(4)
        ]
        torch.testing.assert_close(found[0, row], torch.stack(expected))


def test_softmax_of_what_is_masked_passes_nothing_back_to_it():
    x, signal = pair(1, 4)
    x[..., 1] = -torch.inf
    (found,) = softmax_rule(None, signal, x)
    assert found.isfinite().all()
    assert not found[..., 1].any()


def test_layer_normalization_by_the_rules_of_its_parts():
    x, signal = pair(1, 5)
    weight = torch.arange(1.0, 6.0, dtype=torch.float64)
    (found,) = layer_norm_rule(x, (5,), weight, eps=0.1)(None, signal, x)
    d, e = (row[0] - row[0].mean() for row in x)
    v, w = (each.square().mean() + 0.1 for each in (d, e))
    g = signal[0, 0] * weight
    by_inverse = (g * (d + e) / 2).sum() * (v**-0.5 - w**-0.5) / (v - w)
    by_d = g * (v**-0.5 + w**-0.5) / 2 + by_inverse * (d.square() - e.square()) / (d - e) / 5
    torch.testing.assert_close(found[0, 0], by_d - by_d.mean())


class Gates(TorchFunctionMode):
    """Every function of one number, normalization and addition of a constant as a factor that stands still.

    Input times gradient of what is left is LRP with the epsilon rule, epsilon being 0.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        called = getattr(func, "__name__", "")
        if called in ("scaled_dot_product_attention", "multi_head_attention_forward"):
            with self:
                return in_parts(func, *args, **kwargs)
        result = func(*args, **kwargs)
        if called == "softmax":
            return result.detach()
        moving = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
        if called in ("gelu", "layer_norm") or (called in ("add", "__add__") and len(moving) == 1):
            return moving[0] * (result / moving[0]).detach()
        return result


def in_parts(func, q, k, v, *rest, **named):
    """Attention written out, of timm (queries, keys, values) and torchvision (tokens ``[T, N, D]`` and parameters)."""
    if func is nn.functional.scaled_dot_product_attention:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    _, heads, weight, bias = rest[:4]
    parts = nn.functional.linear(q, weight, bias).unflatten(2, (3, heads, -1)).permute(2, 1, 3, 0, 4)
    mixed = (parts[0] @ parts[1].mT / parts.shape[-1] ** 0.5).softmax(-1) @ parts[2]
    return nn.functional.linear(mixed.permute(2, 0, 1, 3).flatten(2), *rest[8:10]), None


@pytest.mark.parametrize("name", ["torchvision vit", "timm vit", "timm deit, distilled"])
def test_lrp_is_input_times_gradient_of_the_network_with_its_gates_held(name):
    if name.startswith("timm"):
        pytest.importorskip("timm")
    model = transformer(name).double().requires_grad_(False)
    x = noise().double().requires_grad_()
    with Gates():
        logits = model(x)
    (gradient,) = torch.autograd.grad(logits.gather(1, TARGETS[:, None]).sum(), x)
    expected = (x * gradient).sum(1).detach()
    torch.testing.assert_close(LRPEpsilon(epsilon=0.0)(model, x.detach(), TARGETS), expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("explainer", [LRPEpsilon(epsilon=0.0, bias=False), LRPGamma(bias=False)])
def test_without_biases_relevance_sums_to_the_logit(explainer):
    pytest.importorskip("timm")
    model = transformer("timm vit of averaged patches").double()
    x = noise().double()
    logits = model(x).gather(1, TARGETS[:, None])[:, 0].detach()
    torch.testing.assert_close(explainer(model, x, TARGETS).sum((1, 2)), logits, rtol=1e-4, atol=1e-6)


def test_rules_of_both_signs_and_deep_taylor(case):
    _, model = case
    x = noise().double()
    assert LRPAlphaBeta()(model, x, TARGETS).std() > 0
    likeliest = model(x).argmax(1)
    found = DeepTaylor()(model, x, likeliest)
    assert (found >= 0).all()
    positive = model(x).amax(1) > 0
    assert found.flatten(1).any(1).equal(positive)


def test_scores_that_no_softmax_follows_are_an_error():
    class Products(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.keys = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = x.flatten(2)
            return (self.queries(x) @ self.keys(x).mT).mean(2)

    with pytest.raises(UnsupportedModelError):
        LRPEpsilon()(Products(), torch.rand(1, 3, 2, 2), torch.tensor([0]))


@pytest.mark.parametrize("activation", [nn.GELU(), nn.SiLU(), nn.Mish(), nn.Hardswish()])
def test_guided_gradients_of_smooth_relatives_of_relu(activation, two_layers):
    model, image, target = two_layers
    first, last = model[1].weight, model[3].weight
    model[2] = activation
    x = (image.flatten() @ first.T).detach().requires_grad_()
    (slope,) = torch.autograd.grad(activation(x).sum(), x)
    back = last[0].clamp(min=0)
    guided = explain("guided_backprop", model, image, target, output="logit", dtype=torch.float64)
    torch.testing.assert_close(guided.flatten(), ((back * slope * (x > 0)) @ first).detach())
    deconvolved = explain("deconvolution", model, image, target, output="logit", dtype=torch.float64)
    torch.testing.assert_close(deconvolved.flatten(), (back @ first).detach())
