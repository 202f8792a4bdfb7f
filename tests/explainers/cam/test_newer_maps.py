"""The class activation maps after Grad-CAM: their definitions, what they come down to, and the packages of others."""

import functools
import importlib

import pytest
import torch
from generators.feature_networks import batch, build, package_maps, pieces, unit
from oracles import cam as oracle
from torch import nn

from xaibench import explain
from xaibench.explainers.cam.gradcam import CAM, EigenCAM, GradCAM
from xaibench.explainers.cam.newer_maps import KPCACAM, AblationCAM, FinerCAM, HiResCAM, ShapleyCAM, XGradCAM


def flattened():
    return build(pool=False)


def curved():
    """A network whose logits are not linear in the feature maps."""
    model = build()
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(*model[:-1], nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).eval()


def many_classes():
    model = flattened()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model[-1] = nn.Linear(80, 6)
    return model


#: The definitions, with the default gamma of five feature maps.
KERNELS = {
    "sigmoid": lambda x, y: torch.tanh((x @ y) / 5 + 1),
    "rbf": lambda x, y: torch.exp(-((x - y) ** 2).sum() / 5),
    "poly": lambda x, y: ((x @ y) / 5 + 1) ** 3,
    "linear": lambda x, y: x @ y,
}


def by_kernel(kernel):
    return lambda features, head, image, target: oracle.kpcacam(features, image, kernel)


def shapley(utility):
    return lambda *asked: oracle.shapleycam(*asked, utility=utility)


def finer(count):
    return lambda *asked: oracle.finercam(*asked, gamma=0.7, n_references=count)


EXPECTED = [
    *((HiResCAM, {}, network, oracle.hirescam) for network in (build, flattened)),
    *((XGradCAM, {}, network, oracle.xgradcam) for network in (build, flattened)),
    *((AblationCAM, {"batch_size": size}, build, oracle.ablationcam) for size in (None, 4)),
    (AblationCAM, {}, flattened, oracle.ablationcam),
    (ShapleyCAM, {"utility": "rest"}, curved, shapley(oracle.rest)),
    (ShapleyCAM, {"utility": "output"}, curved, shapley(lambda outputs, target: outputs[target])),
    *((FinerCAM, {"gamma": 0.7, "n_references": count}, many_classes, finer(count)) for count in (1, 3, 9)),
    *((KPCACAM, {"kernel": name}, build, by_kernel(kernel)) for name, kernel in KERNELS.items()),
    (
        KPCACAM,
        {"kernel": "rbf", "gamma": 0.5},
        build,
        by_kernel(lambda x, y: torch.exp(-0.5 * ((x - y) ** 2).sum())),
    ),
]


@pytest.mark.parametrize(("method", "parameters", "network", "definition"), EXPECTED)
def test_oracle(method, parameters, network, definition):
    model, (images, targets) = network().double(), batch()
    maps = method(resize=None, **parameters)(model, images, targets)
    assert maps.any()
    near = {"rtol": 1e-5, "atol": 1e-6} if method is KPCACAM else {}
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, definition(*pieces(model), image, target), **near)


@pytest.mark.parametrize(
    ("name", "method", "network", "parameters"),
    [
        ("HiResCAM", HiResCAM, flattened, {}),
        ("XGradCAM", XGradCAM, flattened, {}),
        ("AblationCAM", AblationCAM, flattened, {}),
        ("ShapleyCAM", functools.partial(ShapleyCAM, utility="output"), curved, {}),
        *(("KPCA_CAM", KPCACAM, build, {"kernel": kernel}) for kernel in KERNELS),
    ],
)
def test_parity_with_the_grad_cam_package(name, method, network, parameters, monkeypatch):
    package = pytest.importorskip("pytorch_grad_cam.ablation_cam", exc_type=ImportError)
    monkeypatch.setattr(package.tqdm, "tqdm", list)
    model, (images, targets) = network(), batch(6, torch.float32)
    theirs = package_maps(name, model, model[0], images, targets, **parameters)
    if name in ("HiResCAM", "KPCA_CAM"):  # the package cuts at zero before it enlarges
        small = unit(method(resize=None, **parameters)(model, images, targets).relu())
        ours = unit(nn.functional.interpolate(small[:, None], images.shape[2:], mode="bilinear")[:, 0])
        seen = torch.ones(6, dtype=torch.bool)
    else:
        ours = unit(
            method(**parameters, **({"utility": "output"} if name == "ShapleyCAM" else {}))(model, images, targets)
        )
        seen = ours.isfinite().all((1, 2))
    if name == "AblationCAM":  # the package divides by the output
        seen = model(images).gather(1, targets[:, None])[:, 0] > 0
    assert seen.any()
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-4 if name == "KPCA_CAM" else 1e-5)


