"""Explainers: what makes a saliency map of an image classifier, and the controls that know no classifier.

Each is a frozen dataclass with its parameters as fields, called as ``explainer(model, images, targets) -> maps``.
:func:`explain` is the front door: it takes names, chooses what is explained, and gives the model back unharmed.
"""

import sys
from typing import Any

from xaibench.core.registry import Registry, import_target
from xaibench.explainers.api import build, explain
from xaibench.explainers.backward.pattern_methods import NotFittedError, NotFittedForModelError
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.interface import (
    Attribution,
    Channels,
    Explainer,
    UnsupportedModelError,
    reduce_channels,
)

#: Name -> explainer: a class of parameters, called as ``(model, images, targets) -> maps [N, H, W]``.
EXPLAINERS = Registry(
    "explainer",
    {
        "pfi": "xaibench.explainers.forward.pixel_perturbation:PFI",
        "integrated_gradients": "xaibench.explainers.gradients.plain_gradients:IntegratedGradients",
        "saliency": "xaibench.explainers.gradients.plain_gradients:Saliency",
        "guided_backprop": "xaibench.explainers.gradients.guided_gradients:GuidedBackprop",
        "guided_gradcam": "xaibench.explainers.gradients.guided_gradients:GuidedGradCAM",
        "deconvolution": "xaibench.explainers.gradients.guided_gradients:Deconvolution",
        "deeplift": "xaibench.explainers.backward.deeplift:DeepLift",
        "shapley_sampling": "xaibench.explainers.forward.pixel_perturbation:ShapleySampling",
        "gradient_shap": "xaibench.explainers.gradients.plain_gradients:GradientSHAP",
        "kernel_shap": "xaibench.explainers.forward.linear_surrogates:KernelSHAP",
        "deep_shap": "xaibench.explainers.backward.deeplift:DeepSHAP",
        "lime": "xaibench.explainers.forward.linear_surrogates:LIME",
        "lrp": "xaibench.explainers.backward.captum_lrp:LRP",
        "deep_taylor": "xaibench.explainers.backward.relevance:DeepTaylor",
        "lrp_epsilon": "xaibench.explainers.backward.relevance:LRPEpsilon",
        "lrp_gamma": "xaibench.explainers.backward.relevance:LRPGamma",
        "lrp_alpha_beta": "xaibench.explainers.backward.relevance:LRPAlphaBeta",
        "pattern_net": "xaibench.explainers.backward.pattern_methods:PatternNet",
        "pattern_attribution": "xaibench.explainers.backward.pattern_methods:PatternAttribution",
        "input_x_gradient": "xaibench.explainers.gradients.smoothgrad:InputXGradient",
        "smoothgrad": "xaibench.explainers.gradients.smoothgrad:SmoothGrad",
        "cam": "xaibench.explainers.feature_maps.class_activation:CAM",
        "gradcam": "xaibench.explainers.feature_maps.class_activation:GradCAM",
        "gradcam++": "xaibench.explainers.feature_maps.class_activation:GradCAMPlusPlus",
        "layercam": "xaibench.explainers.feature_maps.class_activation:LayerCAM",
        "scorecam": "xaibench.explainers.feature_maps.class_activation:ScoreCAM",
        "eigencam": "xaibench.explainers.feature_maps.class_activation:EigenCAM",
        "attention_rollout": "xaibench.explainers.attention.rollout:AttentionRollout",
        "rise": "xaibench.explainers.forward.rise:RISE",
        "occlusion": "xaibench.explainers.forward.occlusion:Occlusion",
        "sobel": "xaibench.explainers.controls:Sobel",
        "laplace": "xaibench.explainers.controls:Laplace",
        "uniform": "xaibench.explainers.controls:Uniform",
        "input": "xaibench.explainers.controls:Input",
        "centre": "xaibench.explainers.controls:Centre",
    },
    {
        "feature_permutation": "pfi",
        "permutation_feature_importance": "pfi",
        "ig": "integrated_gradients",
        "gradient": "saliency",
        "guided_backpropagation": "guided_backprop",
        "gbp": "guided_backprop",
        "guided_grad_cam": "guided_gradcam",
        "deconv": "deconvolution",
        "deep_lift": "deeplift",
        "shapley_value_sampling": "shapley_sampling",
        "shapley": "shapley_sampling",
        "gradientshap": "gradient_shap",
        "kernelshap": "kernel_shap",
        "deepshap": "deep_shap",
        "deepliftshap": "deep_shap",
        "deep_lift_shap": "deep_shap",
        "layerwise_relevance_propagation": "lrp",
        "dtd": "deep_taylor",
        "deeptaylor": "deep_taylor",
        "deep_taylor_decomposition": "deep_taylor",
        "patternnet": "pattern_net",
        "patternattribution": "pattern_attribution",
        "ixg": "input_x_gradient",
        "input_times_gradient": "input_x_gradient",
        "grad_cam": "gradcam",
        "gradcampp": "gradcam++",
        "gradcam_plus_plus": "gradcam++",
        "grad_cam++": "gradcam++",
        "layer_cam": "layercam",
        "score_cam": "scorecam",
        "eigen_cam": "eigencam",
        "rollout": "attention_rollout",
        "laplacian": "laplace",
        "random": "uniform",
        "x": "input",
        "center": "centre",
        "centre_prior": "centre",
        "center_prior": "centre",
    },
)

#: Class name -> where it lives, so that ``xaibench.explainers.RISE`` is imported when it is asked for.
_CLASSES = {EXPLAINERS.target(name).partition(":")[2]: EXPLAINERS.target(name) for name in EXPLAINERS}

__all__ = [
    "EXPLAINERS",
    "Attribution",
    "Channels",
    "ExplainedOutput",
    "Explainer",
    "NotFittedError",
    "NotFittedForModelError",
    "UnsupportedModelError",
    "build",
    "explain",
    "reduce_channels",
]


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return import_target(_CLASSES[name])
    # With name and obj, Python says what may be meant.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
