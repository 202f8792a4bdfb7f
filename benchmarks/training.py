"""Accuracy and speed of training the XAI-TRIS networks.

python benchmarks/training.py --accuracy             every 8x8 cell compared with the paper's Table 3, with both losses
python benchmarks/training.py --accuracy --cells xor-white-8x8/cnn rigid-corr-8x8     only these
python benchmarks/training.py --accuracy --cells 64x64/mlp --samples 40000 --epochs 300 --seeds 0     Table 1's
python benchmarks/training.py --speed                stacks of several sizes against one after another, at 8x8
python benchmarks/training.py --five                 five trainings together against five alone, at 8x8 and 64x64
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

import xaibench as xb
from xaibench.benchmarks import paper_accuracy
from xaibench.component.parameters import Frozen
from xaibench.models import accuracy, build, fit_many
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.stages.train import network_seed

LOSSES = ("logits", "probabilities")


def learning_rate(dataset: str, model: str) -> float:
    """Return the suites' learning rate: the paper's, except for RIGID's CNN, which needs more than 0.0004."""
    if dataset.endswith("64x64"):
        return 0.0005
    return 0.0004 if (dataset.split("-")[0], model) == ("rigid", "mlp") else 0.004


def cells() -> Iterator[tuple[str, str, float]]:
    """Data set, model, and the paper's accuracy, where it has one (tables 3 and 1)."""
    kinds = itertools.product((8, 64), ("lin", "mult", "rigid", "xor"), ("white", "corr"), ("llr", "mlp", "cnn"))
    for size, scenario, background, model in kinds:
        if (paper := paper_accuracy(scenario, background, size, model)) is not None:
            yield f"{scenario}-{background}-{size}x{size}", model, paper


def train_cell(job: tuple[str, str, str, int, tuple[int, ...], int, float | None, int | None]) -> dict[str, object]:
    """Train one cell in one stack, on one thread, with the seeds of the suite; accuracies in percent."""
    torch.set_num_threads(1)
    dataset, name, loss, data_seed, numbers, epochs, lr, samples = job
    data = xb.load(f"xai-tris/{dataset}", seed=data_seed, **({"n_samples": samples} if samples else {}))
    seeds = [network_seed(DataJob(f"xai-tris/{dataset}", data_seed, Frozen(), ""), number) for number in numbers]
    models = [build(name, in_shape=data.train[0][0].shape, num_classes=2, seed=seed) for seed in seeds]
    start = time.perf_counter()
    trainings = fit_many(
        models,
        [data.train] * len(seeds),
        [data.val] * len(seeds),
        epochs=epochs,
        lr=lr or learning_rate(dataset, name),
        loss=loss,
        seeds=seeds,
        device="cpu",
        progress=False,
    )
    return {
        "dataset": dataset,
        "model": name,
        "loss": loss,
        "data_seed": data_seed,
        "seeds": numbers,
        "test": [100 * accuracy(model, data.test) for model in models],
        "val_loss": [training.best_val_loss for training in trainings],
        "best_epoch": [training.best_epoch for training in trainings],
        "seconds": time.perf_counter() - start,
    }


def study(
    wanted: list[str],
    losses: list[str],
    seeds: tuple[int, ...],
    epochs: int,
    lr: float | None,
    samples: int | None,
    workers: int,
    out: Path,
) -> None:
    """Train the requested cells; print and store each result, then the table."""
    chosen = [cell for cell in cells() if any(part in f"{cell[0]}/{cell[1]}" for part in wanted)]
    if not chosen:
        raise SystemExit(f"no cell contains one of {wanted}; cells are {[f'{d}/{m}' for d, m, _ in cells()]}")
    # The longest first, so that both workers end together.
    chosen.sort(key=lambda cell: ("cnn", "mlp", "llr").index(cell[1]))
    jobs = [(dataset, model, loss, 0, seeds, epochs, lr, samples) for loss in losses for dataset, model, _ in chosen]
    rows = []
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(train_cell, job) for job in jobs]):
            row = done.result()
            rows.append(row)
            tests = " ".join(f"{value:.1f}" for value in row["test"])
            print(f"{row['dataset']}/{row['model']} {row['loss']}: {tests}  ({row['seconds']:.0f} s)", flush=True)
            pd.DataFrame(rows).to_json(out, orient="records", indent=1)
    print("\n" + table(rows, losses))


def table(rows: list[dict[str, object]], losses: list[str]) -> str:
    """Return a Markdown table: one line per cell, mean over seeds and each seed, and the difference to the paper."""
    found = {(row["dataset"], row["model"], row["loss"]): row["test"] for row in rows}
    head = ["cell", "paper", *losses]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    above: dict[str, list[float]] = {loss: [] for loss in losses}
    for dataset, model, value in cells():
        if any((dataset, model, loss) in found for loss in losses):
            parts = []
            for loss in losses:
                tests = found[dataset, model, loss]
                mean = sum(tests) / len(tests)
                above[loss].append(mean - value)
                parts.append(f"{mean:.1f} ({', '.join(f'{test:.1f}' for test in tests)})")
            lines.append(f"| {dataset} {model} | {value} | {' | '.join(parts)} |")
    for name, summary in (
        ("mean distance to the paper", lambda gaps: f"{sum(map(abs, gaps)) / len(gaps):.2f}"),
        ("lowest against the paper", lambda gaps: f"{min(gaps):+.1f}"),
        ("highest against the paper", lambda gaps: f"{max(gaps):+.1f}"),
    ):
        lines.append(f"| {name} | | {' | '.join(summary(above[loss]) for loss in losses)} |")
    return "\n".join(lines)


