"""Parameters out of range, and explainers that are not fitted, are refused by an error that names them."""

import numpy as np
import pytest
import torch
from explainer_trials import CASE, shared_network, training_batch
from oracles.layered import Called
from refusals import refused
from torch import nn
from torch.nn import functional

from xaibench.benchmarks.xai_tris.pattern_mixture import PatternMixture
from xaibench.core.checks import ParameterError
from xaibench.explainers import EXPLAINERS, NotFittedError, UnsupportedModelError, build, explain
from xaibench.explainers.propagation.lrp import LayerwiseRelevance
from xaibench.models import Wrapped

#: Explainer, and values that are refused each alone.
BAD = {
    "ablationcam": {"resize": "cubic"},
    "agop": {"outputs": "first", "variant": "local"},
    "attention_rollout": {"resize": "cubic"},
    "attention_x_gradient": {"batch_size": 0},
    "attnlrp": {"attention_rule": "none", "gamma": -1},
    "blur_ig": {"grad_step": 0.0, "max_sigma": 0.0},
    "crp": {"concepts": (-1,), "n_concepts": 0},
    "deep_shap": {"baselines": (), "max_pool": "max"},
    "deeplift": {"max_pool": "max"},
    "finercam": {"gamma": -0.1, "n_references": 0},
    "fullgrad": {"batch_size": 0, "rescale": "all"},
    "global_mean": {"n_images": 0},
    "gradcam": {"resize": "bicubic"},
    "gradcam++": {"epsilon": -1.0},
    "gradient_pattern": {"n_training_images": 0, "neighbor_fraction": 0.0},
    "gradient_rollout": {"resize": "cubic"},
    "guided_ig": {"fraction": 1.5, "max_dist": -0.1, "n_steps": 0},
    "hsic": {"n_samples": 0, "seed": -1},
    "kernel_shap": {"baseline": np.inf, "n_samples": 2},
    "ig": {"n_steps": 0},
    "ig2": {"step_size": 0},
    "kpcacam": {"gamma": 0.0, "kernel": "cosine"},
    "legrad": {"n_layers": 0, "resize": "cubic"},
    "lime": {"alpha": -1.0, "cell_size": 0, "kernel_width": 0.0, "n_samples": 2.5},
    "lrp": {"channels": "rgb"},
    "lrp_epsilon": {"rules": 2},
    "occlusion": {"stride": True, "window": 0},
    "pattern_local": {"alpha": 0.0, "kernel_width": -1.0, "n_samples": 1, "shrinkage": 1.5, "surrogate": "ridge"},
    "pattern_net": {"signal": "both"},
    "pfi": {"group_size": 1},
    "refinecam": {"method": "cam", "n_layers": 0},
    "reliance": {"batch_size": 0, "block_size": 0, "n_samples": 1, "redraw": "other"},
    "rise": {"batch_size": -1, "grid_size": 2.5, "keep_probability": 0.0, "n_masks": 0},
    "saliency": {"batch_size": -1, "channels": "mean"},
    "scorecam": {"batch_size": 0},
    "shapleycam": {"utility": "log"},
    "smoothgrad": {"n_samples": 0, "noise": -0.1},
    "sobel": {"direction": "diagonal"},
    "sobol": {"grid_size": 0, "n_designs": 1, "resize": None},
    "xrai": {"dilation": -1, "segmentation_size": 0},
    LayerwiseRelevance: {"rule": "z", "rules": {"0": "a"}, "epsilon": -1.0},
}
MORE_BAD = [
    ("blur_ig", {"grad_step": 10**30}),
    ("gradient_pattern", {"neighbor_fraction": ""}),
    ("hsic", {"seed": 10**30}),
    ("pattern_local", {"n_samples": 2, "surrogate": "kernel_shap"}),
    ("rise", {"keep_probability": 1.5}),
    ("sobol", {"n_designs": 12}),
    (LayerwiseRelevance, {"rule": "zB"}),
    (LayerwiseRelevance, {"beta": 0.0, "alpha": 2.0}),
    (LayerwiseRelevance, {"low": 0.0, "input_rule": "zB"}),
]


