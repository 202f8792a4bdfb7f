import captum.attr
import pytest
import torch
from torch import nn
from torch.nn import functional

from xaibench.explainers import ExplainedOutput, UnsupportedModelError, build, explain

# Captum announces its hooks.
pytestmark = pytest.mark.filterwarnings("ignore:Setting (forward, )?backward hooks:UserWarning")


@pytest.fixture(params=["cnn", "mlp"])
def double(request):
    """Each network as the explainers see it: float64, evaluation mode, ending in the probability."""
    model = request.getfixturevalue(request.param).double().eval()
    return model, ExplainedOutput(model)


def network(*layers):
    return nn.Sequential(nn.Flatten(), *layers).double()


def weights(layer, values, bias=None):
    layer.weight.data = torch.tensor(values, dtype=torch.float64)
    if bias is not None:
        layer.bias.data = torch.tensor(bias, dtype=torch.float64)
    return layer


@pytest.fixture
def two_layers():
    """x = (2, 1); hidden = relu(W x) = relu(4, -1, 1); logit = 1 h1 + 5 h2 - 2 h3."""
    first = weights(nn.Linear(2, 3, bias=False), [[1.0, 2.0], [-1.0, 1.0], [1.0, -1.0]])
    last = weights(nn.Linear(3, 2, bias=False), [[1.0, 5.0, -2.0], [0.0, 0.0, 0.0]])
    x = torch.tensor([2.0, 1.0], dtype=torch.float64).reshape(1, 1, 1, 2)
    return network(first, nn.ReLU(), last), x, torch.tensor([0])


def by_hand(name, two_layers):
    model, x, y = two_layers
    return explain(name, model, x, y, output="logit").flatten().tolist()


def test_two_layers_by_hand(two_layers):
    # Gradient: h1 and h3 are active: 1 (1, 2) - 2 (1, -1).
    assert by_hand("saliency", two_layers) == [-1.0, 4.0]
    # Guided: only what comes back positive and was active: h1.
    assert by_hand("guided_backprop", two_layers) == [1.0, 2.0]
    # Deconvolution: what comes back positive, active or not: h1 and h2, 1 (1, 2) + 5 (-1, 1).
    assert by_hand("deconvolution", two_layers) == [-4.0, 7.0]
    # LRP: relevances h1: 4, h3: -2, each shared by the contributions: 4 (2, 2)/4 - 2 (2, -1)/1.
    assert by_hand("lrp", two_layers) == pytest.approx([-2.0, 4.0], rel=1e-7)
    # DeepLift without biases: the same contributions, since the reference activations are 0.
    assert by_hand("deeplift", two_layers) == pytest.approx([-2.0, 4.0])
    assert by_hand("deep_shap", two_layers) == pytest.approx([-2.0, 4.0])


def test_deeplift_rescales_by_the_differences():
    # relu(x1 + 2 x2 - 1) is 3 at (2, 1) and 0 at the reference, where its input is -1: multiplier 3/4.
    first = weights(nn.Linear(2, 1), [[1.0, 2.0]], [-1.0])
    model = network(first, nn.ReLU(), weights(nn.Linear(1, 2, bias=False), [[1.0], [0.0]]))
    x = torch.tensor([2.0, 1.0]).reshape(1, 1, 1, 2)
    y = torch.tensor([0])
    assert explain("deeplift", model, x, y, output="logit").flatten().tolist() == pytest.approx([1.5, 1.5])
    # Reference (1, 1): input 2, output 2; both differences are 1: multiplier 1, and only x1 differs.
    assert explain("deeplift", model, x, y, output="logit", baseline=1.0).flatten().tolist() == pytest.approx([1, 0])
    both = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).reshape(2, 1, 1, 2)
    assert explain("deep_shap", model, x, y, output="logit", baselines=both).flatten().tolist() == pytest.approx(
        [1.25, 0.75]
    )


