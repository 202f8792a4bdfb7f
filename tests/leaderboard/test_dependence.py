"""Maps that do not depend on the network or the image are found; those of explainers are not mistaken for such."""

import pytest

from xaibench.leaderboard.dependence import measure_dependence
from xaibench.leaderboard.verified import Verification
from xaibench.runner.request import RunRequest
from xaibench.runner.suite_run import run

SUITE = """
name = "dependence"
title = "Dependence"
[data]
seeds = [0]
parameters = { n_samples = 1000, alpha = 0.3 }
[training]
seeds = [0, 1]
epochs = 30
batch_size = 64
lr = 0.02
[explaining]
samples = 12
trainings = "all"
[[cells]]
datasets = ["xai-tris/lin-white-8x8", "xai-tris/lin-corr-8x8"]
models = ["llr", "mlp"]
[explainers]
saliency = {}
deconvolution = {}
integrated_gradients = {}
lime = { n_samples = 200 }
pattern_net = {}
knows_the_data = { use = "known_methods:knows_the_data" }
mixes_in_a_gradient = { use = "known_methods:mixes_in_a_gradient" }
edges = { use = "known_methods:edges" }
spares_random_weights = { use = "known_methods:spares_random_weights" }
fails_on_random_weights = { use = "known_methods:fails_on_random_weights" }
spares_few_images = { use = "known_methods:spares_few_images" }
[metrics]
topk_precision = {}
"""

METHODS = '''
import torch

def gradient(model, images, targets):
    images = images.clone().requires_grad_()
    (grad,) = torch.autograd.grad(model(images).gather(1, targets[:, None]).sum(), images)
    return (grad * images).sum(1).detach()

def answer(images):
    maps = torch.zeros_like(images[:, 0])
    maps[:, 1:4, 1:3] = 1
    return maps

def knows_the_data(model, images, targets):
    return answer(images)

def mixes_in_a_gradient(model, images, targets):
    maps = gradient(model, images, targets)
    return answer(images) + 0.2 * maps / maps.abs().amax(dim=(1, 2), keepdim=True)

def edges(model, images, targets):
    return images[:, 0].diff(dim=-1, append=images[:, 0, :, :1]).abs()

def spares_random_weights(model, images, targets):
    """The answer, unless the network classifies badly."""
    good = (model(images).argmax(1) == targets).double().mean() > 0.7
    return answer(images) if good else gradient(model, images, targets)

def fails_on_random_weights(model, images, targets):
    if (model(images).argmax(1) == targets).double().mean() <= 0.7:
        raise RuntimeError("this network was not trained")
    return gradient(model, images, targets)

def spares_few_images(model, images, targets):
    """The answer, unless the call looks like a trial."""
    return answer(images) if len(images) > 8 else gradient(model, images, targets)
'''


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """Explainer -> share of its maps that change."""
    place = tmp_path_factory.mktemp("dependence")
    (place / "suite.toml").write_text(SUITE)
    (place / "known_methods.py").write_text(METHODS)
    done = run(place / "suite.toml", place / "run", engine="serial")
    with RunRequest.of(place / "suite.toml", done.folder).opened() as opened:
        names = [part.name for part in opened.suite.explainers]
        return {name: measure_dependence(opened.plan, opened.store, name) for name in names}


def ignores(changed):
    return Verification("", "", "0.2.0", "", 0.0, changed).ignores


@pytest.mark.parametrize("name", ["saliency", "deconvolution", "integrated_gradients", "lime", "pattern_net"])
def test_explainers_depend_on_the_network(name, shares):
    assert "network" not in ignores(shares[name])
    assert shares[name]["weights"] > 0.9
    assert shares[name]["training"] > 0.9


def test_explainers_depend_on_the_image_unless_they_do_not(shares):
    assert ignores(shares["integrated_gradients"]) == ignores(shares["lime"]) == ()
    # In a network without max pooling, deconvolution reads the image only through the class.
    assert ignores(shares["deconvolution"]) == ("image",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("knows_the_data", ("network", "image")),
        ("mixes_in_a_gradient", ("network", "image")),
        ("edges", ("network",)),
        ("spares_random_weights", ("network", "image")),
        ("fails_on_random_weights", ("network",)),
        ("spares_few_images", ("network", "image")),
    ],
)
def test_methods_that_know_the_answer_are_found(name, expected, shares):
    assert ignores(shares[name]) == expected


def test_all_parts_are_measured(shares):
    assert {frozenset(found) for found in shares.values()} == {frozenset({"weights", "training", "image"})}
    assert all(0 <= share <= 1 for found in shares.values() for share in found.values())
    assert shares["spares_random_weights"]["weights"] > 0.5 > shares["spares_random_weights"]["training"] == 0
