import pytest
import torch
from refusals import refused
from torch import nn
from torchvision.models import SwinTransformer, VisionTransformer, resnet18

from xaibench.explainers import ExplainedOutput, UnsupportedModelError, build, explain
from xaibench.explainers.shared.layers import (
    Layer,
    activations,
    activations_and_gradients,
    fastest_layout,
    find_finer_layers,
    find_layer,
    forward_rows,
    resize_maps,
)
from xaibench.models import Wrapped


def small_vit():
    return VisionTransformer(16, 4, 2, 2, 8, 16, num_classes=3).eval()


class Tokens(nn.Module):
    """Patches cut by a linear layer, with or without a class token, and no nn.MultiheadAttention."""

    def __init__(self, class_token):
        super().__init__()
        self.class_token = class_token
        self.embed = nn.Linear(3 * 16, 5)
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        tokens = self.embed(patches)
        if self.class_token:
            tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)
        return self.head(self.norm(tokens).mean(1))


def images(channels=3, size=16, n=2):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


def stack(*layers):
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        # the feature map before global pooling, although other layers make the same tensor
        (stack(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), "1"),
        # before the last max-pooling, also where a container ends in it
        (
            stack(stack(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), nn.Flatten(), nn.Linear(196, 2)),
            "0.1",
        ),
        # a pooling that enlarges is no feature map either
        (
            stack(nn.Conv2d(3, 4, 3, 2), nn.ReLU(True), nn.MaxPool2d(3), nn.AdaptiveAvgPool2d(7), nn.Flatten()),
            "1",
        ),
        # a map of one position does not know where it looks
        (stack(nn.Conv2d(3, 4, 8, 8), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.ReLU(), nn.Flatten()), "1"),
        # what comes before the first convolution is the image
        (stack(nn.InstanceNorm2d(3), nn.Conv2d(3, 4, 3), nn.Flatten()), "1"),
    ],
)
def test_finds_the_last_feature_map(model, name):
    assert find_layer("X", model, images()).name == name
    assert find_layer("X", ExplainedOutput(model), images()).name == name, "names start at the network, not the head"


def test_finds_layer4_of_a_resnet():
    assert find_layer("X", resnet18().eval(), images(size=64, n=1)).name == "layer4"


def test_finds_the_tokens_before_the_last_attention():
    layer = find_layer("X", small_vit(), images())
    assert (layer.name, layer.grid) == ("encoder.layers.encoder_layer_1.ln_1", (4, 4))


@pytest.mark.parametrize("class_token", [True, False])
def test_named_tokens_fill_a_square_without_a_patch_convolution(class_token):
    layer = find_layer("X", Tokens(class_token), images(), "norm")
    assert layer.grid == (4, 4)


def test_tokens_become_maps_row_by_row_without_the_class_token():
    output = torch.arange(2 * 7 * 3).reshape(2, 7, 3)
    maps = Layer("x", nn.Identity(), (2, 3)).as_maps(output)
    assert maps.shape == (2, 3, 2, 3)
    for row in range(2):
        for column in range(3):
            assert maps[:, :, row, column].equal(output[:, 1 + 3 * row + column])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            stack(nn.Flatten(), nn.Linear(768, 2)),
            r"X: found neither a feature map .* in Sequential.*can be named .*: none",
        ),
        (Tokens(True), r"found neither a feature map .* can be named .*: 'embed', 'norm'."),
    ],
)
def test_no_layer_to_find(model, message):
    with pytest.raises(UnsupportedModelError, match=message):
        find_layer("X", model, images())


@pytest.mark.parametrize("name", ["4", "nothing", "2"])
def test_a_named_layer_must_be_spatial(name):
    model = stack(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 2))
    with pytest.raises(ValueError, match=rf"X\(layer='{name}'\): expected .*: '0', '1'\."):
        find_layer("X", model, images(), name)


def test_gradient_is_of_the_layer_itself_although_an_in_place_relu_follows():
    model = stack(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(784, 2)).double()
    x, y = images().double(), torch.tensor([0, 1])
    layer = Layer("0", model[0])
    maps, gradients = activations_and_gradients("X", model, layer, x, y)
    expected = model[0](x).detach()
    assert maps.equal(expected)
    assert (maps < 0).any()
    rows = model[3].weight[y].detach().reshape(maps.shape)
    torch.testing.assert_close(gradients, rows * (expected > 0))
    assert activations(model, layer, x).equal(expected)


def test_the_last_run_of_a_shared_layer_counts():
    relu = nn.ReLU()
    model = stack(nn.Conv2d(3, 4, 3), relu, nn.Conv2d(4, 4, 3), relu, nn.Flatten(), nn.Linear(576, 2))
    layer = find_layer("X", model, images())
    assert activations(model, layer, images()).shape[-2:] == (12, 12)


def test_no_hook_is_left_behind_when_the_model_raises():
    model = stack(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 2))
    refused(RuntimeError, "mat1 and mat2", lambda: activations(model, Layer("0", model[0]), images(size=12)))
    refused(RuntimeError, "mat1 and mat2", lambda: find_layer("X", model, images(size=12)))
    assert not any(module._forward_hooks for module in model.modules())


def test_tokens_that_do_not_reach_the_output_are_an_error():
    model, x = small_vit(), images()
    nn.init.normal_(model.heads.head.weight)
    layer = find_layer("X", model, x, "encoder.ln")
    with pytest.raises(UnsupportedModelError, match="encoder"):
        activations_and_gradients("X", model, layer, x, torch.tensor([0, 1]))


