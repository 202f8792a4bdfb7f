"""Time and memory of the fast explainers on a volume of 96×96×96 voxels and a 3-D ResNet-18.

    OMP_NUM_THREADS=2 python benchmarks/volumes.py
    OMP_NUM_THREADS=2 python benchmarks/volumes.py --side 64 --explainers saliency gradcam

The network is torchvision's ``r3d_18`` with random weights and three channels. Each explainer runs once, with its
defaults. Printed are processor seconds, their ratio to a bare gradient pass of the same volume (forward and backward,
the median of three), processor seconds divided by the number of threads, which is the time of a machine that does
nothing else, and the peak of memory beyond what the network and the volume take. The bar is a minute. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from networks import LIBRARIES, resident

import xaibench as xb
from xaibench.compute.random_numbers import isolated_rng

#: Explainers of a few passes, Integrated Gradients with its default steps, and those with a fixed number of layers.
FAST = (
    *("saliency", "input_x_gradient", "guided_backprop", "deconvolution", "guided_gradcam", "fullgrad"),
    *("lrp_epsilon", "lrp_gamma", "lrp_alpha_beta", "deep_taylor", "crp", "deeplift"),
    *("cam", "gradcam", "gradcam++", "layercam", "hirescam", "xgradcam", "finercam", "shapleycam", "refinecam"),
    *("eigencam", "kpcacam", "integrated_gradients"),
)
#: Seconds on a machine that does nothing else.
BAR = 60.0


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds and MiB at the peak beyond the memory before the call."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before, start = resident("VmRSS"), time.process_time()
    call()
    return time.process_time() - start, max(0.0, resident("VmHWM") - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=96, help="voxels along each axis (default 96)")
    parser.add_argument("--explainers", nargs="+", choices=FAST, default=FAST)
    parser.add_argument("--quick", action="store_true", help="a volume of 32 voxels a side")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    for library in LIBRARIES:
        importlib.import_module(library)
    from torchvision.models.video import r3d_18

    side, threads = 32 if given.quick else given.side, torch.get_num_threads()
    with isolated_rng(0):
        model = r3d_18(num_classes=2).eval().requires_grad_(False)
        volume = torch.rand(1, 3, side, side, side)

    def gradient() -> None:
        voxels = volume.clone().requires_grad_()
        torch.autograd.grad(model(voxels)[0, 0], voxels)

    gradient()
    passes = [measured(gradient) for _ in range(3)]
    bare = median(seconds for seconds, _ in passes)
    print(f"r3d_18, {side}×{side}×{side} voxels, 3 channels, {threads} threads, bar {BAR:.0f} s")
    print(f"{'explainer':22}{'CPU s':>8}{'passes':>8}{'s':>8}{'MiB':>8}")
    print(f"{'(a gradient pass)':22}{bare:8.1f}{1:8.1f}{bare / threads:8.1f}{median(m for _, m in passes):8.0f}")
    above = []
    for name in given.explainers:
        seconds, memory = measured(lambda name=name: xb.explain(name, model, volume, 0, device="cpu", progress=False))
        alone = seconds / threads
        mark = "" if alone <= BAR else f"  {alone / BAR:.1f} times the bar"
        above += [name] if mark else []
        print(f"{name:22}{seconds:8.1f}{seconds / bare:8.1f}{alone:8.1f}{memory:8.0f}{mark}", flush=True)
    print(f"{len(given.explainers) - len(above)} of {len(given.explainers)} meet the bar", *above)
    return 0


if __name__ == "__main__":
    sys.exit(main())
