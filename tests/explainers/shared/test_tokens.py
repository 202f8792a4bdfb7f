"""Where the attention of a network is, and where its tokens lie, found without asking for names."""

import pytest
import torch
from generators.transformers import TRANSFORMERS, noise, transformer
from torch import nn
from torch.nn import functional

from xaibench.benchmarks import blind
from xaibench.explainers import UnsupportedModelError
from xaibench.explainers.shared.tokens import attention_gradients, record_attention, token_layout


@pytest.fixture(params=TRANSFORMERS)
def case(request):
    if request.param.startswith("timm"):
        pytest.importorskip("timm")
    return request.param, transformer(request.param)


def test_tokens_of_a_network_that_receives_a_quarter_are_located():
    model = transformer("torchvision vit")
    visible = torch.zeros(noise().shape[2:], dtype=torch.bool)
    visible[visible.shape[0] // 2 :, : visible.shape[1] // 2] = True
    expected, found = token_layout("x", model, noise()), token_layout("x", blind(model, visible), noise())
    assert [layer.grid for layer in found.layers] == [layer.grid for layer in expected.layers]
    assert [layer.extra for layer in found.layers] == [layer.extra for layer in expected.layers]


def test_attention_is_seen_with_its_gradient_and_changes_nothing(case):
    name, model = case
    x, y = noise(), torch.tensor([0, 2])
    with torch.no_grad():
        expected = model(x)
        with record_attention(model) as seen:
            torch.testing.assert_close(model(x), expected)
    windows = 16 if "swin" in name else 1
    assert seen[0].weights.shape[:2] == (2 * windows, 2)
    for attention in seen:
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.weights.shape[:-1]))
    assert all("attn" in each.name or "attention" in each.name for each in seen)
    again, gradients = attention_gradients("x", model, x, y)
    assert [g.shape for g in gradients] == [a.weights.shape for a in again]
    assert all(g.any() for g in gradients)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_gradient_is_that_of_the_weights():
    """Against the difference of the output when the weights are changed by hand."""
    model = transformer("torchvision vit").double()
    x, y = noise(1).double(), torch.tensor([1])
    (_, last), (_, gradient) = attention_gradients("x", model, x, y)
    change = torch.randn(last.weights.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 1e-6
    attention = model.encoder.layers[1].self_attention
    mixed = (change @ last.values).transpose(1, 2).flatten(2) @ attention.out_proj.weight.T

    def moved(module, inputs, output):
        return output[0] + mixed, output[1]

    with torch.no_grad():
        before = model(x)[0, 1]
        attention.register_forward_hook(moved)
        after = model(x)[0, 1]
    torch.testing.assert_close(after - before, (gradient * change).sum(), rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
def test_a_fused_attention_is_the_same_in_parts(mask):
    class Fused(nn.Module):
        def forward(self, x):
            given = {"bool": torch.ones(5, 5).tril().bool(), "float": torch.arange(25.0).reshape(5, 5)}.get(mask)
            y = functional.scaled_dot_product_attention(x, x + 1, x, given, is_causal=mask == "causal")
            return y.mean((1, 2))

    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    model = Fused()
    with record_attention(model) as seen:
        torch.testing.assert_close(model(x), Fused()(x))
    assert seen[0].weights.shape == (2, 3, 5, 5)
    if mask in ("bool", "causal"):
        assert not seen[0].weights.triu(1).any()


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "each head"])
@pytest.mark.parametrize("separate", [False, True])
def test_a_multihead_attention_is_the_same_in_parts(padding, mask, separate):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 4, generator=generator)
    model = nn.MultiheadAttention(4, 2, batch_first=True, kdim=4 + separate).eval()
    keys = torch.randn(2, 5, 4 + separate, generator=generator)
    given = {"bool": torch.ones(5, 5).triu(1).bool(), "each head": torch.randn(4, 5, 5, generator=generator)}.get(mask)
    masked = torch.tensor([[False] * 4 + [True]] * 2) if padding else None
    options = {"attn_mask": given, "key_padding_mask": masked}
    with torch.no_grad():
        expected, weights = model(x, keys, x, average_attn_weights=False, **options)
        with record_attention(model) as seen:
            found, none = model(x, keys, x, need_weights=False, **options)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(seen[0].weights, weights)
    assert none is None


