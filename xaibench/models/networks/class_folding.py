"""Grouping of a pretrained network's classes into the classes of a data set, without training.

ImageNet has no class "cat" but five kinds of cats. With the softmax s_j of the network, a group g of n_g classes gets

    ``"sum"``    z_g = log sum_{j in g} s_j          its probability
    ``"mean"``   z_g = log sum_{j in g} s_j / n_g    its probability if all groups were equally frequent

up to a constant, which is omitted: z_g = logsumexp of the members' logits (- log n_g). Metrics read the softmax over
the
groups: the probability of a group, given that the image belongs to one of them.

``"mean"`` is the default, because a metric that removes evidence must end at no evidence. ImageNet has 118 kinds of
dogs and 5 of cats: with ``"sum"`` a gray image is a dog with probability 0.96 (EfficientNet-Lite0), so every insertion
curve of a dog starts near its maximum and no deletion curve falls; with ``"mean"`` it is a dog with probability 0.49.
By Bayes' rule, ``"mean"`` is the network's prediction for equally frequent groups, given that its training classes were
equally frequent, which is nearly so for ImageNet. The two logits differ by a constant per group, so their gradients are
the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

#: ``{class: indices of the network's classes}``, or an iterable of such pairs.
Groups: TypeAlias = Mapping[str, Sequence[int]] | Iterable[tuple[str, Sequence[int]]]
Weighting: TypeAlias = Literal["mean", "sum"]

#: Known groups of the 1000 ImageNet classes, in the order of the classes of the data set.
FOLDS: dict[str, dict[str, Sequence[int]]] = {
    # Oxford-IIIT Pet: tabby, tiger cat, Persian, Siamese, Egyptian; and all breeds from Chihuahua to Mexican hairless.
    "pet": {"cat": range(281, 286), "dog": range(151, 269)},
}


class Folded(nn.Module):
    """A classifier whose classes are groups of another classifier's classes.

    Args:
        model: From images to logits ``[N, J]``.
        groups: ``{class: indices}``, in the order of the new classes. Classes in no group are ignored.
        weighting: ``"mean"``, all groups equally frequent, or ``"sum"`` (see the head of this module).

    Attributes:
        classes: Names of the groups.

    Raises:
        ValueError: For fewer than two groups, an empty group, or an index that is negative or in two groups.

    Example:
        >>> model = Folded(nn.Identity(), {"cat": [0], "dog": [1, 2]}, weighting="sum")
        >>> model(torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()).exp()
        tensor([[0.5000, 0.3750]])
    """

    def __init__(self, model: nn.Module, groups: Groups, weighting: Weighting = "mean") -> None:
        super().__init__()
        members = {name: [int(index) for index in indices] for name, indices in dict(groups).items()}
        _check_groups(members, weighting)
        self.model = model
        self.classes = tuple(members)
        self.weighting: Weighting = weighting
        self.explain_dtype: torch.dtype | None = getattr(model, "explain_dtype", None)
        for number, indices in enumerate(members.values()):
            self.register_buffer(f"_members{number}", torch.tensor(indices), persistent=False)
        self._highest = max(max(indices) for indices in members.values())

    def forward(self, images: Tensor) -> Tensor:
        """Classify images.

        Args:
            images: ``[N, C, H, W]``, as the model accepts them.

        Returns:
            Logits ``[N, K]``, one column per group.

        Raises:
            ValueError: If the model has fewer classes than the groups name.
        """
        logits: Tensor = self.model(images)
        if logits.shape[1] <= self._highest:
            raise ValueError(
                f"The groups name class {self._highest}, but the model returns {logits.shape[1]} logits; the groups of "
                "ImageNet need a network with ImageNet's 1000 classes."
            )
        columns = []
        for number in range(len(self.classes)):
            members: Tensor = self.get_buffer(f"_members{number}")
            frequency = math.log(len(members)) if self.weighting == "mean" else 0.0
            columns.append(logits.index_select(1, members).logsumexp(1) - frequency)
        return torch.stack(columns, 1)

    def extra_repr(self) -> str:
        """Return the text that ``print(model)`` shows.

        Returns:
            Classes and weighting.
        """
        return f"classes={self.classes}, weighting={self.weighting!r}"


def _check_groups(members: Mapping[str, Sequence[int]], weighting: str) -> None:
    if weighting not in get_args(Weighting):
        raise ValueError(f"weighting={weighting!r}: expected 'mean' or 'sum'.")
    if len(members) < 2:
        raise ValueError(f"Got {len(members)} groups, expected at least two: {{'cat': [281, ...], 'dog': [151, ...]}}.")
    seen: dict[int, str] = {}
    for name, indices in members.items():
        if not indices:
            raise ValueError(f"group {name!r} is empty; expected the indices of its classes.")
        for index in indices:
            if index < 0 or index in seen:
                where = "is below zero" if index < 0 else f"is in group {seen[index]!r} already"
                raise ValueError(f"group {name!r}: class {index} {where}; every class belongs to one group at most.")
            seen[index] = name


def known_fold(fold: str | Groups) -> Groups:
    """Return the groups, given by their name in :data:`FOLDS` or directly."""
    if not isinstance(fold, str):
        return fold
    if fold not in FOLDS:
        raise ValueError(f"fold={fold!r}: expected {{class: indices}} or one of {', '.join(map(repr, FOLDS))}.")
    return FOLDS[fold]


def fold_classes(
    model: nn.Module, fold: str | Groups | None, weighting: Weighting, num_classes: int, name: str
) -> nn.Module:
    """Return the model, with its classes grouped if ``fold`` is given.

    Raises:
        ValueError: If there are not ``num_classes`` groups.
    """
    if fold is None:
        return model
    result = Folded(model, known_fold(fold), weighting)
    if len(result.classes) != num_classes:
        raise ValueError(
            f"{name}: fold has {len(result.classes)} groups ({', '.join(result.classes)}), but num_classes is "
            f"{num_classes}; give one group for each class of the data set, in its order."
        )
    return result
