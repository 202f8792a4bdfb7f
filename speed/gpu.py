"""Correctness and speed on a GPU, compared with the machine's limits. Exits with 1 if a threshold is missed.

    python speed/gpu.py                # within ten minutes on one H200, to which the thresholds apply
    python speed/gpu.py --only maps,passes  # only these parts
    python speed/gpu.py --rehearse     # all lines at small sizes on the CPU, to check that the script runs

First come the limits (speed of a copy and of a matrix product), then correctness, then times. Times are medians of
rounds after a warm-up, with the device synchronized. Ratios are relative to bare forward passes of the same rows in the
same batch size, in inference mode. Weights and images are random: times do not depend on them. A line that fails counts
as below its threshold. Without a GPU, the script exits with 0.
"""

from __future__ import annotations

import argparse
import copy
import functools
import inspect
import logging
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn

import xaibench as xb
from xaibench.core.types import Precision
from xaibench.explainers.base import target_gradient
from xaibench.models import build
from xaibench.models.training.fitting import _LOSSES
from xaibench.models.training.network_stack import Stack
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.tensors.device import precision_context, resolve_device

PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bfloat16")


@dataclass(frozen=True)
class Line:
    """One measurement and its threshold.

    Attributes:
        name: What was measured, with its unit.
        measured: The number; nan where the measurement failed.
        bar: What it must reach.
        least: Whether the bar is the least that will do, or the most.
        floor: How far from what the machine can do, in words.
    """

    name: str
    measured: float
    bar: float
    least: bool = False
    floor: str = ""

    @property
    def holds(self) -> bool:
        """Whether it meets its threshold; nan does not."""
        return self.measured >= self.bar if self.least else self.measured <= self.bar

    def __str__(self) -> str:
        bar = f"{'≥' if self.least else '≤'} {self.bar:g}"
        return f"| {self.name} | {self.measured:.4g} | {bar} | {'yes' if self.holds else '**no**'} | {self.floor} |"


@dataclass(frozen=True)
class Machine:
    """Device and sizes: a GPU, or the CPU with small sizes for a rehearsal."""

    device: torch.device
    small: bool

    def size(self, full: int, small: int) -> int:
        """Return the first value, or the second one in a rehearsal."""
        return small if self.small else full

    def wait(self) -> None:
        """Wait until the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, call: Callable[[], object], rounds: int = 5, repeat: int = 1) -> float:
        """Median over rounds of the time of one call, after two that warm up."""
        rounds, repeat = (1, 1) if self.small else (rounds, repeat)
        for _ in range(2):
            call()
        times = []
        for _ in range(rounds):
            self.wait()
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            self.wait()
            times.append((time.perf_counter() - start) / repeat)
        return statistics.median(times)


def ceilings(on: Machine) -> Iterator[Line]:
    """Speed of a copy (bytes read and written) and of matrix products of random numbers."""
    one = torch.randn(on.size(2**30, 2**10), device=on.device)
    other = torch.empty_like(one)
    taken = on.seconds(lambda: other.copy_(one), repeat=5)
    yield Line("copy, TB/s", 2 * one.nbytes / taken / 1e12, 4.0, least=True, floor="4.8 by the datasheet")
    n = on.size(8192, 64)
    for dtype, bar, sheet in ((torch.bfloat16, 600.0, 990), (torch.float32, 45.0, 67)):
        a, b = (torch.randn(n, n, device=on.device, dtype=dtype) for _ in range(2))
        with precision_context():
            taken = on.seconds(functools.partial(torch.mm, a, b), repeat=5)
        name = f"{str(dtype).removeprefix('torch.')} product, TFLOP/s"
        yield Line(name, 2 * n**3 / taken / 1e12, bar, least=True, floor=f"{sheet} by the datasheet")


def resnet(on: Machine, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor, Tensor]:
    """ResNet-18 with random weights on the CPU, images and targets."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = torchvision.models.resnet18().eval().to(dtype)
        images = torch.randn(4, 3, on.size(224, 32), on.size(224, 32), dtype=dtype)
    return model, images, torch.arange(4)