def test_heads_that_share_an_axis_with_the_batch_are_told_apart():
    class Joint(nn.Module):
        def forward(self, x):
            y = x.flatten(0, 1)
            return (torch.bmm(y, y.mT).softmax(-1) @ y).unflatten(0, (len(x), -1)).mean((1, 2))

    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    (attention,), (gradient,) = attention_gradients("x", Joint(), x, torch.tensor([0, 1]))
    torch.testing.assert_close(attention.weights, (x @ x.mT).softmax(-1))
    assert gradient.shape == (2, 3, 5, 5)
    assert gradient.any()


def test_tokens_are_found(case):
    name, model = case
    _, side, extra = TRANSFORMERS[name]
    layout = token_layout("x", model, noise())
    first, last = layout.layers[0], layout.layers[-1]
    assert (first.grid, first.extra) == ((side, side), extra)
    assert last.grid == ((8, 8) if "swin" in name else (4, 4))
    averaged = extra == 0
    assert layout.reads_patches == averaged
    read = list(range(last.count)) if averaged else [0, 1] if "deit" in name else [0]
    assert layout.read.nonzero().flatten().tolist() == read


@pytest.mark.parametrize("name", ["torchvision swin", "timm swin"])
def test_windows_hold_the_places_of_the_paper(name):
    """Swin cuts the map into windows of 4 by 4; every second layer rolls it by half a window first (figure 2)."""
    if name.startswith("timm"):
        pytest.importorskip("timm")
    plain, shifted = token_layout("x", transformer(name), noise()).layers[:2]
    positions = torch.arange(16 * 16).reshape(16, 16)
    for tokens, shift in ((plain, 0), (shifted, 2)):
        rolled = positions.roll((-shift, -shift), (0, 1))
        windows = rolled.unfold(0, 4, 4).unfold(1, 4, 4).reshape(16, 16)
        assert tokens.places.equal(windows)
    values = torch.rand(2 * 16, 16)
    grid = shifted.on_grid(values)
    assert grid.shape == (2, 16, 16)
    assert grid[1].flatten()[shifted.places].equal(values[16:])


def test_windows_with_padding():
    model = transformer("torchvision swin")
    layout = token_layout("x", model, noise()[..., :28, :28])
    first = layout.layers[0]
    assert first.grid == (14, 14)
    assert first.places.shape == (16, 16)
    assert (first.places < 0).sum() == 16 * 16 - 14 * 14
    assert first.on_grid(torch.ones(16, 16)).eq(1).all()


class Turned(nn.Module):
    """Tokens that are no patches row by row: those of columns, or with the class token last."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.patches, self.attention = nn.Conv2d(3, 8, 8, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.place, self.head = nn.Parameter(torch.zeros(1, 17 if how == "last" else 16, 8)), nn.Linear(8, 2)

    def forward(self, x):
        x = self.patches(x)
        x = (x.mT if self.how == "columns" else x).flatten(2).mT
        if self.how == "last":
            x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        x = x + self.place
        return self.head((x + self.attention(x, x, x)[0]).mean(1))


@pytest.mark.parametrize("how", ["columns", "last"])
def test_other_tokens_than_patches_row_by_row_are_an_error(how):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Turned(how).eval()
    with pytest.raises(UnsupportedModelError, match="'attention'"):
        token_layout("x", model, noise())


def test_an_attention_that_cannot_be_seen_is_an_error():
    model = nn.MultiheadAttention(4, 2, add_zero_attn=True)
    x = torch.rand(3, 1, 4)
    with (
        pytest.raises(UnsupportedModelError),
        record_attention(model),
    ):
        model(x, x, x)


def test_an_output_without_gradient_by_the_attention_is_an_error():
    class Detached(nn.Module):
        def forward(self, x):
            return ((x @ x.mT).softmax(-1).detach() @ x.detach()).mean((1, 2))

    with pytest.raises(UnsupportedModelError):
        attention_gradients("x", Detached(), torch.rand(1, 2, 3, 4), torch.tensor([0]))
