import types

import captum.attr
import pytest
import torch
from oracles.layered import Called
from torch import nn
from torch.nn import functional
from torchvision.models import resnet18

from xaibench.explainers import UnsupportedModelError, explain
from xaibench.models import Folded

# Captum announces its hooks.
pytestmark = pytest.mark.filterwarnings("ignore:Setting (forward, )?backward hooks:UserWarning")


def made(*layers, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(*layers).double().eval()
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=0.5)
    return network


def difference(model, images, targets, baseline=0.0):
    at_images, at_baseline = model(images), model(torch.full_like(images, baseline))
    return (at_images - at_baseline).gather(1, targets[:, None])[:, 0].detach()


def test_two_layers_by_hand(two_layers):
    model, x, y = two_layers
    # Without biases the reference activations are 0: h1 gives 4, h3 -2, shared by 4 (2, 2)/4 - 2 (2, -1)/1.
    for name in ("deeplift", "deep_shap"):
        assert explain(name, model, x, y, output="logit").flatten().tolist() == pytest.approx([-2.0, 4.0])


def test_it_rescales_by_the_differences():
    # relu(x1 + 2 x2 - 1) is 3 at (2, 1) and 0 at the reference, where its input is -1: multiplier 3/4.
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2, bias=False)).double()
    model[1].weight.data, model[1].bias.data = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([-1.0]).double()
    model[3].weight.data = torch.tensor([[1.0], [0.0]]).double()
    x = torch.tensor([2.0, 1.0]).reshape(1, 1, 1, 2)
    y = torch.tensor([0])
    assert explain("deeplift", model, x, y, output="logit").flatten().tolist() == pytest.approx([1.5, 1.5])
    # Reference (1, 1): input 2, output 2; both differences are 1: multiplier 1, and only x1 differs.
    assert explain("deeplift", model, x, y, output="logit", baseline=1.0).flatten().tolist() == pytest.approx([1, 0])
    both = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).reshape(2, 1, 1, 2)
    assert explain("deep_shap", model, x, y, output="logit", baselines=both).flatten().tolist() == pytest.approx(
        [1.25, 0.75]
    )


@pytest.mark.parametrize("batch_size", [None, 2])
def test_agreement_with_captum(batch_size, double, images, targets):
    model, explained = double
    maps = explain("deeplift", model, images, targets, batch_size=batch_size, max_pool="gradient")
    theirs = captum.attr.DeepLift(explained).attribute(images.double().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)
    assert maps.abs().max() > 1e-6


def test_volumes_agree_with_captum():
    layers = (nn.Conv3d(1, 3, 2), nn.ReLU(), nn.AvgPool3d(2), nn.Conv3d(3, 4, 2), nn.Sigmoid(), nn.Flatten())
    model = made(*layers, nn.Linear(32, 2))
    volumes = torch.randn(3, 1, 7, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([0, 1, 1])
    maps = explain("deeplift", model, volumes, targets, output="logit")
    theirs = captum.attr.DeepLift(model).attribute(volumes.clone().requires_grad_(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0].detach(), rtol=1e-10, atol=1e-12)
    assert maps.abs().max() > 1e-3


@pytest.mark.parametrize(
    "layer",
    [nn.GroupNorm(2, 4), nn.InstanceNorm3d(4, affine=True), nn.InstanceNorm3d(4, track_running_stats=True)],
    ids=["groups", "instances", "running instances"],
)
def test_the_difference_passes_through_normalizations_and_upsampling_of_volumes(layer):
    layers = (nn.Conv3d(1, 4, 2), layer, nn.SiLU(), nn.Upsample(scale_factor=2, mode="trilinear"), nn.Conv3d(4, 2, 3))
    model = made(*layers, nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(16, 2))
    volumes = torch.randn(3, 1, 4, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([0, 1, 1])
    for baseline in (0.0, 0.4):
        maps = explain("deeplift", model, volumes, targets, output="logit", baseline=baseline)
        expected = difference(model, volumes, targets, baseline)
        torch.testing.assert_close(maps.flatten(1).sum(1), expected, rtol=1e-9, atol=1e-9)
        assert expected.abs().min() > 1e-3


def test_deep_shap_with_zeros_is_deeplift_and_with_baselines_captums(double, images, targets):
    model, explained = double
    torch.testing.assert_close(
        explain("deep_shap", model, images, targets), explain("deeplift", model, images, targets)
    )
    baselines = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    maps = explain("deep_shap", model, images, targets, baselines=baselines, batch_size=6, max_pool="gradient")
    theirs = captum.attr.DeepLiftShap(explained).attribute(images.double(), baselines.double(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)


def with_a_relu_for_each_place(model):
    """A ResNet-18 whose blocks have two ReLUs, as Captum needs it."""

    def forward(block, x):
        identity = x if block.downsample is None else block.downsample(x)
        return block.relu2(block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x))))) + identity)

    for module in model.modules():
        if type(module).__name__ == "BasicBlock":
            module.relu2 = nn.ReLU()
            module.forward = types.MethodType(forward, module)
    return model


def residual():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return resnet18(num_classes=3).double().eval()


def test_agreement_on_a_resnet_whose_relus_are_shared():
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([0, 2])
    theirs = captum.attr.DeepLift(with_a_relu_for_each_place(residual()))
    theirs = theirs.attribute(images.clone().requires_grad_(), target=targets).sum(1)
    maps = explain("deeplift", residual(), images, targets, output="logit", max_pool="gradient")
    torch.testing.assert_close(maps, theirs.detach(), rtol=1e-6, atol=1e-9)


