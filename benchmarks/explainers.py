"""Explainers: ours against Captum as it is called by default, in one run.

    OMP_NUM_THREADS=1 python benchmarks/explainers.py
    OMP_NUM_THREADS=1 python benchmarks/explainers.py --samples 50 --captum-samples 5

The 8×8 MLP and CNN with random weights, the probability explained in float64, one thread. Captum gets all its samples
in one call, with its own defaults (one perturbation at a time; LIME with the 50 perturbations of the XAI-TRIS runs).
Where that is slow it gets fewer samples; times are for a sample. Each is called once before it is timed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import captum.attr
import torch
from torch import Tensor

from xaibench.explainers import EXPLAINERS, ExplainedOutput, explain
from xaibench.models import build

Run = Callable[[Tensor, Tensor], Tensor]

# Captum's Deep SHAP takes every sample with every baseline of a batch of zeros, as the released runs call it.
SLOW = ("pfi", "shapley_sampling", "kernel_shap", "lime", "deep_shap")


def captum_calls(model: ExplainedOutput, convolution: torch.nn.Module | None) -> dict[str, Run]:
    """Captum's call of each method, where it has it."""
    attr = captum.attr
    calls: dict[str, Run] = {
        "pfi": lambda x, y: attr.FeaturePermutation(model).attribute(x, target=y),
        "integrated_gradients": lambda x, y: attr.IntegratedGradients(model).attribute(x, target=y),
        "saliency": lambda x, y: attr.Saliency(model).attribute(x.requires_grad_(), target=y),
        "guided_backprop": lambda x, y: attr.GuidedBackprop(model).attribute(x.requires_grad_(), target=y),
        "deconvolution": lambda x, y: attr.Deconvolution(model).attribute(x.requires_grad_(), target=y),
        "deeplift": lambda x, y: attr.DeepLift(model).attribute(x.requires_grad_(), target=y),
        "shapley_sampling": lambda x, y: attr.ShapleyValueSampling(model).attribute(x, target=y),
        "gradient_shap": lambda x, y: attr.GradientShap(model).attribute(x, torch.zeros_like(x), target=y),
        "kernel_shap": lambda x, y: attr.KernelShap(model).attribute(x, target=y),
        "deep_shap": lambda x, y: attr.DeepLiftShap(model).attribute(x, torch.zeros_like(x), target=y),
        "lime": lambda x, y: attr.Lime(model).attribute(x, target=y, n_samples=50),
        "lrp": lambda x, y: attr.LRP(model).attribute(x.requires_grad_(), target=y),
    }
    if convolution is not None:
        method = attr.GuidedGradCam(model, convolution)
        calls["guided_gradcam"] = lambda x, y: method.attribute(x.requires_grad_(), target=y)
    return calls


def milliseconds(run: Run, images: Tensor, targets: Tensor) -> float:
    """For a sample; the first call, on two samples, pays for imports and is not timed."""
    run(images[:2].clone(), targets[:2])
    start = time.perf_counter()
    run(images.clone(), targets)
    return 1000 * (time.perf_counter() - start) / len(images)


def compare(kind: str, images: Tensor, targets: Tensor, captum_samples: int) -> float:
    """Print a line for each explainer; returns our seconds for all of them on all images."""
    model = build(kind, in_shape=(1, 8, 8), num_classes=2)
    double = build(kind, in_shape=(1, 8, 8), num_classes=2).double().eval()
    convolutions = [layer for layer in double.modules() if isinstance(layer, torch.nn.Conv2d)]
    theirs = captum_calls(ExplainedOutput(double), convolutions[-1] if convolutions else None)
    total = 0.0
    for name in EXPLAINERS:
        if EXPLAINERS.resolve(name).info.needs_convolution and not convolutions:
            continue
        ours = milliseconds(lambda x, y, name=name: explain(name, model, x, y, device="cpu"), images, targets)
        total += ours * len(images) / 1000
        line = f"{kind:4} {name:22} {ours:9.3f}"
        if name in theirs:
            few = slice(captum_samples if name in SLOW else None)
            other = milliseconds(theirs[name], images[few].double(), targets[few])
            line += f" {other:9.3f} {other / ours:8.1f}"
        print(line)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--captum-samples", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)  # Captum's notes on hooks and on several inputs
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(arguments.samples, 1, 8, 8, generator=generator).clamp(-1, 1)
    targets = torch.randint(2, (arguments.samples,), generator=generator)
    print(f"{'':4} {'ms a sample':22} {'ours':>9} {'captum':>9} {'ratio':>8}")
    for kind in ("mlp", "cnn"):
        total = compare(kind, images, targets, arguments.captum_samples)
        print(f"{kind:4} all, {arguments.samples} samples: {total:.2f} s\n")


if __name__ == "__main__":
    main()
