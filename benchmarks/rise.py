"""RISE on ResNet-18 at 224×224, compared with bare forward passes and with the loop of the released code.

    OMP_NUM_THREADS=1 python benchmarks/rise.py
    OMP_NUM_THREADS=1 python benchmarks/rise.py --clock cpu
    python benchmarks/rise.py --device cuda --masks 4000 --rounds 5

Weights are random, since the time does not depend on them. The bare passes are as many rows as there are masks, in
inference mode, with model and images channels last, in the batch size of RISE. The loop of the released code has all
masks precomputed (not timed), all masked images in memory, and batches of 100. They are timed in alternation, so that
other load on the machine slows all of them. Printed are the median times and the median ratio within a round. On a
shared machine, ``--clock cpu`` measures processor time instead of wall time.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torchvision
from torch import Tensor, nn

from xaibench.explainers import ExplainedOutput, explain
from xaibench.explainers.perturbation.rise import RISE, random_masks
from xaibench.explainers.shared.layer_activations import forward_rows


def bare(model: nn.Module, rows: Tensor, masks: int) -> None:
    """The forward passes alone, of rows that are there already."""
    with torch.inference_mode():
        for start in range(0, masks, len(rows)):
            model(rows[: masks - start])


def reference(model: nn.Module, image: Tensor, masks: Tensor, target: int, p: float) -> Tensor:
    """The loop of the released code."""
    with torch.no_grad():
        stack = masks[:, None] * image
        scores = torch.cat([model(stack[start : start + 100]) for start in range(0, len(masks), 100)])
        maps = (scores.T @ masks.flatten(1)).reshape(-1, *image.shape[-2:])
        return maps[target] / len(masks) / p


def half(rise: RISE, model: nn.Module, image: Tensor, target: Tensor) -> Tensor:
    with torch.autocast(image.device.type, torch.bfloat16):
        return rise(model, image, target)


def seconds(call: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    start = clock()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start


def compare(device: torch.device, masks: int, rounds: int, size: int, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    model = ExplainedOutput(torchvision.models.resnet18()).eval().to(device)
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    image, target = torch.randn(1, 3, size, size, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    rise = RISE(n_masks=masks)
    rows = torch.randn(min(masks, forward_rows(image, None)), 3, size, size, device=device)
    rows = rows.contiguous(memory_format=torch.channels_last)
    stored = random_masks(
        np.random.default_rng(rise.seed), masks, (size, size), rise.grid_size, rise.keep_probability, like=image
    )

    calls: dict[str, Callable[[], object]] = {
        "bare passes": lambda: bare(last, rows, masks),
        "RISE": lambda: rise(model, image, target),
        "explain('rise')": lambda: explain(
            "xaibench.explainers.perturbation.rise:RISE", model.network, image, target, n_masks=masks
        ),
        "reference loop": lambda: reference(model, image[0], stored, 0, rise.p),
    }
    if device.type == "cuda":
        calls["RISE, bfloat16"] = lambda: half(rise, model, image, target)
    for call in calls.values():  # not timed: imports, and the kernels that are chosen at the first call
        call()
    times = {name: [] for name in calls}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, device, clock))

    print(
        f"ResNet-18, {size}×{size}, {masks} masks, {len(rows)} rows a pass, {device}, {torch.get_num_threads()} threads"
    )
    print(f"{'':<18}{'s':>9}{'/ bare passes':>16}{'/ reference':>14}")
    for name, values in times.items():
        ratios = [
            statistics.median(a / b for a, b in zip(values, times[other], strict=True))
            for other in ("bare passes", "reference loop")
        ]
        print(f"{name:<18}{statistics.median(values):>9.3f}{ratios[0]:>16.3f}{ratios[1]:>14.3f}")
    ours, theirs = rise(model, image, target)[0], reference(model, image[0], stored, 0, rise.p)
    print(f"largest difference from the reference, relative: {((ours - theirs).abs().max() / theirs.abs().max()):.1e}")
    if device.type == "cuda":
        error = (half(rise, model, image, target)[0] - ours).abs().max() / ours.abs().max()
        print(f"largest error of bfloat16, relative: {error:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--masks", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    compare(torch.device(options.device), options.masks, options.rounds, options.size, clock)


if __name__ == "__main__":
    main()