def test_overlapping_windows_sum_to_the_difference():
    """A ResNet against a reference image that is not all zeros behind the stem."""
    model, targets = residual(), torch.tensor([0, 2])
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    baseline = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = (model(images) - model(baseline)).gather(1, targets[:, None])[:, 0].detach()
    for rule, exact in (("difference", True), ("gradient", False)):
        maps = explain("deep_shap", model, images, targets, output="logit", baselines=baseline, max_pool=rule)
        assert ((maps.sum((1, 2)) - expected).abs().max() < 1e-9) == exact


@pytest.mark.parametrize("name", ["deeplift", "deep_shap"])
def test_by_default_the_map_of_a_logit_sums_to_its_difference(cnn, images, targets, name):
    # Pooling follows a ReLU in this network, where Captum's rule is never reached.
    maps = explain(name, cnn, images, targets, output="logit", dtype=torch.float64)
    expected = difference(cnn.double().eval(), images.double(), targets)
    torch.testing.assert_close(maps.sum((1, 2)), expected, rtol=1e-9, atol=1e-10)


def test_max_pooling_by_hand():
    # Windows (3, 1) and (1, 2) of the image, (0, 4) and (4, 0) of the baseline: 3 and 2 against 4 and 4.
    model = nn.Sequential(nn.MaxPool2d((1, 2), stride=1), nn.Flatten(), nn.Linear(2, 2, bias=False)).double()
    model[2].weight.data = torch.tensor([[1.0, 10.0], [0.0, 0.0]]).double()
    x, baseline = (torch.tensor(v).double().reshape(1, 1, 1, 3) for v in ([3.0, 1.0, 2.0], [0.0, 4.0, 0.0]))
    maps = explain("deep_shap", model, x, torch.tensor([0]), output="logit", baselines=baseline)
    # The larger of both outputs is 4 in both windows: 4 - 4 = 0 is gained at the image's largest inputs, and 3 - 4
    # and 2 - 4 are lost at the baseline's, which is the middle one for both windows.
    assert maps.flatten().tolist() == pytest.approx([0.0, 1 * -1 + 10 * -2, 0.0])
    parameters = {"output": "logit", "baselines": baseline, "max_pool": "gradient"}
    gradient = explain("deep_shap", model, x, torch.tensor([0]), **parameters)
    assert gradient.flatten().tolist() == pytest.approx([1 * (3 - 0), 0.0, 10 * (2 - 0)])


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU6(), nn.SiLU(), nn.GELU(), nn.Hardswish(), nn.PReLU(), Called(torch.relu), Called(functional.elu)],
    ids=lambda layer: type(layer).__name__,
)
def test_any_elementwise_activation_is_rescaled(activation, images, targets):
    model = made(nn.Flatten(), nn.Linear(64, 6), activation, nn.Linear(6, 6), activation, nn.Linear(6, 2))
    with torch.no_grad():
        model[1].weight.mul_(3)  # some inputs of ReLU6 are above 6
    # On the CPU: CUDA's Hardswish multiplies by a sixth of float32 in float64, too.
    maps = explain("deeplift", model, images, targets, output="logit", device="cpu")
    expected = difference(model, images.double(), targets)
    torch.testing.assert_close(maps.sum((1, 2)), expected, rtol=1e-9, atol=1e-10)


class Squeezed(nn.Module):
    """A product of two branches, one of them broadcast, and one of a tensor with itself."""

    def __init__(self):
        super().__init__()
        self.layers = made(nn.Conv2d(1, 3, 3), nn.SiLU(), nn.Conv2d(3, 3, 1), nn.Linear(3, 2))

    def forward(self, x):
        x = self.layers[1](self.layers[0](x))
        x = x * self.layers[2](x.mean((2, 3), keepdim=True)).sigmoid()
        return self.layers[3]((x * x).mean((2, 3)))


def test_products_are_shared(images, targets):
    model = Squeezed()
    maps = explain("deeplift", model, images, targets, output="logit", baseline=0.5)
    expected = difference(model, images.double(), targets, 0.5)
    torch.testing.assert_close(maps.sum((1, 2)), expected, rtol=1e-9, atol=1e-10)


def test_the_log_sum_exp_passes_its_gradient(mlp, images, targets):
    model = made(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 5))
    folded = Folded(model, {"a": [0, 3], "b": [1, 2, 4]})
    maps = explain("deeplift", folded, images, torch.ones(7, dtype=torch.int64), output="logit", dtype=torch.float64)
    shares = model(images.double())[:, [1, 2, 4]].softmax(1).detach()
    members = [explain("deeplift", model, images, torch.full((7,), j), output="logit") for j in (1, 2, 4)]
    expected = sum(share[:, None, None] * member for share, member in zip(shares.T, members, strict=True))
    torch.testing.assert_close(maps, expected, rtol=1e-10, atol=1e-12)


def test_contributions_that_cancel_beyond_precision_are_refused():
    torch.manual_seed(0)
    blocks = [(nn.Conv2d(3 if k == 0 else 4, 4, 3, padding=1, bias=False), nn.GroupNorm(1, 4)) for k in range(9)]
    layers = [layer for block in blocks for layer in (*block, nn.ReLU())]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).double().eval()
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    with pytest.raises(UnsupportedModelError, match="deep_shap, baselines=images"):
        explain("deeplift", model, images, 0, output="logit")
    references = torch.rand(3, 3, 8, 8, dtype=torch.float64)
    maps = explain("deep_shap", model, images, 0, output="logit", baselines=references)
    with torch.no_grad():
        expected = model(images)[:, 0] - model(references)[:, 0].mean()
    torch.testing.assert_close(maps.sum((1, 2)), expected)