#: Parameters of explainers and metrics that keep a call short.
SHORT = {"n_samples": 4, "n_masks": 64, "n_steps": 4, "n_designs": 2, "n_baselines": 2, "min_segment_size": 8}
SHORT["segmentation_size"] = 16
#: Explainers that need more samples than that for a map.
SAMPLES = {"lime": 200, "kernel_shap": 200, "hsic": 64, "pattern_local": 64}


def small_networks() -> list[nn.Module]:
    """A convolutional network with an average pooling before its head, and a transformer, with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        cnn = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
        )  # fmt: skip
        vit = torchvision.models.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=4)
        nn.init.normal_(vit.heads.head.weight)  # zero as it is made
    return [cnn.eval(), vit.eval()]


def small_samples() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``[4, 3, 16, 16]``, maps and masks ``[4, 16, 16]``, and targets ``[4]``."""
    generator = torch.Generator().manual_seed(0)
    images, marked = torch.randn(4, 3, 16, 16, generator=generator), torch.rand(4, 16, 16, generator=generator)
    return images, marked, torch.rand(4, 16, 16, generator=generator) > 0.8, torch.arange(4)


def short(name: str, part: Callable[..., object]) -> dict[str, int]:
    """Return the parameters with which a part is fast."""
    chosen = {key: value for key, value in SHORT.items() if key in inspect.signature(part).parameters}
    return chosen | ({"n_samples": SAMPLES[name]} if name in SAMPLES else {})


def maps(on: Machine) -> Iterator[Line]:
    """Smallest correlation between the maps of all explainers on GPU and CPU, and how many differ if computed again."""
    images, _, masks, targets = small_samples()
    found: dict[str, float] = {}
    other: list[str] = []
    for name in xb.explainers.EXPLAINERS:
        with failing(f"maps: {name}") as lines:
            part = xb.explainers.build(name, **short(name, xb.explainers.EXPLAINERS.resolve(name)))
            for network in small_networks():
                try:
                    fitted = part.fit(network, [(images, masks, targets)]) if hasattr(part, "fit") else part
                    here = xb.explain(fitted, network, images, targets, device="cpu", precision="float32")
                except UnsupportedModelError:
                    continue
                break
            there, again = (
                xb.explain(fitted, network, images, targets, device=on.device, precision="float32") for _ in range(2)
            )
            found[name] = min(map(correlation, here, there))
            if not there.equal(again):
                other.append(name)
        yield from lines
    below = ", ".join(f"{name} {value:.6f}" for name, value in sorted(found.items()) if value < 0.9999)
    title = f"maps of {len(found)} explainers, lowest correlation with the CPU's"
    yield Line(title, min(found.values()), 0.9999, least=True, floor=below or min(found, key=found.__getitem__))
    yield Line(f"explainers of {len(found)} with other bits if computed again", len(other), 0, floor=", ".join(other))


def correlation(one: Tensor, other: Tensor) -> float:
    """Return the correlation of two maps; 1 for equal ones, which may be constant."""
    if torch.allclose(one, other, rtol=1e-5, atol=1e-7):
        return 1.0
    return float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]).double())[0, 1])


def metrics(on: Machine) -> Iterator[Line]:
    """Largest difference of the scores of all metrics from those on the CPU."""
    images, marked, masks, targets = small_samples()
    network, worst = small_networks()[0], {}
    for name in xb.metrics.METRICS:
        with failing(f"metrics: {name}") as lines:
            metric = xb.metrics.METRICS.resolve(name)
            call = functools.partial(metric, **short(name, metric), reduction="none")
            scores = []
            for device in (torch.device("cpu"), on.device):
                explainer = functools.partial(xb.explain, "saliency", device=device)
                given = {
                    "model": (network, images, marked, targets),
                    "explainer": (explainer, network, images, targets),
                    "ground-truth": (marked, masks),
                    "map": (marked,),
                }[metric.info.kind]
                placed = [copy.deepcopy(x).to(device) if isinstance(x, nn.Module | Tensor) else x for x in given]
                scores.append(torch.as_tensor(call(*placed)).cpu().double())
            assert scores[0].isnan().equal(scores[1].isnan()), "undefined for other samples"
            worst[name] = float((scores[0] - scores[1]).abs().nan_to_num().max())
        yield from lines
    above = ", ".join(f"{name} {value:.1g}" for name, value in sorted(worst.items()) if value > 1e-5)
    title = f"scores of {len(worst)} metrics, largest difference from the CPU's"
    yield Line(title, max(worst.values()), 1e-5, floor=above or max(worst, key=worst.__getitem__))


