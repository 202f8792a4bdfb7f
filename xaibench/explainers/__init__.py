"""Explainers: what makes a saliency map of an image classifier, and the controls that know no classifier.

Each is a frozen dataclass with its parameters as fields, called as ``explainer(model, images, targets) -> maps``.
:func:`explain` is the front door: it takes names, chooses what is explained, and gives the model back unharmed.
"""

import sys
from typing import Any

from xaibench.explainers.api import build, explain
from xaibench.explainers.base import Attribution, Channels, Explainer, UnsupportedModelError, reduce_channels
from xaibench.explainers.output import ExplainedOutput
from xaibench.explainers.pattern import NotFittedError, NotFittedForModelError
from xaibench.registry import Registry, import_target

#: Name -> explainer: a class of parameters, called as ``(model, images, targets) -> maps [N, H, W]``.
EXPLAINERS = Registry(
    "explainer",
    {
        "pfi": "xaibench.explainers.perturbation:PFI",
        "integrated_gradients": "xaibench.explainers.gradient:IntegratedGradients",
        "saliency": "xaibench.explainers.gradient:Saliency",
        "guided_backprop": "xaibench.explainers.guided:GuidedBackprop",
        "guided_gradcam": "xaibench.explainers.guided:GuidedGradCAM",
        "deconvolution": "xaibench.explainers.guided:Deconvolution",
        "deeplift": "xaibench.explainers.deeplift:DeepLift",
        "shapley_sampling": "xaibench.explainers.perturbation:ShapleySampling",
        "gradient_shap": "xaibench.explainers.gradient:GradientSHAP",
        "kernel_shap": "xaibench.explainers.surrogate:KernelSHAP",
        "deep_shap": "xaibench.explainers.deeplift:DeepSHAP",
        "lime": "xaibench.explainers.surrogate:LIME",
        "lrp": "xaibench.explainers.captum:LRP",
        "deep_taylor": "xaibench.explainers.propagation:DeepTaylor",
        "lrp_epsilon": "xaibench.explainers.propagation:LRPEpsilon",
        "lrp_gamma": "xaibench.explainers.propagation:LRPGamma",
        "lrp_alpha_beta": "xaibench.explainers.propagation:LRPAlphaBeta",
        "pattern_net": "xaibench.explainers.pattern:PatternNet",
        "pattern_attribution": "xaibench.explainers.pattern:PatternAttribution",
        "input_x_gradient": "xaibench.explainers.smoothgrad:InputXGradient",
        "smoothgrad": "xaibench.explainers.smoothgrad:SmoothGrad",
        "cam": "xaibench.explainers.cam:CAM",
        "gradcam": "xaibench.explainers.cam:GradCAM",
        "gradcam++": "xaibench.explainers.cam:GradCAMPlusPlus",
        "layercam": "xaibench.explainers.cam:LayerCAM",
        "scorecam": "xaibench.explainers.cam:ScoreCAM",
        "eigencam": "xaibench.explainers.cam:EigenCAM",
        "attention_rollout": "xaibench.explainers.attention:AttentionRollout",
        "rise": "xaibench.explainers.rise:RISE",
        "occlusion": "xaibench.explainers.occlusion:Occlusion",
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
