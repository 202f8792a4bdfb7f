"""Alternating timing of competing metric implementations on the same inputs, and the table of their times."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from xaibench.compute.batching import default_batch_size

Case = tuple[nn.Module, Tensor, Tensor, Tensor]
Calls = dict[str, Callable[[], Any]]


def make_case(images: int, size: int, device: torch.device, network: str = "resnet18") -> Case:
    torch.manual_seed(0)
    model = torchvision.models.get_model(network).eval()
    x = torch.randn(images, 3, size, size)
    # Smooth maps, as explainers make them.
    maps = nn.functional.interpolate(torch.randn(images, 1, 14, 14), (size, size), mode="bicubic")[:, 0]
    return model.to(device), x.to(device), maps.to(device), torch.zeros(images, dtype=torch.int64, device=device)


def passes(case: Case, rows: int) -> Callable[[], None]:
    model, images, _, _ = case
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    size = min(rows, default_batch_size(images))
    batch = torch.randn(size, *images.shape[1:], device=images.device).contiguous(memory_format=torch.channels_last)

    def call() -> None:
        with torch.inference_mode():
            for start in range(0, rows, size):
                last(batch[: rows - start])

    return call


def measure(calls: Calls, rounds: int, clock: Callable[[], float], device: torch.device) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for timed in [False, *[True] * rounds]:  # the first round pays for imports and chooses kernels
        for name, call in calls.items():
            start = clock()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if timed:
                seconds[name].append(clock() - start)
    return seconds


def table(seconds: dict[str, list[float]], against: tuple[str, ...]) -> None:
    print("\n| | s |" + "".join(f" / {other} |" for other in against) + "\n|---|---|" + "---|" * len(against))
    for name, values in seconds.items():
        ratios = [
            f" {statistics.median(a / b for a, b in zip(values, seconds[other], strict=True)):.2f} |"
            for other in against
        ]
        print(f"| {name} | {statistics.median(values):.2f} |" + "".join(ratios), flush=True)