def test_guided_gradcam_by_hand():
    convolution = nn.Conv2d(1, 2, 1, bias=False).double()
    convolution.weight.data = torch.tensor([1.0, -1.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    last = weights(nn.Linear(8, 2, bias=False), [[1.0] * 4 + [2.0] * 4, [0.0] * 8])
    model = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), last)
    x = torch.tensor([[1.0, 2.0], [-3.0, 0.5]], dtype=torch.float64).reshape(1, 1, 2, 2)
    maps = explain("guided_gradcam", model, x, torch.tensor([0]), output="logit")
    # The logit is relu(x) + 2 relu(-x), summed. The mean gradient of the channel x is 3/4 (active in three of four), of
    # the channel -x it is 2/4: CAM = relu(3/4 x + 2/4 (-x)). Guided gradient: 1 where x > 0, -2 where x < 0.
    cam = torch.relu(0.75 * x - 0.5 * x)[0, 0]
    guided = torch.where(x > 0, 1.0, -2.0)[0, 0]
    torch.testing.assert_close(maps[0], cam * guided)


METHODS = {
    "guided_backprop": captum.attr.GuidedBackprop,
    "deconvolution": captum.attr.Deconvolution,
    "deeplift": captum.attr.DeepLift,
    "lrp": captum.attr.LRP,
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_agreement_with_captum(name, batch_size, double, images, targets):
    model, explained = double
    maps = explain(name, model, images, targets, batch_size=batch_size)
    theirs = METHODS[name](explained).attribute(images.double().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)
    assert maps.abs().max() > 1e-6


def test_guided_gradcam_finds_the_last_convolution(cnn, images, targets):
    maps = explain("guided_gradcam", cnn, images, targets)
    model = cnn.double().eval()
    method = captum.attr.GuidedGradCam(ExplainedOutput(model), model.layers[9])
    theirs = method.attribute(images.double().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)
    assert maps.abs().max() > 1e-6
    torch.testing.assert_close(explain("guided_gradcam", cnn, images, targets, layer="layers.9"), maps)
    assert not explain("guided_gradcam", cnn, images, targets, layer="layers.0").allclose(maps)
    assert build("guided_gradcam").info.needs_convolution


def test_deep_shap_with_zeros_is_deeplift_and_with_baselines_captums(double, images, targets):
    model, explained = double
    torch.testing.assert_close(
        explain("deep_shap", model, images, targets), explain("deeplift", model, images, targets)
    )
    baselines = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    maps = explain("deep_shap", model, images, targets, baselines=baselines, batch_size=6)
    theirs = captum.attr.DeepLiftShap(explained).attribute(images.double(), baselines.double(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)


def test_deeplift_and_lrp_sum_to_what_they_share_out(mlp, images, targets):
    explained = ExplainedOutput(mlp.double().eval(), "logit")
    at_images = explained(images.double())[range(7), targets].detach()
    at_zero = explained(torch.zeros(1, 1, 8, 8, dtype=torch.float64))[0, targets].detach()
    maps = explain("deeplift", mlp, images, targets, output="logit")
    torch.testing.assert_close(maps.sum((1, 2)), at_images - at_zero, rtol=1e-10, atol=1e-12)
    for layer in mlp.layers:
        if isinstance(layer, nn.Linear):
            layer.bias.data.zero_()
    maps = explain("lrp", mlp, images, targets, output="logit")
    at_images = explained(images.double())[range(7), targets].detach()
    torch.testing.assert_close(maps.sum((1, 2)), at_images, rtol=1e-6, atol=1e-9)


class WithModules(nn.Module):
    """The network with layers that only move numbers written as modules."""

    def __init__(self, model):
        super().__init__()
        self.model = nn.Sequential(*model.layers[:-1], nn.Identity(), nn.Dropout2d(), nn.Flatten(), model.layers[-1])

    def forward(self, x):
        return self.model(x)


def test_lrp_passes_through_layers_that_only_move_numbers(cnn, images, targets):
    expected = explain("lrp", cnn, images, targets)
    torch.testing.assert_close(
        explain("lrp", WithModules(cnn), images, targets, dtype=torch.float64), expected, rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        ("guided_backprop", nn.GELU, r"guided_backprop: layer '1' \(GELU\) is no nn.ReLU"),
        ("deconvolution", nn.Tanh, r"deconvolution: layer '1' \(Tanh\) is no nn.ReLU"),
        ("deeplift", nn.GELU, r"deeplift: layer '1' \(GELU\) has no rescale rule. Layers that have one: ELU, .*ReLU"),
        ("deep_shap", nn.SiLU, r"deep_shap: layer '1' \(SiLU\) has no rescale rule"),
        ("lrp", nn.GELU, r"lrp: layer '1' \(GELU\) has no propagation rule. Layers that have one: .*Conv2d"),
        ("lrp", lambda: nn.LayerNorm(64), r"lrp: layer '1' \(LayerNorm\) has no propagation rule"),
    ],
)
def test_a_layer_that_cannot_be_treated_is_named(name, layer, message, images, targets):
    model = nn.Sequential(nn.Flatten(), layer(), nn.Linear(64, 2))
    with pytest.raises(UnsupportedModelError, match=message):
        explain(name, model, images, targets)


@pytest.mark.parametrize("name", ["deeplift", "deep_shap"])
def test_an_activation_that_runs_twice_is_named(name, images, targets):
    relu = nn.ReLU()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 2))
    with pytest.raises(UnsupportedModelError, match=rf"{name}: layer '2' \(ReLU\) runs 2 times in one pass"):
        explain(name, model, images, targets)


