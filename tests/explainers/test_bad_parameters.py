"""Parameters out of range, and explainers that are not fitted, are refused by an error that names them."""

import pytest
import torch
from explainer_trials import CASE, shared_network, training_batch

from xaibench.core.checks import ParameterError
from xaibench.explainers import EXPLAINERS, NotFittedError, build, explain
from xaibench.explainers.propagation.lrp import LayerwiseRelevance

BAD = [
    ("ablationcam", {"resize": "cubic"}),
    ("agop", {"outputs": "first"}),
    ("agop", {"variant": "local"}),
    ("attention_rollout", {"resize": "cubic"}),
    ("attention_x_gradient", {"batch_size": 0}),
    ("attnlrp", {"attention_rule": "none"}),
    ("attnlrp", {"gamma": -1}),
    ("blur_ig", {"grad_step": 0.0}),
    ("blur_ig", {"max_sigma": 0.0}),
    ("deep_shap", {"max_pool": "max"}),
    ("deeplift", {"max_pool": "max"}),
    ("finercam", {"gamma": -0.1}),
    ("finercam", {"n_references": 0}),
    ("fullgrad", {"batch_size": 0}),
    ("fullgrad", {"rescale": "all"}),
    ("global_mean", {"n_images": 0}),
    ("gradcam", {"resize": "bicubic"}),
    ("gradcam++", {"epsilon": -1.0}),
    ("gradient_pattern", {"n_training_images": 0}),
    ("gradient_pattern", {"neighbor_fraction": 0.0}),
    ("gradient_rollout", {"resize": "cubic"}),
    ("guided_ig", {"fraction": 1.5}),
    ("guided_ig", {"max_dist": -0.1}),
    ("guided_ig", {"n_steps": 0}),
    ("hsic", {"n_samples": 0}),
    ("ig", {"n_steps": 0}),
    ("ig2", {"step_size": 0}),
    ("kernel_shap", {"n_samples": 2}),
    ("kpcacam", {"gamma": 0.0}),
    ("kpcacam", {"kernel": "cosine"}),
    ("legrad", {"resize": "cubic"}),
    ("lime", {"n_samples": 2.5}),
    ("lrp", {"channels": "rgb"}),
    ("occlusion", {"stride": True}),
    ("occlusion", {"window": 0}),
    ("pattern_local", {"alpha": 0.0}),
    ("pattern_local", {"kernel_width": -1.0}),
    ("pattern_local", {"n_samples": 1}),
    ("pattern_local", {"n_samples": 2, "surrogate": "kernel_shap"}),
    ("pattern_local", {"shrinkage": 1.5}),
    ("pattern_local", {"surrogate": "ridge"}),
    ("pfi", {"group_size": 1}),
    ("refinecam", {"method": "cam"}),
    ("refinecam", {"n_layers": 0}),
    ("rise", {"batch_size": -1}),
    ("rise", {"grid_size": 2.5}),
    ("rise", {"keep_probability": 0.0}),
    ("rise", {"keep_probability": 1.5}),
    ("rise", {"n_masks": 0}),
    ("saliency", {"batch_size": -1}),
    ("scorecam", {"batch_size": 0}),
    ("shapleycam", {"utility": "log"}),
    ("smoothgrad", {"n_samples": 0}),
    ("smoothgrad", {"noise": -0.1}),
    ("sobel", {"direction": "diagonal"}),
    ("sobol", {"grid_size": 0}),
    ("sobol", {"n_designs": 1}),
    ("sobol", {"n_designs": 12}),
    ("sobol", {"resize": None}),
    ("xrai", {"dilation": -1}),
    ("xrai", {"segmentation_size": 0}),
    (LayerwiseRelevance, {"rule": "z"}),
    (LayerwiseRelevance, {"rule": "zB"}),
    (LayerwiseRelevance, {"rules": {"0": "a"}}),
    (LayerwiseRelevance, {"beta": 0.0, "alpha": 2.0}),
    (LayerwiseRelevance, {"epsilon": -1.0}),
    (LayerwiseRelevance, {"low": 0.0, "input_rule": "zB"}),
]


@pytest.mark.parametrize(("explainer", "parameters"), BAD)
def test_the_error_names_the_parameter(explainer, parameters):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build(explainer, **parameters)
    name = next(iter(parameters))
    assert name in str(error.value)
    if isinstance(error.value, ParameterError):
        assert error.value.parameter.startswith(name)


FITTED = [name for name in EXPLAINERS if hasattr(EXPLAINERS.resolve(name), "fit")]


@pytest.mark.parametrize("name", FITTED)
def test_what_is_not_fitted_says_so(name):
    part, model = build(name), shared_network(CASE[name].network)
    images, _, targets = training_batch()
    assert not part.fitted
    with pytest.raises(NotFittedError, match=type(part).__name__):
        explain(part, model, images[:2], targets[:2])
    for loader in ([], [torch.zeros(2, dtype=torch.int64)]):
        with pytest.raises((TypeError, ValueError), match="fit"):
            part.fit(model, loader)
    if name in ("pattern_net", "pattern_attribution"):  # fitted to layers, regardless of the size of the images
        return
    with pytest.raises(ValueError, match="5, 5"):
        part.fit(model, [training_batch()])(model, torch.zeros(2, 1, 5, 5, dtype=torch.float64), targets[:2])
