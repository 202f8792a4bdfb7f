"""Accuracy and speed of training the XAI-TRIS networks.

python speed/training.py --accuracy             every 8x8 cell compared with the paper's Table 3, with both losses
python speed/training.py --accuracy --cells xor-white-8x8/cnn rigid-corr-8x8     only these
python speed/training.py --accuracy --cells 64x64/mlp --samples 40000 --epochs 300 --seeds 0     Table 1's
python speed/training.py --five                 five trainings together against five alone, at 8x8 and 64x64
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F
from measuring import command_line, print_head, print_row, timed, train_plainly
from torch import nn

import xaibench as xb
from xaibench.benchmarks import paper_accuracy
from xaibench.models import accuracy, build, fit_many
from xaibench.registry.parameters import Frozen
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.stages.train import network_seed

LOSSES, WAYS = ("logits", "probabilities"), ("alone", "together")


def cells() -> Iterator[tuple[str, str, float]]:
    """Yield data set, model, and the paper's accuracy, where it has one (tables 3 and 1)."""
    kinds = itertools.product((8, 64), ("lin", "mult", "rigid", "xor"), ("white", "corr"), ("llr", "mlp", "cnn"))
    for size, scenario, background, model in kinds:
        if (paper := paper_accuracy(scenario, background, size, model)) is not None:
            yield f"{scenario}-{background}-{size}x{size}", model, paper


def train_cell(dataset: str, name: str, loss: str, given: argparse.Namespace) -> list[float]:
    """Train one cell in one stack, on one thread; returns the test accuracies in percent.

    The learning rate is the suites': the paper's, except for RIGID's CNN, which needs more than 0.0004.
    """
    torch.set_num_threads(1)
    rate = 0.0005 if dataset.endswith("64x64") else 0.0004 if (dataset[:5], name) == ("rigid", "mlp") else 0.004
    data = xb.load(f"xai-tris/{dataset}", seed=0, **({"n_samples": given.samples} if given.samples else {}))
    seeds = [network_seed(DataJob(f"xai-tris/{dataset}", 0, Frozen(), ""), number) for number in given.seeds]
    models = [build(name, in_shape=data.train[0][0].shape, num_classes=2, seed=seed) for seed in seeds]
    splits = [data.train] * len(models), [data.val] * len(models)
    options = {"epochs": given.epochs, "lr": given.lr or rate, "loss": loss, "seeds": seeds}
    fit_many(models, *splits, **options, device="cpu", progress=False)
    return [100 * accuracy(model, data.test) for model in models]


def study(given: argparse.Namespace) -> None:
    """Train the requested cells, and print mean accuracies and each training, with the differences from the paper."""
    chosen = [cell for cell in cells() if any(part in f"{cell[0]}/{cell[1]}" for part in given.cells)]
    if not chosen:
        raise SystemExit(f"no cell contains one of {given.cells}; cells are {[f'{d}/{m}' for d, m, _ in cells()]}")
    gaps: dict[str, list[float]] = {loss: [] for loss in LOSSES}
    with ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = {
            (dataset, model, loss): pool.submit(train_cell, dataset, model, loss, given)
            for dataset, model, _ in chosen
            for loss in LOSSES
        }
        print_head("cell", "paper", *LOSSES)
        for dataset, model, paper in chosen:
            row = []
            for loss in LOSSES:
                tests = found[dataset, model, loss].result()
                gaps[loss].append(float(np.mean(tests)) - paper)
                row.append(f"{np.mean(tests):.1f} ({', '.join(f'{test:.1f}' for test in tests)})")
            print_row(f"{dataset} {model}", paper, *row)
    print_row("mean distance to the paper", "", *(f"{np.abs(gaps[loss]).mean():.2f}" for loss in LOSSES))
    ends = (f"{min(gaps[loss]):+.1f}, {max(gaps[loss]):+.1f}" for loss in LOSSES)
    print_row("lowest, highest relative to the paper", "", *ends)


def alone(model: nn.Module, data: xb.data.Dataset, seed: int, epochs: int, lr: float) -> None:
    """Train with a plain loop over tensors in memory."""
    train, val = data.train, data.val
    order = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # dropout

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(len(train.targets), generator=order).split(512):
            yield train.images[rows], train.targets[rows]

    train_plainly(model, batches, lambda: [(val.images, val.targets)], F.cross_entropy, epochs, lr)


def train_five(way: str, name: str, data: xb.data.Dataset, epochs: int, lr: float) -> tuple[float, float]:
    """Return the processor seconds and the mean test accuracy of five trainings, alone or in a stack."""
    models = [build(name, tuple(data.train.images.shape[1:]), 2, seed=seed) for seed in range(5)]
    if way == "alone":
        _, seconds = timed(lambda: [alone(model, data, seed, epochs, lr) for seed, model in enumerate(models)])
    else:
        splits = [data.train] * 5, [data.val] * 5
        options = {"epochs": epochs, "lr": lr, "stack": 5, "device": "cpu", "progress": False}
        _, seconds = timed(lambda: fit_many(models, *splits, **options))
    return seconds, sum(100 * accuracy(model, data.test) for model in models) / 5


def five(given: argparse.Namespace) -> None:
    """Compare five trainings of a cell in a stack with five single ones: the smallest times, and test accuracy."""
    titles = "five alone, s", "together, s", "share of the time", "accuracy alone, %", "together, %"
    print_head("model", "epochs", *titles)
    for side, name, epochs in ((8, "mlp", 40), (64, "mlp", 6), (8, "cnn", 40), (64, "cnn", 1)):
        lr = 0.004 if side == 8 else 0.0005
        data = xb.load(f"xai-tris/lin-white-{side}x{side}", seed=0, n_samples=10_000 if side == 8 else 5_000)
        train_five("together", name, data, 1, lr)  # compiles
        rounds = [[train_five(way, name, data, epochs, lr) for way in WAYS] for _ in range(given.repeats)]
        (one, accuracy_one), (both, accuracy_both) = (min(results) for results in zip(*rounds, strict=True))
        cells = f"{one:.2f}", f"{both:.2f}", f"{both / one:.2f}", f"{accuracy_one:.1f}", f"{accuracy_both:.1f}"
        print_row(f"{name} {side}x{side}", epochs, *cells)


def main() -> None:
    """Read the command line."""
    parser = command_line(__doc__)
    modes = parser.add_mutually_exclusive_group(required=True)
    modes.add_argument("--accuracy", action="store_true", help="test accuracy compared with the paper's")
    modes.add_argument("--five", action="store_true", help="five trainings together against five alone")
    parser.add_argument("--repeats", type=int, default=3, help="of --five")
    parser.add_argument("--cells", nargs="+", default=["8x8"], help="parts of names of cells")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=500, help="of --accuracy")
    parser.add_argument("--lr", type=float, help="default: the suites'")
    parser.add_argument("--samples", type=int, help="of a data set; default: the set's own")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    (study if given.accuracy else five)(given)


if __name__ == "__main__":
    main()