@pytest.mark.parametrize(
    ("explainer", "parameters"),
    [*((explainer, {name: value}) for explainer, bad in BAD.items() for name, value in bad.items()), *MORE_BAD],
)
def test_the_error_names_the_parameter(explainer, parameters):
    name = next(iter(parameters))
    error = refused(ValueError, name, lambda: build(explainer, **parameters))
    if isinstance(error, ParameterError):
        assert error.parameter.startswith(name)


def test_numbers_of_numpy_and_tensors_are_parameters():
    assert build("ig", n_steps=np.int64(3), baseline=np.float32(0.5)).n_steps == 3
    assert build("deep_shap", baselines=torch.zeros(2, 1, 4, 4)).baselines.shape == (2, 1, 4, 4)


class Attends(nn.Module):
    """Attention without a block around it."""

    def __init__(self):
        super().__init__()
        self.patches, self.attention = nn.Conv2d(1, 4, 4, 4), nn.MultiheadAttention(4, 1, batch_first=True)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.attention(tokens, tokens, tokens)[0].mean(1)


TWICE = Wrapped(
    nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2)), lambda layers, x: layers[1](layers[0](layers[0](x.flatten(1))))
)


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.ReLU()  # so that it is no layer, but has one

    def forward(self, x):
        return x.logsumexp(1, keepdim=True)


def behind(layer):
    """A network in which this layer, or function, stands between a convolution and the output."""
    layer = layer if isinstance(layer, nn.Module) else Called(layer)
    model = nn.Sequential(nn.Conv2d(1, 3, 5), layer, nn.Flatten(), nn.LazyLinear(2)).double().eval()
    with torch.no_grad():
        model(torch.rand(2, 1, 8, 8, dtype=torch.float64))
    return model


def flat(*layers):
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 2))


CONV = behind(nn.ReLU())
WHITE = PatternMixture(np.zeros((1, 4, 4)), np.full((1, 4, 4), 0.5), np.eye(4), np.ones(1))
BAD_FOR_THE_IMAGES = [
    ("crp", {"layer": "7"}, "layer"),
    ("crp", {"concepts": (1, 4)}, "concepts"),
    ("deep_taylor", {"input_rule": "zB", "low": -0.1, "high": 0.1}, "low"),
    ("deep_taylor", {"input_rule": "zB", "low": (0.0, 1.0, 2.0, 3.0), "high": 4.0}, "(0.0, 1.0, 2.0, 3.0)"),
    ("gradcam", {"layer": nn.Conv2d(1, 4, 3)}, "layer"),
    ("gradient_shap", {"baselines": torch.zeros(3, 1, 4, 4)}, "baselines"),
    ("guided_gradcam", {"layer": "conv9"}, "layer"),
    ("guided_gradcam", {"layer": nn.Conv2d(1, 4, 3)}, "layer"),
    ("lime", {"feature_mask": "cells"}, "feature_mask"),
    ("lime", {"feature_mask": torch.zeros(8, 8)}, "feature_mask"),
    ("lime", {"feature_mask": torch.zeros(4, 8, dtype=int)}, "feature_mask"),
    ("lime", {"feature_mask": torch.zeros(3, 8, 8, dtype=int)}, "feature_mask"),
    ("lrp_epsilon", {"rules": {"conv1": "z+"}}, "conv1"),
    ("occlusion", {"window": 2, "stride": 3}, "stride"),
    ("occlusion", {"window": 10}, "window"),
    ("reliance", {}, "distribution"),
    ("reliance", {"distribution": WHITE}, "distribution"),
]


@pytest.mark.parametrize(("explainer", "parameters", "named"), BAD_FOR_THE_IMAGES)
def test_what_does_not_fit_the_network_or_the_images_is_named(explainer, parameters, named):
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = CONV, images, torch.tensor([0, 1])
    refused((TypeError, ValueError), named, lambda: explain(explainer, *given, device="cpu", **parameters))


