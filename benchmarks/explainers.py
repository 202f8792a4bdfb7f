"""Speed of explainers, compared with default calls of Captum.

    OMP_NUM_THREADS=1 python benchmarks/explainers.py
    OMP_NUM_THREADS=1 python benchmarks/explainers.py --samples 50 --captum-samples 5

The 8×8 MLP and CNN with random weights, the probability explained in float64, one thread. Captum gets all its samples
in one call, with its own defaults (one perturbation at a time; LIME with the 50 perturbations of the XAI-TRIS runs).
Where that is slow it gets fewer samples; times are for a sample. Each is called once before it is timed. Explainers
that need another network or a fit (CAM, attention rollout, the pattern ones) are left out.

    OMP_NUM_THREADS=1 python benchmarks/explainers.py --targets

checks the documented targets in processor time, which depends less on other load than wall time does: Shapley
sampling on the 64×64 MLP, one permutation, against Captum's default call with as many, and within a budget of memory;
Integrated Gradients on ResNet-18 at 224×224 against its bare gradient passes, in batches of the same size.

    OMP_NUM_THREADS=1 python benchmarks/explainers.py --steps

measures a step of Shapley sampling, PFI and Occlusion on the networks of XAI-TRIS, compared with the fastest bare
float64 pass per row over all batch sizes, and with a step by plain passes. Exits with 1 if a step of Shapley sampling
on the 64×64 CNN takes more than 8 % of the bare pass, or a map differs by more than 1e-9.

    python benchmarks/explainers.py --bfloat16 --device cuda

measures ``explain(..., precision="bfloat16")`` on ResNet-18 with random weights: seconds in float32 and
bfloat16, the largest error relative to the largest value, and the correlation of the maps.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import statistics
import sys
import time
import unittest.mock
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import captum.attr
import torch
import torchvision
from torch import Tensor

from xaibench.explainers import EXPLAINERS, ExplainedOutput, NotFittedError, UnsupportedModelError, explain
from xaibench.explainers.base import Explainer, target_gradient
from xaibench.explainers.gradients.integrated_gradients import IntegratedGradients
from xaibench.explainers.perturbation.occlusion import Occlusion
from xaibench.explainers.perturbation.pfi import PFI
from xaibench.explainers.perturbation.shapley_sampling import ShapleySampling
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses
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
    """Return the seconds per sample; a first call on two samples, which includes imports, is not timed."""
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
        try:
            ours = milliseconds(lambda x, y, name=name: explain(name, model, x, y, device="cpu"), images, targets)
        except (NotFittedError, UnsupportedModelError):
            continue
        total += ours * len(images) / 1000
        line = f"{kind:4} {name:22} {ours:9.3f}"
        if name in theirs:
            few = slice(captum_samples if name in SLOW else None)
            other = milliseconds(theirs[name], images[few].double(), targets[few])
            line += f" {other:9.3f} {other / ours:8.1f}"
        print(line)
    return total


def in_turn(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each call in each round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return times


def wide(images: int) -> tuple[ExplainedOutput, Tensor, Tensor]:
    """The 64×64 MLP, images and targets."""
    model = ExplainedOutput(build("mlp", in_shape=(1, 64, 64), num_classes=2).double().eval())
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(images, 1, 64, 64, dtype=torch.float64, generator=generator)
    return model, x, torch.arange(images) % 2


def memory(images: int) -> float:
    """Return the additional peak memory of Shapley sampling in MiB; call it in a new process."""

    def resident(name: str) -> float:
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) / 1024

    torch.set_num_threads(1)
    model, x, y = wide(images)
    before = resident("VmRSS")
    ShapleySampling(n_samples=1)(model, x, y)
    return resident("VmHWM") - before  # getrusage's peak would be that of the parent process, if higher


def shapley(rounds: int, images: int, budget: int = 256) -> None:
    """Print the ratio to Captum's default call, and (on Linux) the memory compared with the budget, in MiB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        grown = pool.submit(memory, images).result()
    model, x, y = wide(images)
    method = ShapleySampling(n_samples=1)
    maps = method(model, x, y)
    theirs = captum.attr.ShapleyValueSampling(model)
    times = in_turn(
        {"ours": lambda: method(model, x, y), "captum": lambda: theirs.attribute(x, target=y, n_samples=1)}, rounds
    )
    ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
    torch.manual_seed(method.seed)
    error = (theirs.attribute(x, target=y, n_samples=1)[:, 0] - maps).abs().max() / maps.abs().max()
    line = ", ".join(f"{name} {statistics.median(values):.2f} s" for name, values in times.items())
    print(
        f"Shapley sampling, 64×64 MLP, {images} image(s), 1 permutation: {line}, {ratio:.1f} times as fast (target: 10)"
    )
    print(f"    memory +{grown:.0f} MiB (budget: {budget}), largest relative difference {error:.0e} (Captum: float32)")


def gradients(rounds: int, n_steps: int = 16) -> None:
    """Print the time of Integrated Gradients relative to as many gradients at precomputed points."""
    torch.manual_seed(0)
    model = ExplainedOutput(torchvision.models.resnet18().eval().requires_grad_(False))
    x, y = torch.rand(1, 3, 224, 224), torch.tensor([3])
    method = IntegratedGradients(n_steps=n_steps)
    rows = min(method.rows(x), n_steps)
    points, targets = x.repeat(rows, 1, 1, 1), y.repeat(rows)

    def bare() -> None:
        for start in range(0, n_steps, rows):
            target_gradient(model, points[: n_steps - start], targets[: n_steps - start])

    times = in_turn({"ours": lambda: method(model, x, y), "bare": bare}, rounds + 1)
    pairs = list(zip(*times.values(), strict=True))[1:]  # the first round chooses kernels
    ratio = statistics.median(a / b for a, b in pairs)
    line = ", ".join(f"{name} {statistics.median(values[1:]):.2f} s" for name, values in times.items())
    print(f"Integrated Gradients, ResNet-18, {n_steps} steps, {rows} a pass: {line}, ratio {ratio:.3f} (target: 1.2)")