def alone(model: nn.Module, data: xb.data.Dataset, seed: int, epochs: int, lr: float) -> None:
    """Train with a plain loop over tensors in memory and torch's Adam; the best weights are kept."""
    images, targets = data.train.images, data.train.targets
    order = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # dropout
    optimizer, best = torch.optim.Adam(model.parameters(), lr=lr), float("inf")
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(targets), generator=order).split(512):
            loss = F.cross_entropy(model(images[batch]), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = F.cross_entropy(model(data.val.images), data.val.targets)
        if loss < best:
            best, weights = loss, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(weights)


def stacked(models: list[nn.Module], data: xb.data.Dataset, stack: int, epochs: int, lr: float) -> None:
    """Train in stacks of the given size; model i has seed i."""
    count = len(models)
    fit_many(models, [data.train] * count, [data.val] * count, epochs=epochs, lr=lr, stack=stack, device="cpu",
             progress=False)  # fmt: skip


def best_times(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the smallest processor time of each function; they are timed in alternation."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def speed(members: int) -> None:
    """Compare stacks of several sizes with single training at 8x8: milliseconds per step (512 samples) and model."""
    epochs, sizes = 5, (1, 3, 5, 12)
    data = xb.load("xai-tris/lin-white-8x8", seed=0)
    steps = epochs * -(-len(data.train) // 512) * members
    print(f"ms of one thread a step and model, {members} models, batch 512 (best of 5, {epochs} epochs each)")
    print(f"| model | one after another | {' | '.join(f'stacks of {size}' for size in sizes)} | gain |")
    print("|---|" + "---:|" * (len(sizes) + 2))
    for name in ("llr", "mlp", "cnn"):

        def models(name: str = name) -> list[nn.Module]:
            return [build(name, (1, 8, 8), 2, seed=seed) for seed in range(members)]

        stacked(models()[:1], data, 1, 1, 0.004)  # compiles
        runs: dict[str, Callable[[], object]] = {
            "alone": lambda models=models: [
                alone(model, data, seed, epochs, 0.004) for seed, model in enumerate(models())
            ]
        }
        for size in sizes:
            runs[str(size)] = lambda models=models, size=size: stacked(models(), data, size, epochs, 0.004)
        one, *together = (seconds / steps * 1000 for seconds in best_times(runs, repeats=5).values())
        shown = " | ".join(f"{value:.2f}" for value in together)
        print(f"| {name} | {one:.2f} | {shown} | {one / min(together):.1f}x |", flush=True)


def five(repeats: int) -> None:
    """Compare five trainings of a cell in a stack with five single ones: time and mean test accuracy."""
    print("| model | epochs | five alone, s | together, s | share of the time | accuracy alone, % | together, % |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    data = {
        8: xb.load("xai-tris/lin-white-8x8", seed=0),
        64: xb.load("xai-tris/lin-white-64x64", seed=0, n_samples=5_000),
    }
    cells = [(8, "mlp", 40, 0.004), (64, "mlp", 6, 0.0005), (8, "cnn", 40, 0.004), (64, "cnn", 1, 0.0005)]
    for side, name, epochs, lr in cells:
        samples, found = data[side], {}

        def train(way: str) -> None:
            models = [build(name, (1, side, side), 2, seed=seed) for seed in range(5)]  # noqa: B023
            if way == "alone":
                for seed, model in enumerate(models):
                    alone(model, samples, seed, epochs, lr)  # noqa: B023
            else:
                stacked(models, samples, 5, epochs, lr)  # noqa: B023
            found[way] = sum(100 * accuracy(model, samples.test) for model in models) / 5  # noqa: B023

        stacked([build(name, (1, side, side), 2)], samples, 1, 1, lr)  # compiles
        times = best_times({way: lambda way=way: train(way) for way in ("alone", "together")}, repeats)
        row = f"{times['alone']:.2f} | {times['together']:.2f} | {times['together'] / times['alone']:.2f}"
        print(
            f"| {name} {side}x{side} | {epochs} | {row} | {found['alone']:.1f} | {found['together']:.1f} |", flush=True
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accuracy", action="store_true", help="test accuracy compared with the paper's")
    parser.add_argument("--speed", action="store_true", help="stacks of several sizes against one after another")
    parser.add_argument("--five", action="store_true", help="five trainings together against five alone")
    parser.add_argument("--repeats", type=int, default=3, help="of --five")
    parser.add_argument("--cells", nargs="+", default=["8x8"], help="parts of names of cells (default: all)")
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=500, help="of --accuracy")
    parser.add_argument(
        "--lr",
        type=float,
        default=None,
        help="default: the suites' (8x8: 0.0004 for RIGID's MLP, else 0.004; 64x64: 0.0005)",
    )
    parser.add_argument("--samples", type=int, default=None, help="of a data set; default: the set's own")
    parser.add_argument("--members", type=int, default=12, help="models in the speed test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("training-accuracy.json"))
    given = parser.parse_args()
    if not (given.accuracy or given.speed or given.five):
        parser.print_help()
        sys.exit(2)
    if given.accuracy:
        study(
            given.cells,
            given.losses,
            tuple(given.seeds),
            given.epochs,
            given.lr,
            given.samples,
            given.workers,
            given.out,
        )
    torch.set_num_threads(1)
    if given.speed:
        speed(given.members)
    if given.five:
        five(given.repeats)


if __name__ == "__main__":
    main()
