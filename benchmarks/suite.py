"""Time per sample of the photograph benchmark, and its share outside of the network's passes.

    OMP_NUM_THREADS=1 python benchmarks/suite.py
    python benchmarks/suite.py --device cuda --images 32 --masks 4000 --steps 224

ResNet-18 at 224×224 with random weights (the time does not depend on them), the explainers and metrics of the suite
``saliency-bench`` on a few images. The time of passes is that inside the network's forward and inside autograd. The
rest (masks, sorting, replacing pixels, blurring, copying) is the library's, and should be below 20 %.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from xaibench.explainers import explain
from xaibench.metrics import METRICS

EXPLAINERS: dict[str, dict[str, Any]] = {
    "cam": {}, "gradcam": {}, "gradcam++": {}, "integrated_gradients": {}, "guided_backprop": {}, "saliency": {},
    "input_x_gradient": {}, "rise": {},
}  # fmt: skip
MODEL_METRICS = ("insertion", "deletion", "average_drop", "comprehensiveness", "sufficiency")
TRUTH_METRICS = ("iou", "precision", "recall", "f1", "hit", "average_precision")
GOAL = 0.2


class Watch:
    """Adds up the seconds inside the passes of any copy of a network."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        self._depth = 0

    def now(self) -> float:
        """Return the time after synchronizing the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Time the outermost calls of ResNet's forward and of autograd."""
        forward, grad = torchvision.models.ResNet.forward, torch.autograd.grad
        torchvision.models.ResNet.forward = self._timed(forward)  # type: ignore[method-assign]
        torch.autograd.grad = self._timed(grad)  # type: ignore[assignment]
        try:
            yield
        finally:
            torchvision.models.ResNet.forward = forward  # type: ignore[method-assign]
            torch.autograd.grad = grad  # type: ignore[assignment]

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            self._depth += 1
            try:
                return call(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += self.now() - start

        return timed


def measure(watch: Watch, call: Callable[[], Any], images: int) -> tuple[float, float]:
    """Return seconds per sample and their share outside the passes: the better of two runs after a warm-up."""
    call()
    found = []
    for _ in range(2):
        watch.seconds = 0.0
        start = watch.now()
        with watch.watching():
            call()
        whole = watch.now() - start
        found.append((whole / images, 1 - watch.seconds / whole))
    return min(found)


def report(name: str, seconds: float, share: float, extra: str = "") -> None:
    print(f"{name:22}{seconds:10.4f}{100 * share:9.1f} %{'' if share <= GOAL else '  above the goal'}{extra}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--masks", type=int, default=256, help="of RISE; the suite takes 4000")
    parser.add_argument("--steps", type=int, default=56, help="of insertion and deletion; the suite takes 224")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval().to(device)
    x = torch.rand(options.images, 3, 224, 224).to(device)
    y = torch.arange(options.images, device=device)
    masks = torch.zeros(options.images, 224, 224, dtype=torch.bool)
    masks[:, 60:160, 60:160] = True
    watch = Watch(device)
    print(f"ResNet-18, {options.images} images of 224×224, {device}, {torch.get_num_threads()} thread(s)")
    print(f"{'':22}{'s a sample':>10}{'outside':>11}")
    for name, parameters in EXPLAINERS.items():
        own = {"n_masks": options.masks} if name == "rise" else parameters
        report(name, *measure(watch, lambda n=name, p=own: explain(n, model, x, y, device=device, **p), len(x)))
    maps = explain("gradcam", model, x, y, device=device).to(device)
    score(watch, model, x, maps, y, masks, options.steps)


def score(watch: Watch, model: nn.Module, x: Tensor, maps: Tensor, y: Tensor, masks: Tensor, steps: int) -> None:
    for name in MODEL_METRICS:
        metric = METRICS.resolve(name)
        own = {"steps": steps} if name in ("insertion", "deletion") else {}
        report(name, *measure(watch, lambda m=metric, p=own: m(model, x, maps, y, **p), len(x)))
    for name in TRUTH_METRICS:
        metric = METRICS.resolve(name)
        seconds, _ = measure(watch, lambda m=metric: m(maps.cpu(), masks), len(x))
        print(f"{name:22}{seconds:10.4f}   no pass")


if __name__ == "__main__":
    main()
