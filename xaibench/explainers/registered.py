"""All explainers by name. To add one, add its line here."""

from __future__ import annotations

from xaibench.registry.table import Registry

#: Name -> explainer: a class of parameters, called as ``(model, images, targets) -> maps [N, H, W]``.
EXPLAINERS = Registry(
    "explainer",
    {
        "pfi": "xaibench.explainers.perturbation.pfi:PFI",
        "integrated_gradients": "xaibench.explainers.gradients.integrated_gradients:IntegratedGradients",
        "saliency": "xaibench.explainers.gradients.saliency:Saliency",
        "guided_backprop": "xaibench.explainers.gradients.guided_backprop:GuidedBackprop",
        "guided_gradcam": "xaibench.explainers.gradients.guided_backprop:GuidedGradCAM",
        "deconvolution": "xaibench.explainers.gradients.guided_backprop:Deconvolution",
        "deeplift": "xaibench.explainers.propagation.deeplift:DeepLift",
        "shapley_sampling": "xaibench.explainers.perturbation.shapley_sampling:ShapleySampling",
        "gradient_shap": "xaibench.explainers.gradients.integrated_gradients:GradientSHAP",
        "kernel_shap": "xaibench.explainers.perturbation.surrogate:KernelSHAP",
        "deep_shap": "xaibench.explainers.propagation.deeplift:DeepSHAP",
        "lime": "xaibench.explainers.perturbation.surrogate:LIME",
        "lrp": "xaibench.explainers.propagation.captum_lrp:LRP",
        "deep_taylor": "xaibench.explainers.propagation.lrp:DeepTaylor",
        "lrp_epsilon": "xaibench.explainers.propagation.lrp:LRPEpsilon",
        "lrp_gamma": "xaibench.explainers.propagation.lrp:LRPGamma",
        "lrp_alpha_beta": "xaibench.explainers.propagation.lrp:LRPAlphaBeta",
        "crp": "xaibench.explainers.propagation.crp:CRP",
        "pattern_net": "xaibench.explainers.propagation.pattern_net:PatternNet",
        "pattern_attribution": "xaibench.explainers.propagation.pattern_net:PatternAttribution",
        "pattern_local": "xaibench.explainers.perturbation.pattern_local:PatternLocal",
        "gradient_pattern": "xaibench.explainers.gradients.smoothgrad:GradientPattern",
        "input_x_gradient": "xaibench.explainers.gradients.saliency:InputXGradient",
        "smoothgrad": "xaibench.explainers.gradients.smoothgrad:SmoothGrad",
        "smoothgrad_squared": "xaibench.explainers.gradients.smoothgrad:SmoothGradSquared",
        "vargrad": "xaibench.explainers.gradients.smoothgrad:VarGrad",
        "fullgrad": "xaibench.explainers.gradients.fullgrad:FullGrad",
        "expected_gradients": "xaibench.explainers.gradients.integrated_gradients:ExpectedGradients",
        "random_baseline_ig": "xaibench.explainers.gradients.integrated_gradients:RandomBaselineIG",
        "guided_ig": "xaibench.explainers.gradients.guided_ig:GuidedIG",
        "blur_ig": "xaibench.explainers.gradients.blur_ig:BlurIG",
        "ig2": "xaibench.explainers.gradients.ig2:IG2",
        "xrai": "xaibench.explainers.gradients.xrai:XRAI",
        "agop": "xaibench.explainers.gradients.agop:AGOP",
        "cam": "xaibench.explainers.cam.gradcam:CAM",
        "gradcam": "xaibench.explainers.cam.gradcam:GradCAM",
        "gradcam++": "xaibench.explainers.cam.gradcam:GradCAMPlusPlus",
        "layercam": "xaibench.explainers.cam.gradcam:LayerCAM",
        "scorecam": "xaibench.explainers.cam.gradcam:ScoreCAM",
        "eigencam": "xaibench.explainers.cam.gradcam:EigenCAM",
        "hirescam": "xaibench.explainers.cam.newer_maps:HiResCAM",
        "xgradcam": "xaibench.explainers.cam.newer_maps:XGradCAM",
        "ablationcam": "xaibench.explainers.cam.newer_maps:AblationCAM",
        "finercam": "xaibench.explainers.cam.newer_maps:FinerCAM",
        "shapleycam": "xaibench.explainers.cam.newer_maps:ShapleyCAM",
        "refinecam": "xaibench.explainers.cam.refinecam:RefineCAM",
        "kpcacam": "xaibench.explainers.cam.newer_maps:KPCACAM",
        "attention_rollout": "xaibench.explainers.attention.attention_maps:AttentionRollout",
        "gradient_rollout": "xaibench.explainers.attention.attention_maps:GradientRollout",
        "attention_x_gradient": "xaibench.explainers.attention.attention_maps:AttentionXGradient",
        "legrad": "xaibench.explainers.attention.attention_maps:LeGrad",
        "conservative_input_x_gradient": "xaibench.explainers.attention.transformer_rules:ConservativeInputXGradient",
        "libragrad": "xaibench.explainers.attention.transformer_rules:LibraGrad",
        "attnlrp": "xaibench.explainers.attention.transformer_rules:AttnLRP",
        "rise": "xaibench.explainers.perturbation.rise:RISE",
        "sobol": "xaibench.explainers.perturbation.grid_designs:Sobol",
        "hsic": "xaibench.explainers.perturbation.grid_designs:HSIC",
        "occlusion": "xaibench.explainers.perturbation.occlusion:Occlusion",
        "global_mean": "xaibench.explainers.global_mean:GlobalMean",
        "sobel": "xaibench.explainers.controls:Sobel",
        "laplace": "xaibench.explainers.controls:Laplace",
        "uniform": "xaibench.explainers.controls:Uniform",
        "input": "xaibench.explainers.controls:Input",
        "center_prior": "xaibench.explainers.controls:CenterPrior",
        "prior": "xaibench.explainers.controls:Prior",
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
        "concept_relevance_propagation": "crp",
        "dtd": "deep_taylor",
        "deeptaylor": "deep_taylor",
        "deep_taylor_decomposition": "deep_taylor",
        "patternnet": "pattern_net",
        "patternlocal": "pattern_local",
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
        "hires_cam": "hirescam",
        "xgrad_cam": "xgradcam",
        "ablation_cam": "ablationcam",
        "finer_cam": "finercam",
        "shapley_cam": "shapleycam",
        "refine_cam": "refinecam",
        "kpca_cam": "kpcacam",
        "full_grad": "fullgrad",
        "smoothgrad2": "smoothgrad_squared",
        "smoothgrad_sq": "smoothgrad_squared",
        "var_grad": "vargrad",
        "expectedgradients": "expected_gradients",
        "guided_integrated_gradients": "guided_ig",
        "blur_integrated_gradients": "blur_ig",
        "rollout": "attention_rollout",
        "laplacian": "laplace",
        "random": "uniform",
        "x": "input",
        "center": "center_prior",
        "centre_prior": "center_prior",
        "centre": "center_prior",
        "mask_prior": "prior",
        "mean_mask": "prior",
        # Not listed, because it needs the distribution of the images.
        "reliance": "xaibench.explainers.perturbation.reliance:Reliance",
    },
    record="ExplainerInfo",
)


def gradient_free() -> tuple[str, ...]:
    """Return the names of the explainers that only call the network, in the order of the table.

    They also explain quantized, exported and other networks through which no gradient passes. Controls, which do not
    use the network, are left out.

    Returns:
        Names in :data:`xaibench.explainers.EXPLAINERS`.

    Example:
        >>> [name for name in ("rise", "saliency", "sobel") if name in gradient_free()]
        ['rise']
    """
    infos = {name: EXPLAINERS.resolve(name).info for name in EXPLAINERS}
    return tuple(name for name, info in infos.items() if not info.needs_gradient and not info.control)


def gradient_free_advice() -> str:
    """Return a sentence that recommends these explainers, for error messages."""
    return f"Use an explainer that needs no gradient: {', '.join(gradient_free())}."