def test_the_rest_as_utility_is_that_of_the_grad_cam_package():
    package = pytest.importorskip("pytorch_grad_cam", exc_type=ImportError)
    model, (images, targets) = curved(), batch(6, torch.float32)
    kinds = importlib.import_module("pytorch_grad_cam.utils.model_targets")
    outputs = [kinds.ClassifierOutputReST(int(target)) for target in targets]
    theirs = torch.from_numpy(package.ShapleyCAM(model, [model[0]])(images.clone(), outputs))
    ours = unit(ShapleyCAM(utility="rest")(model, images, targets))
    seen = ours.isfinite().all((1, 2))
    assert seen.sum() >= 2
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("method", "network"), [(FinerCAM, many_classes), (XGradCAM, flattened)])
def test_parity_with_torch_cam(method, network):
    methods = pytest.importorskip("torchcam.methods")
    model, (images, targets) = network(), batch(6, torch.float32)
    with getattr(methods, method.__name__)(model, "0", input_shape=(2, 13, 14)) as extractor:
        theirs = extractor(targets.tolist(), model(images))[0]
    ours = unit(method(resize=None)(model, images, targets))
    seen = ours.isfinite().all((1, 2))
    assert seen.sum() >= 3
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "network", "simpler"),
    [
        (ShapleyCAM(utility="output"), build, GradCAM()),
        (FinerCAM(gamma=0.0), many_classes, GradCAM()),
        (KPCACAM(kernel="linear"), build, EigenCAM()),
    ],
)
def test_what_it_comes_down_to(method, network, simpler):
    model, asked = network().double(), batch()
    expected = simpler(model, *asked)
    torch.testing.assert_close(method(model, *asked), expected)
    assert not type(method)()(model, *asked).allclose(expected)


@pytest.mark.parametrize("network", [build, flattened])
def test_hirescam_sums_to_the_logit(network):
    model, (images, targets) = network().double(), batch()
    maps = HiResCAM(resize=None)(model, images, targets)
    assert (maps < 0).any()
    logits = model(images).gather(1, targets[:, None])[:, 0] - model[-1].bias[targets]
    torch.testing.assert_close(maps.sum((1, 2)), logits)
    if network is build:  # there it is CAM, but for the number of positions
        torch.testing.assert_close(maps * maps[0].numel(), CAM(resize=None)(model, images, targets))


def test_a_feature_map_that_sums_to_zero_has_no_weight():
    model = build().double()
    with torch.no_grad():
        model[0][2].weight[1] = 0
        model[0][2].bias[1] = -1  # a dead feature map
    maps = XGradCAM(resize=None)(model, *batch())
    assert maps.isfinite().all()
    assert maps.any()


class Shared(nn.Module):
    """A convolution that runs twice, and an activation that is a function."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3), nn.Linear(3, 2)

    def forward(self, x):
        x = self.again(torch.relu(self.again(torch.relu(self.first(x)))))
        return self.last(nn.functional.relu(x, inplace=True).mean((2, 3)))


def test_only_the_last_run_is_ablated_after_its_activation():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Shared().double().eval()
    images, targets = batch(2)
    targets = targets % 2

    def features(image):
        x = model.again(torch.relu(model.again(torch.relu(model.first(image[None])))))
        return torch.relu(x)[0].detach()

    maps = AblationCAM(resize=None)(model, images, targets)
    assert maps.any()
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.ablationcam(features, lambda maps: model.last(maps.mean((1, 2))), image, target)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("output", ["probability", "sigmoid", "margin"])
def test_another_output_is_the_utility_of_shapleycam(output):
    model, (images, targets) = flattened().double(), batch()

    def value(outputs, target):
        if output == "margin":
            return outputs[target] - torch.cat([outputs[:target], outputs[target + 1 :]]).logsumexp(0)
        return outputs.softmax(0)[target] if output == "probability" else outputs[target].sigmoid()

    maps = explain(ShapleyCAM(resize=None), model, images, targets, output=output, device="cpu")
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.shapleycam(*pieces(model), image, target, utility=value))


def test_features_that_are_equal_everywhere_give_zeros():
    images, targets = batch(2, torch.float32)
    assert not KPCACAM(resize=None)(build(), torch.ones_like(images), targets).any()