#: Explainer, a network that it cannot explain, and the layer or property that the error names.
UNSUPPORTED = [
    ("crp", flat(), "convolution"),
    ("deep_taylor", behind(nn.Tanh()), "'1' (Tanh)"),
    ("deeplift", behind(nn.Softmin(3)), "'1' (Softmin)"),
    ("deep_shap", behind(nn.Softmax(1)), "'1' (Softmax)"),
    ("deeplift", behind(lambda x: x.logsumexp(1, keepdim=True)), "logsumexp"),
    ("deeplift", flat(Called(lambda x: x.T.relu().T)), "'1' (Called)"),
    ("deeplift", behind(nn.BatchNorm2d(3, track_running_stats=False)), "(BatchNorm2d)"),
    ("finercam", nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1)), "1 output"),
    ("fullgrad", Attends(), "attention"),
    ("fullgrad", flat(), "convolution"),
    ("guided_gradcam", flat(), "Conv2d"),
    ("guided_backprop", flat(nn.ELU()), "'1' (ELU)"),
    ("deconvolution", flat(nn.Tanh()), "'1' (Tanh)"),
    ("guided_backprop", flat(nn.Hardtanh()), "'1' (Hardtanh)"),
    ("guided_backprop", flat(nn.Softmax(1)), "'1' (Softmax)"),
    ("guided_backprop", flat(Called(torch.sigmoid)), "'1' (Called)"),
    ("legrad", Attends(), "'attention'"),
    ("lrp", flat(nn.GELU()), "'1' (GELU)"),
    ("lrp", flat(nn.LayerNorm(64)), "'1' (LayerNorm)"),
    ("lrp", flat(Called(torch.sigmoid)), "'1' (Called)"),
    ("lrp", flat(nn.Sequential(Called(lambda x: x.exp()))), "'1.0' (Called)"),
    ("lrp", nn.Sequential(nn.Flatten(), Summed(), nn.Linear(1, 2)), "logsumexp"),
    ("lrp", TWICE, "'network.0'"),
    ("lrp_epsilon", nn.Sequential(nn.Flatten(), nn.ReLU()), "convolution"),
    ("lrp_epsilon", behind(nn.Upsample(scale_factor=2, mode="bicubic")), "interpolate"),
    ("lrp_epsilon", behind(lambda x: x.softmax(1)), "'1' (Called)"),
    ("lrp_epsilon", behind(lambda x: x * x), "'1' (Called)"),
    ("lrp_epsilon", behind(lambda x: 1 / (x + 10)), "'1' (Called)"),
    ("lrp_epsilon", behind(lambda x: x @ x), "'1' (Called)"),
    ("lrp_epsilon", behind(lambda x: functional.softmin(x, 1)), "'1' (Called)"),
    ("lrp_epsilon", behind(nn.BatchNorm2d(3, track_running_stats=False)), "(BatchNorm2d)"),
    ("lrp_epsilon", behind(lambda x: x.flatten(2).logsumexp(2).repeat_interleave(16, 1)), "log-sum-exp"),
    ("lrp_epsilon", behind(lambda x: functional.relu(x.logsumexp(3, keepdim=True))), "log-sum-exp"),
    ("lrp_epsilon", behind(lambda x: functional.conv2d(x, x[:1].expand(3, 3, 4, 4))), "depends on the image"),
    ("lrp_epsilon", behind(lambda x: x[:, :1] + torch.zeros(1, 3, 1, 1)), "shape"),
]


@pytest.mark.parametrize(("explainer", "model", "named"), UNSUPPORTED)
def test_a_network_that_cannot_be_explained_is_refused_for_what_is_in_it(explainer, model, named):
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = model.double().eval(), images, torch.tensor([0, 0])
    # Some of the networks depend on the batch as well.
    refused(UnsupportedModelError, named, lambda: explain(explainer, *given, device="cpu", check_network=False))


FITTED = [name for name in EXPLAINERS if hasattr(EXPLAINERS.resolve(name), "fit")]


@pytest.mark.parametrize("name", FITTED)
def test_what_is_not_fitted_says_so(name):
    part, model = build(name), shared_network(CASE[name].network)
    images, _, targets = training_batch()
    assert not part.fitted
    with pytest.raises(NotFittedError, match=type(part).__name__):
        explain(part, model, images[:2], targets[:2])
    for loader in ([], [torch.zeros(2, dtype=torch.int64)], [{"image": torch.zeros(2, 1, 4, 4)}]):
        with pytest.raises((TypeError, ValueError), match="fit"):
            part.fit(model, loader)
    if name in ("pattern_net", "pattern_attribution"):  # fitted to layers, regardless of the size of the images
        return
    with pytest.raises(ValueError, match="5, 5"):
        part.fit(model, [training_batch()])(model, torch.zeros(2, 1, 5, 5, dtype=torch.float64), targets[:2])