def placement(on: Machine) -> Iterator[Line]:
    """``device="cpu"`` does not use CUDA, and running out of memory reduces the batch size."""
    code = (
        "import torch, xaibench as xb\n"
        "model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))\n"
        "xb.explain('saliency', model, torch.ones(1, 1, 2, 2), torch.tensor([0]), device='cpu')\n"
        "raise SystemExit(int(torch.cuda.is_initialized()))"
    )
    touched = subprocess.run([sys.executable, "-c", code], check=False).returncode
    yield Line("placement: device='cpu' touches CUDA", touched, 0)
    model, images, targets = resnet(on)
    rise_map = functools.partial(xb.explain, "rise", model, images[:1], targets[:1], device=on.device)
    expected, heard = rise_map(n_masks=on.size(512, 16)), Heard()
    logging.getLogger("xaibench").addHandler(heard)
    if on.device.type == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(on.device).total_memory
        torch.cuda.set_per_process_memory_fraction(2 * 2**30 / total, on.device)
    try:
        found = rise_map(n_masks=on.size(512, 16), batch_size=512)
    finally:
        logging.getLogger("xaibench").removeHandler(heard)
        if on.device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0, on.device)
    yield Line("placement: batches halved in 2 GB", heard.count, 1, least=True)
    error = float((found - expected).abs().max() / expected.abs().max())
    yield Line("placement: error of the map for it", error, 1e-4)


class Heard(logging.Handler):
    """Counts the warnings of out-of-memory retries."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count the record if it is one."""
        self.count += "out of memory" in record.getMessage().lower()


def passes(on: Machine) -> Iterator[Line]:
    """Bare forward passes of ResNet-18, in images per second; channels last except for float32."""
    model, images, _ = resnet(on)
    bars = dict(zip(PRECISIONS, (8e3, 20e3, 40e3), strict=True))
    for precision, bar in bars.items():
        layout = torch.contiguous_format if precision == "float32" else torch.channels_last
        net = copy.deepcopy(model).to(on.device, memory_format=layout)
        rows = images.repeat(on.size(128, 1), 1, 1, 1).to(on.device).contiguous(memory_format=layout)
        with precision_context(precision, on.device), torch.inference_mode():
            rate = len(rows) / on.seconds(functools.partial(net, rows))
        # 1.82 G multiplications are 3.64 GFLOP per image.
        floor = f"{rate * 3.64e9 / 1e12:.0f} TFLOP/s"
        yield Line(f"ResNet-18, {precision}, images/s", rate, bar, least=True, floor=floor)


def forward(model: nn.Module, rows: Tensor, count: int) -> None:
    for start in range(0, count, len(rows)):
        model(rows[: count - start])


def rise(on: Machine) -> Iterator[Line]:
    """RISE of one image with 4,000 masks, compared with as many bare passes."""
    from xaibench.explainers.shared.layers import forward_rows

    model, images, targets = resnet(on)
    count = on.size(4000, 16)
    for precision, bar in zip(PRECISIONS, (0.5, 0.25, 0.12), strict=True):
        net = copy.deepcopy(model).to(on.device, memory_format=torch.channels_last)
        x = images[:1].to(on.device)
        rows = x.repeat(min(count, forward_rows(x, None)), 1, 1, 1).contiguous(memory_format=torch.channels_last)
        with precision_context(precision, on.device), torch.inference_mode():
            bare = on.seconds(functools.partial(forward, net, rows, count), rounds=3)
        options = {"device": on.device, "precision": precision, "n_masks": count}
        taken = on.seconds(functools.partial(xb.explain, "rise", net, x, targets[:1], **options), rounds=3)
        yield Line(f"RISE, {precision}, s an image", taken, bar, floor=f"{bare:.3g} s of bare passes")
        yield Line(f"RISE, {precision}, / bare passes", taken / bare, 1.15)