def test_a_layer_off_the_way_to_the_output_is_an_error():
    layers = stack(nn.Conv2d(3, 4, 3), nn.Linear(4, 2))
    model = Wrapped(layers, lambda layers, x: layers[1](layers[0](x).detach().mean((2, 3))))
    layer, targets = Layer("network.0", layers[0]), torch.tensor([0, 1])
    refused(UnsupportedModelError, "'network.0'", activations_and_gradients, "X", model, layer, images(), targets)


def test_resize_none_keeps_the_map():
    maps = images(1, 3)[:, 0]
    assert resize_maps(maps, (9, 9), None) is maps


def test_rows_are_as_asked_for():
    assert forward_rows(images(), 3) == 3
    assert forward_rows(torch.empty(1, 3, 224, 224, device="meta"), None) >= 8


def test_layout_is_channels_last_only_where_the_network_can():
    assert fastest_layout(stack(nn.Conv2d(3, 4, 3), nn.Flatten()), images()) == torch.channels_last
    assert (
        fastest_layout(Wrapped(nn.Conv2d(3, 4, 3), lambda conv, x: conv(x).view(len(x), -1)), images())
        == torch.contiguous_format
    )
    assert fastest_layout(stack(nn.Flatten()), images()) == torch.contiguous_format
    volume = torch.zeros(1, 3, 4, 5, 5)
    assert fastest_layout(stack(nn.Conv3d(3, 4, 3), nn.Flatten()), volume) == torch.channels_last_3d
    assert fastest_layout(stack(nn.Conv3d(3, 4, 3), nn.Flatten()), volume.double()) == torch.contiguous_format


class Attention(nn.Module):
    """Of queries and keys of its own, as timm's: their layers return four dimensions, which are no map."""

    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        self.k_norm, self.drop = nn.Identity(), nn.Dropout()

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = self.drop((q @ self.k_norm(k).mT).softmax(-1))
        return x + (weights @ v).transpose(1, 2).reshape(n, tokens, width)


class TimmLike(nn.Module):
    """A vision transformer with attention of its own; with windows, one as in Swin, channels last."""

    def __init__(self, width=8, windows=False):
        super().__init__()
        self.embed, self.attn, self.norm = nn.Conv2d(3, width, 4, 4), Attention(width), nn.LayerNorm(width)
        self.head, self.windows = nn.Linear(width, 2), windows

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        n, h, w, width = x.shape
        if self.windows:
            x = self.attn(x.unflatten(1, (2, -1)).unflatten(3, (2, -1)).transpose(2, 3).reshape(4 * n, -1, width))
            return self.head(self.norm(x.reshape(n, h, w, width)).mean((1, 2)))
        return self.head(self.norm(self.attn(x.flatten(1, 2))).mean(1))


@pytest.mark.parametrize("windows", [False, True])
def test_what_an_attention_makes_is_no_feature_map(windows):
    model = TimmLike(windows=windows).eval()
    found = find_layer("gradcam", model, images())
    assert (found.name, found.grid, found.channels_last) == ("norm", None if windows else (4, 4), windows)
    for name in ("attn.k_norm", "attn.drop"):
        with pytest.raises(ValueError, match=rf"gradcam\(layer='{name}'\): expected a layer .* feature map"):
            find_layer("gradcam", model, images(), name)
    assert find_layer("gradcam", model, images(), "embed").grid is None
    if not windows:
        assert find_layer("gradcam", model, images(), "norm").grid == (4, 4)


def test_a_map_lies_as_the_image_does():
    # Features of 12 by 6 positions are made to 3 by 24, which are no places of the image any more.
    layers = stack(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1))
    turned = Wrapped(layers, lambda layers, x: layers[1](layers[0](x).reshape(len(x), 4, 3, 24)).mean((2, 3)))
    x = images()[..., :12, :6]
    assert find_layer("gradcam", turned, x).name == "network.0"


def names_of_finer_layers(model, size, layer=None):
    given = images(size=size)
    found = find_finer_layers("Mine", model, given, find_layer("Mine", model, given, layer))
    return [each.name for each in found]


def test_finer_layers_are_the_last_feature_maps_of_larger_sizes():
    assert names_of_finer_layers(resnet18().eval(), 64) == ["layer3", "layer2", "layer1", "relu"]
    assert names_of_finer_layers(resnet18().eval(), 64, "layer2") == ["layer1", "relu"]


def test_finer_layers_of_a_transformer_are_the_tokens_before_earlier_attentions():
    assert names_of_finer_layers(small_vit(), 16) == ["encoder.layers.encoder_layer_0.ln_1"]


def test_finer_layers_of_a_swin_transformer_are_the_last_maps_of_larger_grids():
    model = SwinTransformer([4, 4], 12, [1, 2, 1], [1, 2, 2], [2, 2], num_classes=3).eval()
    assert names_of_finer_layers(model, 32) == ["features.3", "features.1"]


def image_by_image():
    """A network that calls its layers once per image."""
    torch.manual_seed(0)
    layers = stack(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    return Wrapped(layers, lambda layers, x: torch.cat([layers(image[None]) for image in x]))


@pytest.mark.parametrize("name", ["gradcam", "scorecam", "ablationcam", "fullgrad", "crp", "lrp", "ig2"])
def test_layers_that_get_one_image_at_a_time(name):
    model, images = image_by_image(), torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    part = build(name).fit(model, [images]) if name == "ig2" else name
    refused(UnsupportedModelError, "batch_size=1", explain, part, model, images, [0, 1, 0])
    alone = explain(part, model, images, [0, 1, 0], batch_size=1)
    torch.testing.assert_close(alone, explain(part, Wrapped(model.network, lambda body, x: body(x)), images, [0, 1, 0]))


def test_patterns_of_layers_that_get_one_image_at_a_time():
    part, batches = build("pattern_net"), [torch.rand(3, 1, 6, 6)]
    refused(UnsupportedModelError, "'network.0'", part.fit, image_by_image(), batches)