def test_a_linear_layer_that_runs_twice_is_named_by_lrp(images, targets):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.square, self.last = nn.Linear(64, 64), nn.Linear(64, 2)

        def forward(self, x):
            return self.last(self.square(self.square(x.flatten(1))))

    with pytest.raises(UnsupportedModelError, match=r"lrp: layer 'square' \(Linear\) runs 2 times"):
        explain("lrp", Twice(), images, targets)


def test_guided_gradcam_says_what_it_needs(mlp, cnn, images, targets):
    with pytest.raises(UnsupportedModelError, match=r"guided_gradcam: the network runs no nn.Conv2d"):
        explain("guided_gradcam", mlp, images, targets)
    with pytest.raises(ValueError, match=r"guided_gradcam\(layer='conv9'\): .*'layers.0', 'layers.1'"):
        explain("guided_gradcam", cnn, images, targets, layer="conv9")


def test_without_any_relu_the_relatives_are_the_gradient(linear):
    model = linear([1.0, -2.0, 3.0, 0.5], [0.0, 1.0, 0.0, -1.0])
    x = torch.tensor([2.0, 1.0, -1.0, 4.0]).reshape(1, 1, 2, 2).double()
    gradient = explain("saliency", model, x, torch.tensor([0]))
    for name in ("guided_backprop", "deconvolution"):
        torch.testing.assert_close(explain(name, model, x, torch.tensor([0])), gradient)
    expected = torch.tensor([[[2.0, -2.0], [-3.0, 2.0]]], dtype=torch.float64)
    for name in ("deeplift", "lrp"):
        torch.testing.assert_close(
            explain(name, model, x, torch.tensor([0]), output="logit"), expected, rtol=1e-7, atol=1e-9
        )


def test_an_activation_in_place_is_treated_the_same(images, targets):
    first, last = nn.Linear(64, 8), nn.Linear(8, 2)
    plain = nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)
    in_place = nn.Sequential(nn.Flatten(), first, nn.ReLU(inplace=True), last)
    for name in ("guided_backprop", "deconvolution", "deeplift", "deep_shap", "lrp", "saliency"):
        ours, theirs = (explain(name, model, images, targets, dtype=torch.float64) for model in (plain, in_place))
        torch.testing.assert_close(ours, theirs, msg=name)


def test_what_the_module_head_says_about_functions_is_true(images, targets):
    """A ReLU called as a function is not seen: Guided Backpropagation is then the gradient."""

    class Function(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.last(functional.relu(self.first(x.flatten(1))))

    model = Function()
    torch.testing.assert_close(
        explain("guided_backprop", model, images, targets), explain("saliency", model, images, targets)
    )
