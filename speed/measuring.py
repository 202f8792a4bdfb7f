"""Command line, processor times, plain training and Markdown tables of the speed scripts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

_T = TypeVar("_T")
#: Function that returns the batches of an epoch.
Batches: TypeAlias = Callable[[], Iterable[tuple[Tensor, Tensor]]]


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help begins with the docstring of the script."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def timed(call: Callable[[], _T]) -> tuple[_T, float]:
    """Return a result and the processor seconds that it took."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def in_turn(rounds: int, **calls: Callable[[], object]) -> dict[str, list[float]]:
    """Return the processor seconds of each call in each round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call)[1])
    return times


def least_seconds(call: Callable[[], object], rounds: int = 1) -> float:
    """Return the smallest processor time of a call over some rounds."""
    return min(in_turn(rounds, call=call)["call"])


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_head(*columns: str) -> None:
    """Print the head of a Markdown table; all columns except for the first are numbers."""
    print_row(*columns)
    print(f"|---|{'--:|' * (len(columns) - 1)}", flush=True)


def train_plainly(
    model: nn.Module,
    train: Batches,
    val: Batches,
    loss: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
    lr: float,
) -> None:
    """Train with a plain loop and torch's Adam; the weights of the lowest validation loss are kept."""
    optimizer, best = torch.optim.Adam(model.parameters(), lr=lr), float("inf")
    for _ in range(epochs):
        model.train()
        for images, targets in train():
            optimizer.zero_grad()
            loss(model(images), targets).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            total = sum(float(loss(model(images), targets)) for images, targets in val())
        if total < best:
            best, weights = total, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(weights)