def gradients(on: Machine) -> Iterator[Line]:
    """Integrated Gradients and SmoothGrad with 50 steps, compared with as many bare gradients."""
    model, images, targets = resnet(on)
    images, targets = images.repeat(on.size(8, 1), 1, 1, 1), targets.repeat(on.size(8, 1))
    images = images * torch.linspace(1, 2, len(images)).reshape(-1, 1, 1, 1)  # equal images would draw equal noise
    net, x, y = copy.deepcopy(model).to(on.device), images.to(on.device), targets.to(on.device)
    steps = on.size(50, 2)
    rows = xb.explainers.build("saliency").rows(x)  # how many the library takes at a time
    many, classes = x.repeat_interleave(steps, 0)[:rows], y.repeat_interleave(steps)[:rows]
    for parameter in net.parameters():
        parameter.requires_grad_(False)

    def bare() -> None:
        for start in range(0, steps * len(x), rows):
            left = min(rows, steps * len(x) - start)
            target_gradient(net, many[:left], classes[:left])

    with precision_context():
        floor = on.seconds(bare)
    cases = ("integrated_gradients", {"n_steps": steps}, 1.15), ("smoothgrad", {"n_samples": steps}, 1.5)
    for name, parameters, bar in cases:
        taken = on.seconds(functools.partial(xb.explain, name, net, x, y, device=on.device, **parameters))
        yield Line(f"{name}, / bare gradients", taken / floor, bar, floor=f"{floor:.3g} s of bare gradients")


def curves(on: Machine) -> Iterator[Line]:
    """Insertion and deletion with 224 steps, compared with as many bare passes."""
    model, images, targets = resnet(on)
    net = copy.deepcopy(model).to(on.device, memory_format=torch.channels_last)
    x, y = images.to(on.device), targets.to(on.device)
    marked, steps = torch.rand(len(x), *x.shape[-2:], device=on.device), on.size(224, 4)
    rows = x.repeat(on.size(64, 1), 1, 1, 1).contiguous(memory_format=torch.channels_last)
    count = len(x) * (steps + 1)
    with precision_context(), torch.inference_mode():
        bare = on.seconds(functools.partial(forward, net, rows, count), rounds=3)
    for name in ("insertion", "deletion"):
        metric = xb.metrics.METRICS.resolve(name)
        taken = on.seconds(functools.partial(metric, net, x, marked, y, steps=steps, batch_size=len(rows)), rounds=3)
        yield Line(f"{name}, / bare passes", taken / bare, 1.2, floor=f"{bare:.3g} s of bare passes")


def training(on: Machine) -> Iterator[Line]:
    """A training step of five stacked networks with 512 samples each."""
    for name, side, bar in (("mlp", 64, 8.0), ("cnn", 64, 10.0), ("cnn", 8, 0.6)):
        with failing(f"step of five {name}s, {side}×{side}, ms") as lines, precision_context():
            networks = [build(name, (1, side, side), 2, seed=seed) for seed in range(5)]
            stack = Stack(networks, (1, side, side), [0.001] * 5, list(range(5)), on.device)
            images = stack.prepare(torch.randn(on.size(512, 8), 1, side, side).to(on.device))
            targets = torch.arange(len(images), device=on.device) % 2
            batch = [each.expand(5, *each.shape) for each in (images, targets)]
            taken = 1e3 * on.seconds(functools.partial(take_step, stack, *batch), repeat=50)
            lines.append(Line(f"step of five {name}s, {side}×{side}, ms", taken, bar))
        yield from lines


def take_step(stack: Stack, images: Tensor, targets: Tensor) -> None:
    stack.descend(_LOSSES["logits"](stack.logits(images, True), targets).mean(1).sum())


