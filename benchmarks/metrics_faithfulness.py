"""Faithfulness metrics, compared with the bare passes or explanations that they need and with other libraries.

    OMP_NUM_THREADS=1 python benchmarks/metrics_faithfulness.py --clock cpu
    OMP_NUM_THREADS=1 python benchmarks/metrics_faithfulness.py --clock cpu --no-peers --only saco f_fidelity

ResNet-18 with random weights at 224×224, as in ``benchmarks/metrics.py``, or ``--network``. *bare* is the time of as
many forward rows in the best layout, or of as many calls of the explainer (saliency). Numbers of steps, samples and
draws are small; the time per pass does not depend on them. Peers get the same images, maps and classes. If a peer does
something other than the metric, its name says so.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from metric_rounds import Calls, Case, make_case, measure, passes
from metric_rounds import table as print_table
from scipy.ndimage import gaussian_filter

import xaibench as xb
from xaibench import metrics
from xaibench.metrics.faithfulness.road import imputed
from xaibench.metrics.shared.explainer_calls import layers_with_parameters

#: Parameters of each metric that calls the model, and its rows per image.
ASKING: dict[str, tuple[dict[str, Any], int]] = {
    "srg": ({"steps": 14}, 26),
    "idsds": ({}, 17),
    "saco": ({}, 11),
    "f_fidelity": ({"n_samples": 3}, 31),
    "completeness_error": ({}, 2),
    "sensitivity_n": ({"n_samples": 10}, 41),
    "monotonicity_correlation": ({"n_samples": 1}, 65),
    "road": ({"order": "both"}, 18),
}
#: Parameters of each metric that calls the explainer, and its explanations per image, given the network's layers.
EXPLAINING: dict[str, tuple[dict[str, Any], Callable[[int], int]]] = {
    "smooth_mprt": ({"n_samples": 2}, lambda layers: 2 * (layers + 1)),
    "efficient_mprt": ({}, lambda _: 2),
    "random_logit": ({}, lambda _: 2),
}
#: The most similar class of Quantus for each metric, and its parameters.
QUANTUS: dict[str, tuple[str, dict[str, Any]]] = {
    "completeness_error": ("Completeness", {}),
    "smooth_mprt": ("SmoothMPRT", {"nr_samples": 2}),
    "efficient_mprt": ("EfficientMPRT", {}),
    "random_logit": ("RandomLogit", {"num_classes": 1000}),
}
explain = functools.partial(xb.explain, "saliency")


def explanations(case: Case, count: int) -> Callable[[], None]:
    model, images, _, targets = case

    def call() -> None:
        for _ in range(count):
            explain(model, images, targets)

    return call


def quantus(name: str, case: Case) -> Callable[[], object] | None:
    if name not in QUANTUS or importlib.util.find_spec("quantus") is None:
        return None
    module: Any = importlib.import_module("quantus")
    model, images, maps, targets = case
    kind, parameters = QUANTUS[name]
    metric = getattr(module, kind)(disable_warnings=True, display_progressbar=False, **parameters)

    def explained(model: torch.nn.Module, inputs: Any, targets: Any, **_: object) -> Any:
        found = explain(model, torch.as_tensor(inputs).float(), torch.as_tensor(targets).long())
        return torch.as_tensor(found)[:, None].cpu().numpy()

    arrays = {"x_batch": images.cpu().numpy(), "y_batch": targets.cpu().numpy()}
    how = {"device": str(images.device), "channel_first": True, "explain_func": explained}
    given = maps[:, None].cpu().numpy() if name in ASKING else None
    return lambda: metric(model=model, a_batch=given, **arrays, **how)


def grad_cam_road(case: Case) -> Callable[[], object] | None:
    """Both orders of ROAD in pytorch-grad-cam."""
    if importlib.util.find_spec("pytorch_grad_cam") is None:
        return None
    module: Any = importlib.import_module("pytorch_grad_cam.metrics.road")
    model, images, maps, classes = case
    metric = module.ROADCombined()
    wanted = [lambda outputs, k=int(k): outputs.softmax(-1)[k] for k in classes]
    return lambda: metric(images, maps.cpu().numpy(), wanted, model)


def contenders(name: str, case: Case, peers: bool) -> Calls:
    """Return the timed functions of a metric: its bare passes, the metric and its peers."""
    model, images, _, targets = case
    metric: Any = getattr(metrics, name)
    if name in ASKING:
        parameters, rows = ASKING[name]
        bare, said = passes(case, rows * len(images)), f"{rows} passes an image"
        ours = functools.partial(metric, *case, **parameters)
    else:
        parameters, count = EXPLAINING[name]
        each = count(len(layers_with_parameters(model)))
        bare, said = explanations(case, each), f"{each} explanations an image"
        ours = functools.partial(metric, explain, model, images, targets, **parameters)
    calls: Calls = {said: bare, name: ours}
    if peers and (theirs := quantus(name, case)):
        own = " (gradients of its own)" if name == "smooth_mprt" else ""  # it does not call what it is given
        calls[f"Quantus {QUANTUS[name][0]}{own}"] = theirs
    if peers and name == "road" and (theirs := grad_cam_road(case)):
        calls["pytorch-grad-cam ROADCombined"] = theirs
    return calls


def compare_faithfulness(
    images: int,
    size: int,
    rounds: int,
    clock: Callable[[], float],
    device: str,
    peers: bool,
    only: tuple[str, ...] = (*ASKING, *EXPLAINING),
    network: str = "resnet18",
) -> None:
    """Print a table for each metric: seconds, and the ratio to the bare passes."""
    case = make_case(images, size, torch.device(device), network)
    threads = torch.get_num_threads()
    print(f"\n{network}, {images} images of {size}×{size}, {threads} threads, median of {rounds} rounds")
    for name in only:
        calls = contenders(name, case, peers)
        print_table(measure(calls, rounds, clock, case[1].device), (next(iter(calls)),))


def impute_volumes(size: int) -> None:
    """Print the seconds of ROAD's solver for shares of a smooth map in a volume of one channel."""
    rng = np.random.default_rng(0)
    saliency = gaussian_filter(rng.standard_normal((size,) * 3), size / 16)
    image = rng.standard_normal((1, *saliency.shape))
    imputed(image[:, :8, :8, :8], saliency[:8, :8, :8] > saliency[0, 0, 0])  # loads and compiles
    for percentile in (10, 50, 90):
        start = time.process_time()
        imputed(image, saliency > np.quantile(saliency, 1 - percentile / 100))
        print(f"ROAD, {size}×{size}×{size}, {percentile} % imputed: {time.process_time() - start:.2f} s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--network", default="resnet18", help="of torchvision, with random weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--only", nargs="+", choices=(*ASKING, *EXPLAINING), default=[*ASKING, *EXPLAINING])
    parser.add_argument("--volume", type=int, metavar="SIZE", help="only the solver of ROAD, in a volume")
    options = parser.parse_args()
    if options.volume:
        impute_volumes(options.volume)
        return
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    compare_faithfulness(
        options.images,
        options.size,
        options.rounds,
        clock,
        options.device,
        options.peers,
        tuple(options.only),
        options.network,
    )


if __name__ == "__main__":
    main()
