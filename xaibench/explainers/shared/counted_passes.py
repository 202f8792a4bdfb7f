"""How often explainers ask the network, and how often they do within a budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

from torch import Tensor

from xaibench.explainers.shared.interface import Explainer

#: Passes that a gradient by the image takes: each row goes forward, and back with as many multiplications.
GRADIENT = 2


@runtime_checkable
class Countable(Protocol):
    """An explainer that can say beforehand how often it asks the network, so that its time can be estimated.

    A *pass* is a row that goes through the network, forward or back: a gradient takes two. What a small network carries
    on from one row to the next counts as the rows that it stands for, and what an explainer looks up once, whatever the
    number of images, is not counted.
    """

    def passes(self, images: Tensor) -> int:
        """Passes for these images.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            So many; about, where images have features of their own (superpixels).
        """

    def cheaper(self) -> str:
        """What to change for fewer of them, with the present value, as ``"n_samples=25"``.

        Returns:
            In words, with the present value.
        """


@runtime_checkable
class Adjustable(Countable, Protocol):
    """An explainer whose passes are a choice, so that it can be given a budget."""

    def within(self, budget: int, images: Tensor) -> Explainer:
        """The explainer as it is within a budget.

        Args:
            budget: The most passes for an image.
            images: ``[N, C, H, W]``, of which each costs the same (:meth:`alike`).

        Returns:
            With the largest count whose passes for each image do not exceed it; all else as it was.

        Raises:
            ValueError: If the fewest are too many.
        """

    def alike(self, images: Tensor) -> list[list[int]]:
        """Which images cost the same, so that no image's count depends on the others.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            Their places, group by group.
        """


class Repeating:
    """An explainer that asks the network as often for each image as one of its parameters says.

    Attributes:
        counted: The name of that parameter.
        fewest: Its smallest value.
        each: Passes for an image for each that it counts, where the image does not decide it.
    """

    counted: ClassVar[str]
    fewest: ClassVar[int] = 1
    each: ClassVar[int] = 1

    def count(self, images: Tensor) -> int:
        """How much is counted.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The parameter, or what it is for such images.
        """
        return int(getattr(self, self.counted))

    @property
    def once(self) -> int:
        """Passes for an image besides, however much is counted."""
        return 0

    def passes_each(self, images: Tensor) -> int:
        """Passes for an image for each that is counted.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            So many.
        """
        return self.each

    def passes(self, images: Tensor) -> int:
        """Passes for these images (:class:`Countable`).

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            So many.
        """
        return len(images) * (self.once + self.count(images) * self.passes_each(images))

    def cheaper(self) -> str:
        """What to lower.

        Returns:
            In words, with the present value.
        """
        besides = self.cheaper_each()
        return f"{self.counted} below {getattr(self, self.counted)}" + (f" or {besides}" if besides else "")

    def cheaper_each(self) -> str:
        """What else than the count to change, for less that is counted.

        Returns:
            In words; empty where there is nothing.
        """
        return ""

    def alike(self, images: Tensor) -> list[list[int]]:
        """Which images cost the same.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            All of them, where only their size counts.
        """
        return [list(range(len(images)))]

    def within(self, budget: int, images: Tensor) -> Self:
        """The explainer with the largest count that a budget affords (:class:`Adjustable`).

        Args:
            budget: The most passes for an image.
            images: ``[N, C, H, W]``, of which each costs the same.

        Returns:
            With another ``counted``; all else as it was.

        Raises:
            ValueError: If the fewest are too many.
        """
        each = self.passes_each(images)
        count = self.affordable((budget - self.once) // each)
        if count < self.fewest:
            raise too_few(type(self).__name__, budget, self.once + self.fewest * each, self.cheaper_each())
        return cast(Self, replace(cast(Any, self), **{self.counted: count}))

    def affordable(self, count: int) -> int:
        """The largest value of the parameter up to so many.

        Args:
            count: As many as the budget affords.

        Returns:
            That, unless only some values will do.
        """
        return count


def too_few(owner: str, budget: int, least: int, cheaper: str = "") -> ValueError:
    """What to raise where a budget does not suffice.

    Args:
        owner: The explainer.
        budget: As given.
        least: Passes for an image that it takes.
        cheaper: What would make it fewer; empty where nothing does.

    Returns:
        The error.
    """
    otherwise = f", change {cheaper}" if cheaper else ""
    return ValueError(
        f"{owner}: got budget={budget}, expected at least {least}, its fewest passes for an image of these. Give as "
        f"many{otherwise}, or take a cheaper explainer."
    )