def shapley(on: Machine) -> Iterator[Line]:
    """One permutation of Shapley sampling at 64×64: 4,096 features joining one by one, for one image."""
    for name, bar in (("cnn", 2.5), ("mlp", 0.4)):
        network = build(name, (1, 64, 64), 2, seed=0).eval().to(on.device)
        images = torch.randn(on.size(16, 1), 1, 64, 64, device=on.device)
        arguments = "shapley_sampling", network, images, torch.zeros(len(images), dtype=torch.int64)
        options = {"device": on.device, "precision": "float32", "n_samples": 1}
        one = on.seconds(functools.partial(xb.explain, *arguments, **options), rounds=3)
        yield Line(f"Shapley, {name} 64×64, ms a permutation and image", 1e3 * one / len(images), bar)


def suites(on: Machine) -> Iterator[Line]:
    """A quick suite's scores are the CPU's for the same networks."""
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder, "cpu"), Path(folder, "gpu")
        run = [sys.executable, "-m", "xaibench", "run", "xai-tris-8x8", "--quick"]
        for device, out in (("cpu", here), (on.device.type, there)):
            if out == there:
                shutil.copytree(here / "store", there / "store", ignore=shutil.ignore_patterns("explain", "score"))
            command = [*run, "--device", device, "--out", str(out)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        tables = [pd.read_parquet(each / "scores.parquet") for each in (here, there)]
        answers = ("value", "correct", "scored", "reason", "curve")
        keys = [column for column in tables[0].columns if column not in answers]
        both = tables[0].merge(tables[1], on=keys, suffixes=("_here", "_there"))
        assert len(both) == len(tables[0]) == len(tables[1]), "the two runs have other rows"
        largest = float((both["value_here"] - both["value_there"]).abs().max())
        yield Line("quick suite, largest difference from the CPU's scores", largest, 1e-4)


@contextmanager
def failing(name: str) -> Iterator[list[Line]]:
    """Yield the lines of a measurement; a failed one has the value nan."""
    lines: list[Line] = []
    try:
        yield lines
    except Exception:
        traceback.print_exc()
        lines.append(Line(f"{name}: failed", float("nan"), 0.0))


PARTS = (ceilings, maps, metrics, placement, passes, rise, gradients, curves, training, shapley, suites)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only these parts, of: " + ", ".join(p.__name__ for p in PARTS))
    parser.add_argument("--rehearse", action="store_true", help="small sizes on the CPU, without thresholds")
    options = parser.parse_args()
    asked = set(filter(None, options.only.split(",")))
    if unknown := asked - {part.__name__ for part in PARTS}:
        parser.error(f"no part is named {', '.join(sorted(unknown))}")
    if not torch.cuda.is_available() and not options.rehearse:
        print("skipped: there is no GPU here")
        return 0
    warnings.filterwarnings("ignore", category=UserWarning)
    on = Machine(resolve_device("cpu" if options.rehearse else "cuda"), options.rehearse)
    device = platform.processor() if options.rehearse else torch.cuda.get_device_name()
    print(f"{device}, {os.cpu_count()} CPUs, torch {torch.__version__}, CUDA {torch.version.cuda}, xaibench", end=" ")
    print(
        xb.__version__, time.strftime("%Y-%m-%d\n\n| | measured | bar | holds | |\n|---|---|---|---|---|"), flush=True
    )
    seen: list[Line] = []
    for part in PARTS:
        if not asked or part.__name__ in asked:
            with failing(part.__name__) as lines:
                for line in part(on):
                    print(line, flush=True)
                    seen.append(line)
            for line in lines:
                print(line, flush=True)
            seen += lines
    below = [line.name for line in seen if not line.holds]
    print(f"\n{len(seen) - len(below)} of {len(seen)} lines hold." + (f" Below: {'; '.join(below)}." if below else ""))
    failed = any(line.measured != line.measured for line in seen)
    return int(failed if options.rehearse else bool(below))


if __name__ == "__main__":
    sys.exit(main())
