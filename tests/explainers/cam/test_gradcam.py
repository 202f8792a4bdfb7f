import math

import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle
from oracles.layered import Called
from part_cases import ExplainerCase
from torch import nn
from torchvision.models import DenseNet, VisionTransformer, resnet18

from xaibench.explainers import ExplainedOutput, UnsupportedModelError, explain
from xaibench.explainers.cam.gradcam import (
    CAM,
    EigenCAM,
    GradCAM,
    GradCAMPlusPlus,
    LayerCAM,
    ScoreCAM,
)
from xaibench.explainers.shared.layers import resize_maps
from xaibench.models import Folded, Wrapped

ALL = (CAM, GradCAM, GradCAMPlusPlus, LayerCAM, ScoreCAM, EigenCAM)
CASES = {"cam": ExplainerCase(network="pooled")}


@pytest.fixture(params=[True, False], ids=["pooled", "flattened"])
def model(request):
    return build(pool=request.param).double()


@pytest.mark.parametrize(
    ("explainer", "slow"),
    [
        (GradCAM(resize=None), oracle.gradcam),
        (GradCAMPlusPlus(resize=None, epsilon=0.0), oracle.gradcam_plus_plus),
        (LayerCAM(resize=None), oracle.layercam),
        (ScoreCAM(resize=None), oracle.scorecam),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_oracle(model, explainer, slow):
    images, targets = batch()
    maps = explainer(model, images, targets)
    assert maps.shape == (3, 4, 4)
    assert (maps.flatten(1).amax(1) > 0).any()
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, slow(*pieces(model), image, target), rtol=1e-6, atol=1e-7)


def test_cam_oracle_and_its_mean_is_the_logit():
    model = build().double()
    images, targets = batch()
    maps = CAM(resize=None)(model, images, targets)
    head = model[-1]
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.cam(pieces(model)[0], head.weight, image, target))
    logits = model(images).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(maps.mean((1, 2)) + head.bias[targets], logits)
    assert (maps < 0).any()
    torch.testing.assert_close(GradCAM(resize=None)(model, images, targets), maps.relu() / maps[0].numel())


def test_cam_of_a_function_of_the_logits_is_the_gradient_weighted_sum():
    images, targets = batch()
    targets, plain = targets % 2, build(pool=True).double()
    plain[-1] = nn.Linear(5, 6).double()
    groups = {"a": [0, 3], "b": [1, 2, 4]}
    for weighting in ("mean", "sum"):
        maps = CAM(resize=None)(Folded(plain, groups, weighting), images, targets)
        for found, image, target in zip(maps, images, targets.tolist(), strict=True):
            members = groups[("a", "b")[target]]
            shares = plain(image[None])[0, members].softmax(0)
            each = [oracle.cam(pieces(plain)[0], plain[-1].weight, image, j) for j in members]
            torch.testing.assert_close(found, sum(s * m for s, m in zip(shares, each, strict=True)).detach())
    # A function that does nothing changes nothing.
    doubled = CAM(resize=None)(nn.Sequential(plain, Called(lambda x: 2 * x)), images, targets)
    torch.testing.assert_close(doubled, 2 * CAM(resize=None)(plain, images, targets))
    # Grad-CAM of the same is its ReLU, as it is of a plain network.
    maps = CAM(resize=None)(Folded(plain, groups), images, targets)
    gradcam = GradCAM(resize=None)(Folded(plain, groups), images, targets)
    torch.testing.assert_close(gradcam, maps.relu() / maps[0].numel())


#: Its logits depend on the features not only through the linear layer.
PAST_THE_HEAD = Wrapped(build(), lambda head, x: head(x) + x.mean((1, 2, 3))[:, None])


def test_cam_of_large_activations_in_single_precision():
    """Rounding grows with the largest activation, also where positive and negative ones cancel in the mean."""
    images, targets = batch(8, dtype=torch.float32)
    for seed in range(5):
        model = build(seed)
        model[0][3] = nn.Identity()
        with torch.no_grad():
            model[0][2].weight.mul_(1e6)
            model[0][2].bias.sub_(model[0](images[:1]).mean((0, 2, 3)))
        maps = CAM(resize=None)(model, images, targets)
        expected = CAM(resize=None)(model.double(), images.double(), targets).float()
        torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("centered", [True, False])
def test_eigencam_oracle(model, centered):
    images, targets = batch()
    maps = EigenCAM(resize=None, centered=centered)(model, images, targets)
    for found, image in zip(maps, images, strict=True):
        expected = oracle.eigencam(pieces(model)[0], image, centered=centered)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(maps, EigenCAM(resize=None, centered=centered)(model, images, targets.flip(0)))