def plainly(method: Explainer, *arguments: Any) -> Tensor:
    """The maps from plain passes."""
    with unittest.mock.patch.object(IncrementalPasses, "find", return_value=None):
        return method(*arguments)


def cheapest_pass(model: ExplainedOutput, images: Tensor, rounds: int) -> float:
    """Return the processor milliseconds per row, for the fastest batch size."""
    found = []
    with torch.no_grad():
        for rows in (2**i for i in range(12 if images[0].numel() <= 64 else 8)):
            x, passes = images[:1].repeat(rows, 1, 1, 1), max(1, 128 // rows)
            times = in_turn({"bare": lambda x=x, n=passes: [model(x) for _ in range(n)]}, rounds)["bare"]
            found.append(1000 * min(times) / rows / passes)
    return min(found)


def steps(rounds: int) -> bool:
    """Print the milliseconds per step and return whether they meet the target."""
    good = True
    print("| network | explainer | bare pass | plain step | step | of the bare pass | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for kind, side, images in (("cnn", 64, 4), ("mlp", 64, 4), ("cnn", 8, 100), ("mlp", 8, 100)):
        model = ExplainedOutput(build(kind, in_shape=(1, side, side), num_classes=2).double().eval())
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(images, 1, side, side, dtype=torch.float64, generator=generator).clamp(-1, 1)
        y = torch.arange(images) % 2
        bare = cheapest_pass(model, x, rounds)
        for method in (ShapleySampling(n_samples=1 if side == 64 else 25), PFI(), Occlusion()):
            own, plain = functools.partial(method, model, x, y), functools.partial(plainly, method, model, x, y)
            error = (own() - plain()).abs().max().item()
            count = method.passes(x) / 1000
            step = min(in_turn({"own": own}, rounds)["own"]) / count
            whole = min(in_turn({"plain": plain}, 1)["plain"]) / count
            cells = [f"{bare:.4f}", f"{whole:.4f}", f"{step:.4f}", f"{step / bare:.1%}", f"{error:.0e}"]
            print(f"| {kind} {side}×{side} | {type(method).__name__} | {' | '.join(cells)} |", flush=True)
            barred = (kind, side) == ("cnn", 64) and isinstance(method, ShapleySampling)
            good &= error < 1e-9 and (not barred or step < 0.08 * bare)
    return good


#: Parameters of each explainer on ResNet-18; explainers that cannot explain it or need no network are left out.
RESNET = {
    "saliency": {}, "integrated_gradients": {"n_steps": 16}, "input_x_gradient": {}, "guided_backprop": {},
    "lrp_epsilon": {}, "lrp_gamma": {}, "lrp_alpha_beta": {}, "cam": {}, "gradcam": {}, "gradcam++": {},
    "layercam": {}, "eigencam": {}, "rise": {"n_masks": 64}, "occlusion": {"window": 32, "stride": 32},
    "shapley_sampling": {"feature_mask": "grid", "cell_size": 32, "n_samples": 4},
    "kernel_shap": {"feature_mask": "grid", "cell_size": 32, "n_samples": 200},
}  # fmt: skip


def bfloat16(device: str, size: int, images: int) -> None:
    """Print the speed and the error of bfloat16."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval().to(device)
    x, y = torch.randn(images, 3, size, size).to(device), torch.arange(images, device=device)
    print(f"ResNet-18, {images} images of {size}×{size}, {device}")
    print(f"{'':22}{'float32':>9}{'bfloat16':>9}{'error':>9}{'r':>8}")
    for name, parameters in RESNET.items():
        maps, seconds = [], []
        for precision in ("float32", "bfloat16"):
            call = functools.partial(explain, name, model, x, y, device=device, precision=precision, **parameters)
            maps.append(call())  # not timed: kernels are chosen; explain returns maps on the CPU, so the GPU is done
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        exact, half = maps
        error = ((half - exact).abs().max() / exact.abs().max()).item()
        r = torch.corrcoef(torch.stack([exact.flatten(), half.flatten()]))[0, 1].item()
        print(f"{name:22}{seconds[0]:9.3f}{seconds[1]:9.3f}{error:9.3f}{r:8.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--captum-samples", type=int, default=20)
    parser.add_argument("--targets", action="store_true", help="only Shapley sampling and Integrated Gradients")
    parser.add_argument("--steps", action="store_true", help="only the time of a step with few changed values")
    parser.add_argument("--bfloat16", action="store_true", help="only speed and error of bfloat16")
    parser.add_argument("--device", default="cpu", help="of --bfloat16")
    parser.add_argument("--size", type=int, default=224, help="of --bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)  # Captum's notes on hooks and on several inputs
    if arguments.bfloat16:
        bfloat16(arguments.device, arguments.size, images=2)
        return
    if arguments.steps:
        sys.exit(not steps(arguments.rounds))
    if arguments.targets:
        for images in (1, 4):
            shapley(arguments.rounds, images)
        gradients(arguments.rounds)
        return
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(arguments.samples, 1, 8, 8, generator=generator).clamp(-1, 1)
    targets = torch.randint(2, (arguments.samples,), generator=generator)
    print(f"{'':4} {'ms a sample':22} {'ours':>9} {'captum':>9} {'ratio':>8}")
    for kind in ("mlp", "cnn"):
        total = compare(kind, images, targets, arguments.captum_samples)
        print(f"{kind:4} all, {arguments.samples} samples: {total:.2f} s\n")


if __name__ == "__main__":
    main()
