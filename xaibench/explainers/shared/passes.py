"""The number of passes that an explainer takes, and explanations within a budget of passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

from torch import Tensor, nn

from xaibench.explainers.base import Explainer, explainer_name
from xaibench.network.explained_output import ExplainedOutput

#: Passes of one gradient with respect to the image: each row goes forward, and backward at the same cost.
GRADIENT = 2


@runtime_checkable
class Countable(Protocol):
    """An explainer that can compute beforehand how many passes it takes, so that its time can be estimated.

    A *pass* is one row that goes through the network, forward or backward; a gradient takes two. Rows that a small
    network updates incrementally count like full rows. Work that is done once, regardless of the number of images, is
    not counted.
    """

    def passes(self, images: Tensor) -> int:
        """Return the number of passes for these images.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The number of passes; approximate if each image has its own superpixels.
        """

    def cheaper(self) -> str:
        """Return advice on reducing the number of passes, for error messages.

        Returns:
            The parameter to change with its present value, such as ``"n_samples below 25"``.
        """


@runtime_checkable
class Adjustable(Countable, Protocol):
    """An explainer whose number of passes follows from a parameter, so that it can be fitted to a budget."""

    def within(self, budget: int, images: Tensor) -> Explainer:
        """Return a copy with the largest count that the budget allows.

        Args:
            budget: Maximum number of passes per image.
            images: ``[N, C, H, W]``, all of equal cost (see :meth:`alike`).

        Returns:
            The explainer with the largest count whose passes per image do not exceed the budget; other fields are
            unchanged.

        Raises:
            ValueError: If the budget is below the minimum number of passes.
        """

    def alike(self, images: Tensor) -> list[list[int]]:
        """Group the images by cost, so that the count for one image does not depend on the others.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The indices of the images in each group.
        """


class Repeating:
    """Base class of explainers whose number of passes is proportional to one of their parameters.

    Attributes:
        counted: The name of that parameter.
        fewest: Its smallest value.
        each: Passes per image and unit of that parameter, if they do not depend on the image.
    """

    counted: ClassVar[str]
    fewest: ClassVar[int] = 1
    each: ClassVar[int] = 1

    def count(self, images: Tensor) -> int:
        """Return the value of the counted parameter.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The parameter, or its default for images of this kind.
        """
        return int(getattr(self, self.counted))

    @property
    def once(self) -> int:
        """Passes per image in addition to the ones that scale with the counted parameter."""
        return 0

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and unit of the counted parameter.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The number of passes.
        """
        return self.each

    def passes(self, images: Tensor) -> int:
        """Return the number of passes for these images (see :class:`Countable`).

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The number of passes.
        """
        return len(images) * (self.once + self.count(images) * self.passes_each(images))

    def cheaper(self) -> str:
        """Return advice on reducing the number of passes, for error messages.

        Returns:
            The parameter to lower with its present value.
        """
        besides = self.cheaper_each()
        return f"{self.counted} below {getattr(self, self.counted)}" + (f" or {besides}" if besides else "")

    def cheaper_each(self) -> str:
        """Return advice on other parameters that reduce the passes per unit, for error messages.

        Returns:
            The change in words; empty if there is none.
        """
        return ""

    def alike(self, images: Tensor) -> list[list[int]]:
        """Group the images by cost.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            One group with all images, since the cost depends on their size only.
        """
        return [list(range(len(images)))]

    def within(self, budget: int, images: Tensor) -> Self:
        """Return a copy with the largest count that the budget allows (see :class:`Adjustable`).

        Args:
            budget: Maximum number of passes per image.
            images: ``[N, C, H, W]``, all of equal cost.

        Returns:
            The explainer with another value of ``counted``; other fields are unchanged.

        Raises:
            ValueError: If the budget is below the minimum number of passes.
        """
        each = self.passes_each(images)
        count = self.affordable((budget - self.once) // each)
        if count < self.fewest:
            raise budget_error(type(self).__name__, budget, self.once + self.fewest * each, self.cheaper_each())
        return cast(Self, replace(cast(Any, self), **{self.counted: count}))

    def affordable(self, count: int) -> int:
        """Return the largest valid value of the counted parameter up to a limit.

        Args:
            count: The limit given by the budget.

        Returns:
            The limit itself, unless the parameter takes special values only.
        """
        return count


def budget_error(owner: str, budget: int, least: int, cheaper: str = "") -> ValueError:
    """Return the error for a budget that is too small.

    Args:
        owner: The name of the explainer.
        budget: The given budget.
        least: Minimum number of passes per image.
        cheaper: How to reduce that minimum; empty if it cannot be reduced.

    Returns:
        The error.
    """
    otherwise = f", change {cheaper}" if cheaper else ""
    return ValueError(
        f"{owner}: got budget={budget}, expected at least {least}, its minimum number of passes per "
        f"image. Raise the budget{otherwise}, or use a cheaper explainer."
    )


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
