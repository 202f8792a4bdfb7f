"""Explainers: what makes a saliency map of an image classifier, and the controls that know no classifier.

Each is a frozen dataclass with its parameters as fields, called as ``explainer(model, images, targets) -> maps``.
:func:`explain` is the front door: it takes names, chooses what is explained, and gives the model back unharmed.
"""

from xaibench.explainers.api import build, explain
from xaibench.explainers.base import Attribution, Channels, Explainer, UnsupportedModelError, reduce_channels
from xaibench.explainers.output import ExplainedOutput
from xaibench.registry import Registry

EXPLAINERS = Registry(
    "explainer",
    {
        "pfi": "xaibench.explainers.perturbation:PFI",
        "integrated_gradients": "xaibench.explainers.gradient:IntegratedGradients",
        "saliency": "xaibench.explainers.gradient:Saliency",
        "guided_backprop": "xaibench.explainers.captum:GuidedBackprop",
        "guided_gradcam": "xaibench.explainers.captum:GuidedGradCAM",
        "deconvolution": "xaibench.explainers.captum:Deconvolution",
        "deeplift": "xaibench.explainers.captum:DeepLift",
        "shapley_sampling": "xaibench.explainers.perturbation:ShapleySampling",
        "gradient_shap": "xaibench.explainers.gradient:GradientSHAP",
        "kernel_shap": "xaibench.explainers.perturbation:KernelSHAP",
        "deep_shap": "xaibench.explainers.captum:DeepSHAP",
        "lime": "xaibench.explainers.perturbation:LIME",
        "lrp": "xaibench.explainers.captum:LRP",
        "sobel": "xaibench.explainers.controls:Sobel",
        "laplace": "xaibench.explainers.controls:Laplace",
        "uniform": "xaibench.explainers.controls:Uniform",
        "input": "xaibench.explainers.controls:Input",
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
        "laplacian": "laplace",
        "random": "uniform",
        "x": "input",
    },
)

__all__ = [
    "EXPLAINERS",
    "Attribution",
    "Channels",
    "ExplainedOutput",
    "Explainer",
    "UnsupportedModelError",
    "build",
    "explain",
    "reduce_channels",
]