def by_hand():
    """Two feature maps, x and 2 - x; logits 3 mean(x) and the mean of the second minus that of the first."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1))
        model[0].bias.copy_(torch.tensor([0.0, 2.0]))
        model[3].weight.copy_(torch.tensor([[3.0, 0.0], [-1.0, 1.0]]))
    return model.eval()


def test_maps_by_hand():
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).reshape(1, 1, 2, 2)
    model, first, second = by_hand(), torch.tensor([0]), torch.tensor([1])
    torch.testing.assert_close(CAM()(model, x, first), 3 * x[0])
    torch.testing.assert_close(CAM()(model, x, second), 2 - 2 * x[0])
    # gradients: a quarter of the weights, everywhere
    torch.testing.assert_close(GradCAM()(model, x, second), (2 - 2 * x[0]).relu() / 4)
    torch.testing.assert_close(LayerCAM()(model, x, second), (2 - x[0]).relu() / 4)
    # first logit: g = 3/4 and sum A = 6: alpha = 1 / (2 + 4.5), four positions
    torch.testing.assert_close(GradCAMPlusPlus(epsilon=0.0)(model, x, first), 4 * 0.75 / 6.5 * x[0])
    # masks x/3 and 1 - x/3: the first logit is 3 mean(x · mask) = 3.5 and 1
    weights = torch.tensor([3.5, 1.0]).softmax(0)
    torch.testing.assert_close(ScoreCAM()(model, x, first), weights[0] * x[0] + weights[1] * (2 - x[0]))
    # features (x, 2 - x), centered: all variance along (1, -1) / sqrt 2; the value of largest magnitude is positive
    for skewed in (x**2, 9 - x**2):
        centered = x[0] ** 2 - 3.5
        torch.testing.assert_close(EigenCAM()(model, skewed, first), math.sqrt(2) * centered)


def test_grad_cam_plus_plus_epsilon_damps_small_gradients():
    images, targets = batch()
    model = build().double()
    with torch.no_grad():
        model[-1].weight.mul_(1e-3)
    exact, damped = (GradCAMPlusPlus(epsilon=eps)(model, images, targets) for eps in (0.0, 1e-6))
    assert damped.amax() < 0.5 * exact.amax()
    assert exact.amax() > 0


@pytest.mark.parametrize("explainer", [GradCAM, GradCAMPlusPlus, LayerCAM, ScoreCAM], ids=lambda part: part.__name__)
@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "flattened"])
def test_parity_with_the_grad_cam_package(explainer, pool):
    model = build(pool=pool)
    images, targets = batch(6, torch.float32)
    theirs = package_maps(explainer.__name__, model, model[0], images, targets)
    ours = explainer()(model, images, targets)
    seen = ours.amax((1, 2)) > 0
    assert seen.sum() >= 3
    torch.testing.assert_close(unit(ours[seen]), theirs[seen], rtol=0, atol=1e-4)


def test_parity_of_eigencam_up_to_its_sign():
    model = build(pool=False)
    images, targets = batch(6, torch.float32)
    ours = EigenCAM(resize=None)(model, images, targets)
    theirs = package_maps("EigenCAM", model, model[0], images, targets)
    for positive, negative, their in zip(ours.relu(), (-ours).relu(), theirs, strict=True):
        gaps = [
            (unit(resize_maps(unit(values[None]), images.shape[-2:], "bilinear"))[0] - their).abs().max()
            for values in (positive, negative)
        ]
        assert min(gaps) < 1e-4


def test_parity_on_a_resnet_and_by_name():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = resnet18(num_classes=4).eval()
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([1, 3])
    for explainer in (GradCAM, GradCAMPlusPlus, LayerCAM):
        ours = explainer()(model, images, targets)
        named = explainer(layer="layer4.1")(model, images, targets)
        assert ours.equal(named)
        theirs = package_maps(explainer.__name__, model, model.layer4, images, targets)
        torch.testing.assert_close(unit(ours), theirs, rtol=0, atol=1e-4)
    earlier = GradCAM(layer="layer2", resize=None)(model, images, targets)
    assert earlier.shape == (2, 8, 8)
    assert CAM(resize=None)(model, images, targets).shape == (2, 2, 2)


def small_vit():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = VisionTransformer(16, 4, 2, 2, 8, 16, num_classes=3).eval()
        nn.init.normal_(model.heads.head.weight)
        return model


@pytest.mark.parametrize("explainer", [GradCAM, GradCAMPlusPlus, LayerCAM], ids=lambda part: part.__name__)
def test_parity_on_a_vision_transformer(explainer):
    model, targets = small_vit(), torch.tensor([0, 2])
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))

    def patches(tokens):
        return tokens[:, 1:].reshape(len(tokens), 4, 4, -1).permute(0, 3, 1, 2)

    layer = model.encoder.layers[-1].ln_1
    theirs = package_maps(explainer.__name__, model, layer, images, targets, reshape_transform=patches)
    ours = explainer()(model, images, targets)
    assert (ours.amax((1, 2)) > 0).all()
    torch.testing.assert_close(unit(ours), theirs, rtol=0, atol=1e-4)


def test_explained_output():
    images, targets = batch()
    model = build().double()
    logit, probability = (
        GradCAM()(ExplainedOutput(model, output), images, targets) for output in ("logit", "probability")
    )
    assert logit.equal(GradCAM()(model, images, targets))
    assert not torch.allclose(logit, probability)
    assert all(explainer.explains == "logit" for explainer in ALL)
    assert CAM()(ExplainedOutput(model, "probability"), images, targets).equal(CAM()(model, images, targets))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (build(pool=False), r"inputs of '2' \(Linear\) are not the means of layer '0' \(Sequential\).*gradcam"),
        (PAST_THE_HEAD, r"the network continues after 'network.3' \(Linear\) with other tensors than its outputs"),
        (nn.Sequential(build(), nn.ReLU(), nn.Linear(3, 3)), r"inputs of '2' \(Linear\) are not the means"),
        (nn.Sequential(nn.Conv2d(2, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), r"found no nn.Linear"),
    ],
)
def test_cam_needs_pooling_and_one_linear_layer(model, message):
    images, targets = batch(dtype=torch.float32)
    with pytest.raises(UnsupportedModelError, match=message):
        CAM()(model.eval(), images, targets)


ACTIVATIONS = [
    nn.functional.relu,
    lambda x: nn.functional.relu(x, inplace=True),
    torch.relu,
    lambda x: x.relu_(),
    nn.functional.silu,
]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_that_is_a_function_belongs_to_the_layer(activation):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Linear(5, 2))
    # In place or not, as in torchvision's DenseNets and in tutorials.
    model = Wrapped(layers, lambda layers, x: layers[1](activation(layers[0](x)).mean((2, 3))))
    images, targets = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
    kept = nn.Sequential(layers[0], Called(activation), nn.AdaptiveAvgPool2d(1), nn.Flatten(), layers[1])
    for explainer in (CAM, GradCAM, GradCAMPlusPlus, LayerCAM, EigenCAM, ScoreCAM):
        torch.testing.assert_close(explainer()(model, images, targets), explainer()(kept, images, targets))
    named = explain("gradcam", model, images, targets, layer="network.0")
    assert not named.allclose(explain("gradcam", model, images, targets))  # a layer that is named is taken as it is


def test_torchvisions_densenet_is_a_network_for_cam():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = DenseNet(4, (1, 1), 8, num_classes=3).eval()
    images, targets = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 2])
    cam = CAM(resize=None)(model, images, targets)
    logits = model(images).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(cam.mean((1, 2)) + model.classifier.bias[targets], logits)
    # The gradient of a mean is the same everywhere: Grad-CAM is CAM, but for the ReLU and the number of positions.
    gradcam = GradCAM(resize=None)(model, images, targets)
    torch.testing.assert_close(gradcam * cam[0].numel(), cam.relu(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_eigen_cam_in_half_precision_is_computed_in_single(dtype):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 2))
    images, targets = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
    exact = explain("eigencam", model, images, targets)
    half = explain("eigencam", model, images, targets, dtype=dtype)
    assert half.dtype is dtype
    torch.testing.assert_close(half.float(), exact, rtol=0, atol=0.03 * exact.abs().max().item())


def test_a_map_as_large_as_the_layers_is_returned_when_asked_for():
    model = nn.Sequential(nn.Conv2d(3, 5, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 2))
    images, targets = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])
    assert explain("gradcam", model, images, targets, resize=None).shape == (2, 4, 4)
    assert explain("gradcam", model, images.numpy(), targets.numpy(), resize=None).shape == (2, 4, 4)


@pytest.mark.parametrize("explainer", [ScoreCAM, EigenCAM], ids=lambda part: part.__name__)
def test_gradient_free_methods_on_a_vision_transformer(explainer):
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    maps = explainer()(small_vit(), images, torch.tensor([0, 2]))
    assert maps.shape == (2, 16, 16)
    assert maps.std() > 0


@pytest.mark.parametrize("explainer", ALL, ids=lambda part: part.__name__)
def test_resizing_is_one_named_step(explainer):
    images, targets = batch()
    model = build().double()
    small = explainer(resize=None)(model, images, targets)
    for how in ("bilinear", "nearest"):
        assert explainer(resize=how)(model, images, targets).equal(resize_maps(small, images.shape[-2:], how))
