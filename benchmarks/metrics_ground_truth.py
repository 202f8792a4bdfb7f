"""Metrics with a ground truth, compared with scikit-learn and (if installed) Quantus, timed in alternation.

    OMP_NUM_THREADS=1 python benchmarks/metrics_ground_truth.py              # 32 maps of 224×224
    OMP_NUM_THREADS=1 python benchmarks/metrics_ground_truth.py --count 200

Maps are float32, uniform and without ties; masks contain a fifth of the pixels. All libraries get the same arrays in
memory, with normalization switched off, and must give the same scores. The time is the best of the rounds.
`benchmarks/metrics.py` prints these lines too.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from xaibench import metrics

Scores = Callable[[], Any]


def contenders(count: int, size: int) -> list[tuple[str, str, Scores, Scores]]:
    """Yield ``(metric, peer, ours, theirs)``; the last two are functions that return the scores ``[N]``."""
    rng = np.random.default_rng(0)
    maps, masks = rng.random((count, size, size), dtype=np.float32), rng.random((count, size, size)) < 0.2

    def ours(name: str) -> Scores:
        function = getattr(metrics, name)
        inputs = (maps,) if function.info.kind == "map" else (maps, masks)
        return lambda: function(*inputs, reduction="none")

    def sklearn(function: Callable[..., float]) -> Scores:
        return lambda: [function(mask.ravel(), values.ravel()) for values, mask in zip(maps, masks, strict=True)]

    rows = [
        ("roc_auc", "scikit-learn", ours("roc_auc"), sklearn(roc_auc_score)),
        ("average_precision", "scikit-learn", ours("average_precision"), sklearn(average_precision_score)),
    ]
    if importlib.util.find_spec("quantus") is None:
        print("Quantus is not installed (pip install quantus): its rows are left out.")
        return rows
    import quantus
    import torch

    images, channel = torch.rand(count, 1, size, size).numpy(), (slice(None), None)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Identity())
    labels = np.zeros(count, dtype=int)

    def theirs(kind: Any) -> Scores:
        metric = kind(abs=False, normalize=False, disable_warnings=True, display_progressbar=False)
        return lambda: metric(
            model=model, x_batch=images, y_batch=labels, a_batch=maps[channel], s_batch=masks[channel], device="cpu"
        )

    peers = [
        ("hit", quantus.PointingGame),
        ("topk_precision", quantus.RelevanceRankAccuracy),
        ("mass_accuracy", quantus.RelevanceMassAccuracy),
        ("mass_accuracy", quantus.AttributionLocalization),  # the same number for maps without negative values
        ("roc_auc", quantus.AUC),
        ("sparseness", quantus.Sparseness),
        ("complexity", quantus.Complexity),
    ]
    return rows + [(name, f"Quantus {kind.__name__}", ours(name), theirs(kind)) for name, kind in peers]


def seconds(call: Scores) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare_scores(count: int, size: int, rounds: int) -> None:
    """Print milliseconds, ratios and the largest difference of the scores, one line for each metric and peer."""
    print(f"\n{count} maps of {size}×{size}, milliseconds for all, the best of {rounds} rounds\n")
    print("| metric | peer | peer ms | ours ms | peer / ours | largest difference |\n|---|---|---|---|---|---|")
    for name, peer, ours, theirs in contenders(count, size):
        timed = [(seconds(theirs), seconds(ours)) for _ in range(rounds)]
        slow, fast = (min(turn[side][0] for turn in timed) for side in (0, 1))
        expected, found = (np.asarray(timed[-1][side][1], dtype=float) for side in (0, 1))
        difference = np.abs(expected - found).max()
        row = f"| {name} | {peer} | {slow * 1e3:.1f} | {fast * 1e3:.1f} | {slow / fast:.1f} | {difference:.1e} |"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=32, help="number of maps (default 32)")
    parser.add_argument("--size", type=int, default=224, help="side of a map in pixels (default 224)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, the best of which is printed (default 3)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    compare_scores(options.count, options.size, options.rounds)


if __name__ == "__main__":
    main()
