"""Explaining within a budget: so many passes for an image, whatever the method makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import Tensor, nn

from xaibench.explainers.explainer_building import name_of
from xaibench.explainers.shared.counted_passes import Adjustable, Countable, too_few
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.interface import Explainer


def passes_of(part: Explainer, images: Tensor, model: nn.Module | None = None) -> int | None:
    """The passes that an explainer states for these images: rows that go forward, and rows that a gradient takes back.

    Args:
        part: The explainer.
        images: ``[N, C, H, W]``.
        model: The network, which is asked where its layers decide, as of Score-CAM; without one, that is not known.

    Returns:
        So many; None of what states nothing, such as a function of one's own.
    """
    if isinstance(part, Countable):
        return part.passes(images)
    if hasattr(part, "passes_with"):
        return None if model is None else int(part.passes_with(model, images))
    each = getattr(getattr(part, "info", None), "passes", None)
    return None if each is None else len(images) * int(each)


def shares(
    part: Explainer, budget: int, images: Tensor, model: nn.Module | None = None
) -> list[tuple[list[int], Explainer]]:
    """Which images are explained with which count, so that each is within the budget.

    Args:
        part: The explainer.
        budget: The most passes for an image.
        images: ``[N, C, H, W]``.
        model: As in :func:`passes_of`.

    Returns:
        Places of images, and the explainer for them. Of what has nothing to choose, itself.

    Raises:
        ValueError: If the budget does not suffice, as far as that is stated.
    """
    if isinstance(part, Adjustable):
        return [(which, part.within(budget, images[which])) for which in part.alike(images)]
    stated = passes_of(part, images[:1], model)
    if stated is not None and stated > budget:
        raise too_few(name_of(part), budget, stated, part.cheaper() if isinstance(part, Countable) else "")
    return [(list(range(len(images))), part)]


def explained_within(part: Explainer, budget: int, model: ExplainedOutput, images: Tensor, targets: Tensor) -> Tensor:
    """Maps made with at most so many passes for an image.

    Args:
        part: The explainer.
        budget: The most passes for an image.
        model: What is explained.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.

    Returns:
        As of the explainer.

    Raises:
        ValueError: If the budget does not suffice: beforehand where the explainer states its passes, else as soon as it
            has spent it.
    """
    shared = shares(part, budget, images, model)
    if len(shared) == 1:
        stated = passes_of(part, images[:1], model) is not None
        with nullcontext() if stated else _watched(model, budget * len(images), part):
            return shared[0][1](model, images, targets)
    found = [own(model, images[which], targets[which]) for which, own in shared]
    maps = found[0].new_empty(len(images), *found[0].shape[1:])
    for (which, _), some in zip(shared, found, strict=True):
        maps[which] = some
    return maps


@contextmanager
def _watched(model: ExplainedOutput, most: int, part: Explainer) -> Iterator[None]:
    """Count the passes of what states none, and stop it where they are too many."""
    told, spent = model.watch, 0

    def count(rows: int) -> None:
        nonlocal spent
        spent += rows
        told(rows)
        if spent > most:
            raise ValueError(
                f"{name_of(part)}: got a budget of {most} passes for these images, expected more: it has spent it and "
                "is not done. Give a larger budget, or leave it out."
            )

    model.watch = count
    try:
        yield
    finally:
        model.watch = told
