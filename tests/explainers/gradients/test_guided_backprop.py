import captum.attr
import pytest
import torch
from oracles.layered import Called
from torch import nn
from torch.nn import functional
from torchvision.models import resnet18

from xaibench.explainers import ExplainedOutput, UnsupportedModelError, build, explain

# Captum announces its hooks.
pytestmark = pytest.mark.filterwarnings("ignore:Setting (forward, )?backward hooks:UserWarning")

METHODS = {"guided_backprop": captum.attr.GuidedBackprop, "deconvolution": captum.attr.Deconvolution}


def test_two_layers_by_hand(two_layers):
    model, x, y = two_layers
    # Gradient: h1 and h3 are active: 1 (1, 2) - 2 (1, -1).
    assert explain("saliency", model, x, y, output="logit").flatten().tolist() == [-1.0, 4.0]
    # Guided: only what comes back positive and was active: h1.
    assert explain("guided_backprop", model, x, y, output="logit").flatten().tolist() == [1.0, 2.0]
    # Deconvolution: what comes back positive, active or not: h1 and h2, 1 (1, 2) + 5 (-1, 1).
    assert explain("deconvolution", model, x, y, output="logit").flatten().tolist() == [-4.0, 7.0]


@pytest.mark.parametrize("relu6", [nn.ReLU6(), nn.ReLU6(inplace=True), Called(functional.relu6)])
def test_relu6_is_active_between_0_and_6(relu6, linear):
    # Hidden: the pixels times 1, 1, 1 and -1; only the second is between 0 and 6.
    model = nn.Sequential(linear(*torch.diag(torch.tensor([1.0, 1.0, 1.0, -1.0])).tolist()), relu6)
    model.append(linear([2.0, 3.0, -4.0, 5.0], [0.0] * 4)[1])
    x = torch.tensor([7.0, 1.0, 2.0, 1.0]).reshape(1, 1, 2, 2).double()
    maps = explain("guided_backprop", model, x, torch.tensor([0]), output="logit")
    assert maps.flatten().tolist() == [0, 3, 0, 0]
    maps = explain("deconvolution", model, x, torch.tensor([0]), output="logit")
    assert maps.flatten().tolist() == [2, 3, 0, -5]


def test_guided_gradcam_by_hand():
    convolution = nn.Conv2d(1, 2, 1, bias=False).double()
    convolution.weight.data = torch.tensor([1.0, -1.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    last = nn.Linear(8, 2, bias=False).double()
    last.weight.data = torch.tensor([[1.0] * 4 + [2.0] * 4, [0.0] * 8], dtype=torch.float64)
    model = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), last)
    x = torch.tensor([[1.0, 2.0], [-3.0, 0.5]], dtype=torch.float64).reshape(1, 1, 2, 2)
    maps = explain("guided_gradcam", model, x, torch.tensor([0]), output="logit")
    # The logit is relu(x) + 2 relu(-x), summed. The mean gradient of the channel x is 3/4 (active in three of four), of
    # the channel -x it is 2/4: CAM = relu(3/4 x + 2/4 (-x)). Guided gradient: 1 where x > 0, -2 where x < 0.
    cam = torch.relu(0.75 * x - 0.5 * x)[0, 0]
    guided = torch.where(x > 0, 1.0, -2.0)[0, 0]
    torch.testing.assert_close(maps[0], cam * guided)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_agreement_with_captum(name, batch_size, double, images, targets):
    model, explained = double
    maps = explain(name, model, images, targets, batch_size=batch_size)
    theirs = METHODS[name](explained).attribute(images.double().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)
    assert maps.abs().max() > 1e-6


def resnet():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return resnet18(num_classes=3).double().eval()


@pytest.mark.parametrize("name", [*METHODS, "guided_gradcam"])
def test_agreement_on_a_resnet(name):
    model, targets = resnet(), torch.tensor([0, 2])
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    explained = ExplainedOutput(model)
    method = (
        METHODS[name](explained)
        if name in METHODS
        else captum.attr.GuidedGradCam(explained, model.get_submodule("layer3.0"))
    )
    theirs = method.attribute(images.clone().requires_grad_(), target=targets).sum(1)
    parameters = {} if name in METHODS else {"layer": "layer3.0"}
    maps = explain(name, model, images, targets, **parameters)
    torch.testing.assert_close(maps, theirs, rtol=1e-8, atol=1e-9 * theirs.abs().max().item())


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


@pytest.mark.parametrize("name", METHODS)
def test_a_relu_is_a_relu_however_it_is_called(name, images, targets):
    first, last = nn.Linear(64, 8), nn.Linear(8, 2)
    expected = explain(name, nn.Sequential(nn.Flatten(), first, nn.ReLU(), last), images, targets)
    assert not torch.allclose(expected, explain("saliency", nn.Sequential(nn.Flatten(), first, last), images, targets))
    for relu in (nn.ReLU(inplace=True), Called(functional.relu), Called(torch.relu), Called(lambda x: x.relu_())):
        model = nn.Sequential(nn.Flatten(), first, relu, last)
        torch.testing.assert_close(explain(name, model, images, targets), expected)


@pytest.mark.parametrize("name", METHODS)
def test_without_any_relu_they_are_the_gradient(name, linear):
    model = linear([1.0, -2.0, 3.0, 0.5], [0.0, 1.0, 0.0, -1.0])
    x = torch.tensor([2.0, 1.0, -1.0, 4.0]).reshape(1, 1, 2, 2).double()
    gradient = explain("saliency", model, x, torch.tensor([0]))
    torch.testing.assert_close(explain(name, model, x, torch.tensor([0])), gradient)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning", "ignore:.*is deprecated:DeprecationWarning")
def test_a_network_that_hides_its_layers_is_an_error(images, targets):
    model = torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 2)), images)
    with pytest.raises(UnsupportedModelError):
        build("guided_backprop")(model, images, targets)
