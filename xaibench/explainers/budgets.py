"""Explain with a budget: a maximum number of passes per image, the same for all methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import Tensor, nn

from xaibench.compute.output import ExplainedOutput
from xaibench.explainers.base import Explainer
from xaibench.explainers.building import explainer_name
from xaibench.explainers.shared.passes import Adjustable, Countable, budget_error


def passes_of(part: Explainer, images: Tensor, model: nn.Module | None = None) -> int | None:
    """Return the number of passes that an explainer declares for these images, forward and backward.

    Args:
        part: The explainer.
        images: ``[N, C, H, W]``.
        model: The network. It is needed if its layers determine the number, as for Score-CAM.

    Returns:
        The number of passes; None if the explainer declares none, as a user's function, or if the model is needed.
    """
    if isinstance(part, Countable):
        return part.passes(images)
    if hasattr(part, "passes_with"):
        return None if model is None else int(part.passes_with(model, images))
    each = getattr(getattr(part, "info", None), "passes", None)
    return None if each is None else len(images) * int(each)


def assign_budget(
    part: Explainer, budget: int, images: Tensor, model: nn.Module | None = None
) -> list[tuple[list[int], Explainer]]:
    """Choose the count for each image so that each is within the budget.

    Args:
        part: The explainer.
        budget: Maximum number of passes per image.
        images: ``[N, C, H, W]``.
        model: See :func:`passes_of`.

    Returns:
        Pairs of image indices and the explainer for them. An explainer without a count is returned unchanged.

    Raises:
        ValueError: If the budget is below the declared number of passes.
    """
    if isinstance(part, Adjustable):
        return [(which, part.within(budget, images[which])) for which in part.alike(images)]
    stated = passes_of(part, images[:1], model)
    if stated is not None and stated > budget:
        raise budget_error(explainer_name(part), budget, stated, part.cheaper() if isinstance(part, Countable) else "")
    return [(list(range(len(images))), part)]


def explain_within_budget(
    part: Explainer, budget: int, model: ExplainedOutput, images: Tensor, targets: Tensor
) -> Tensor:
    """Compute maps with at most ``budget`` passes per image.

    Args:
        part: The explainer.
        budget: Maximum number of passes per image.
        model: The network with its explained output.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.

    Returns:
        The maps of the explainer.

    Raises:
        ValueError: If the budget is too small: before the first pass if the explainer declares its passes, otherwise
            once the budget is spent.
    """
    shared = assign_budget(part, budget, images, model)
    if len(shared) == 1:
        stated = passes_of(part, images[:1], model) is not None
        with nullcontext() if stated else _limit_passes(model, budget * len(images), part):
            return shared[0][1](model, images, targets)
    found = [own(model, images[which], targets[which]) for which, own in shared]
    maps = found[0].new_empty(len(images), *found[0].shape[1:])
    for (which, _), some in zip(shared, found, strict=True):
        maps[which] = some
    return maps


@contextmanager
def _limit_passes(model: ExplainedOutput, most: int, part: Explainer) -> Iterator[None]:
    """Count the passes of an explainer that declares none, and raise an error once there are too many."""
    on_rows, spent = model.on_rows, 0

    def count(rows: int) -> None:
        nonlocal spent
        spent += rows
        on_rows(rows)
        if spent > most:
            raise ValueError(
                f"{explainer_name(part)}: got a budget of {most} passes for these images, expected more, since it was "
                "spent before the maps were finished. Give a larger budget, or omit it."
            )

    model.on_rows = count
    try:
        yield
    finally:
        model.on_rows = on_rows
