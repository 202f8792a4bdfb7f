"""The metrics at 224×224 against the bare forward passes, reference loops and peers, all in one run.

    OMP_NUM_THREADS=2 python benchmarks/metrics.py                       # all; some 10 minutes
    OMP_NUM_THREADS=1 python benchmarks/metrics.py --steps 56 --images 4 --clock cpu
    python benchmarks/metrics.py --device cuda --images 16 --rounds 5

ResNet-18 with random weights, since the time does not depend on them. ``insertion`` and ``deletion`` are compared with:

- *passes*: as many precomputed rows as the curves have points, through the model in inference mode, in the best layout
  (model and rows channels last) and with the batch size of the metric;
- *loop*: the reference, as RISE's released code is written: one image at a time, a forward pass for each step, pixels
  replaced in numpy, softmax;
- *Quantus* ``PixelFlipping``, if it is installed.

They are timed in alternation, so that other load on the machine slows all of them. Printed are the median seconds and
the median ratio within a round. On a shared machine, ``--clock cpu`` measures processor time instead of wall time.

The other metrics that call the model or the explainer follow, each compared with bare passes or explanations and with
similar metrics of Quantus or pytorch-grad-cam (``benchmarks/metrics_faithfulness.py``).

The metrics with a ground truth and those of the map alone are last, compared with scikit-learn and with Quantus'
``PointingGame``, ``RelevanceRankAccuracy``, ``AttributionLocalization`` and similar ones
(``benchmarks/metrics_ground_truth.py``).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from metric_rounds import Calls, Case, make_case, measure, passes, table
from metrics_faithfulness import compare_faithfulness
from metrics_ground_truth import compare_scores
from numpy.typing import NDArray

from xaibench.compute.batching import default_batch_size
from xaibench.metrics.faithfulness.insertion_deletion import deletion, insertion
from xaibench.metrics.shared.perturb import blurred


def loop(case: Case, steps: int, insert: bool) -> NDArray[np.float64]:
    """The curves ``[N, steps + 1]`` as the released evaluation of RISE makes them."""
    model, images, maps, targets = case
    curves = np.empty((len(images), steps + 1))
    with torch.no_grad():
        for i in range(len(images)):
            image = images[i : i + 1]
            other = blurred(image) if insert else torch.zeros_like(image)
            start, finish = (other, image) if insert else (image, other)
            pixels = maps[i].numel()
            order = np.argsort(-maps[i].flatten().cpu().numpy(), kind="stable")
            current, finish_pixels = start.clone(), finish.cpu().numpy().reshape(1, -1, pixels)
            for step in range(steps + 1):
                scores = torch.softmax(model(current.to(images.device)), 1)
                curves[i, step] = float(scores[0, targets[i]])
                chosen = order[round(step * pixels / steps) : round((step + 1) * pixels / steps)]
                current = current.cpu()
                current.numpy().reshape(1, -1, pixels)[0, :, chosen] = finish_pixels[0, :, chosen]
    return curves


def quantus(case: Case, steps: int) -> Callable[[], object] | None:
    if importlib.util.find_spec("quantus") is None:
        return None
    module: Any = importlib.import_module("quantus")
    model, images, maps, targets = case
    arrays = [images.cpu().numpy(), targets.cpu().numpy(), maps[:, None].cpu().numpy()]
    # Quantus flips single values (three per pixel), and the number of steps must divide their number, so it gets
    # slightly fewer steps.
    pixels = maps[0].numel()
    each = next(count for count in range(images[0].numel() // steps, pixels + 1) if pixels % count == 0)
    metric = module.PixelFlipping(features_in_step=each, disable_warnings=True)
    return lambda: metric(
        model,
        *arrays,
        device=str(images.device),
        softmax=True,
        channel_first=True,
        batch_size=default_batch_size(images),
    )


def compare_curves(case: Case, steps: int, rounds: int, clock: Callable[[], float], peers: bool) -> None:
    model, images, maps, targets = case
    settings: Any = {"steps": steps, "return_curves": True}
    calls: Calls = {
        "passes": passes(case, len(images) * (steps + 1)),
        "insertion": lambda: insertion(model, images, maps, targets, **settings),
        "deletion": lambda: deletion(model, images, maps, targets, **settings),
        "loop": lambda: loop(case, steps, insert=False),
    }
    peer = quantus(case, steps) if peers else None
    if peer is not None:
        calls["Quantus PixelFlipping (a few steps less)"] = peer
    table(measure(calls, rounds, clock, images.device), ("passes", "loop"))
    for name, insert in (("insertion", True), ("deletion", False)):
        difference = np.abs(calls[name]()[1].values.cpu().numpy() - loop(case, steps, insert)).max()
        print(f"\nlargest difference of the {name} curves from the loop's: {difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[56, 224])
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="passes and loop only")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    warnings.filterwarnings("ignore")
    case = make_case(options.images, options.size, torch.device(options.device))
    logging.disable(logging.WARNING)
    for steps in options.steps:
        print(
            f"\nResNet-18, {options.size}×{options.size}, {options.images} images, {steps} steps, {options.device}, "
            f"{torch.get_num_threads()} threads, {options.clock} clock, median of {options.rounds} rounds"
        )
        compare_curves(case, steps, options.rounds, clock, options.peers)
    compare_faithfulness(8, options.size, options.rounds, clock, options.device, options.peers)
    if options.peers:
        compare_scores(32, options.size, options.rounds)


if __name__ == "__main__":
    main()
