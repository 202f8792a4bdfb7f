"""Train, validation and test of an annotated set: by seed or by its publishers, never a patient in two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.source import Source

#: Fractions of train, validation and test, or the publishers' own lists.
Splits: TypeAlias = tuple[float, float, float] | Literal["official"]
Indices: TypeAlias = NDArray[np.int64]

PARTS = ("train", "val", "test")
#: Of the official training samples, how many become the validation set that the publishers did not name.
_VAL_SHARE = 0.2


def divide(source: Source, kept: Indices, splits: Splits, seed: int) -> tuple[Indices, Indices, Indices]:
    """Indices of train, validation and test.

    By fractions: groups are dealt out at random, each class by itself, so that every split has its share of every class
    as nearly as whole groups allow. By ``"official"``: as published; where the
    publishers name no validation set, a fifth of the training samples becomes it, and where they name no test set (its
    masks are often kept back), their validation set is the test set. Each part is in ascending order but for the
    training part, which is in random order.

    Args:
        source: The set.
        kept: Which of its samples are to be shared out.
        splits: Three fractions that add up to 1, of which some may be 0; or ``"official"``.
        seed: Of the draw.

    Raises:
        ValueError: For other fractions, a set without official splits, or a class with fewer groups than splits.
    """
    rng = np.random.default_rng([seed, 0x5B117])
    if isinstance(splits, str):
        return _official(source, kept, splits, rng)
    fractions = _checked(splits)
    assigned = _deal(source, kept, fractions, rng)
    return _parts(kept, assigned, rng)


def _checked(splits: Sequence[float]) -> NDArray[np.float64]:
    fractions = np.array([float(share) for share in splits])
    if len(fractions) != 3 or not (fractions >= 0).all() or abs(fractions.sum() - 1) > 1e-6:
        raise ValueError(
            f"splits={tuple(splits)}: expected three fractions (train, val, test) that add up to 1, such as "
            "(0.6, 0.2, 0.2), or 'official'."
        )
    return fractions


def _deal(source: Source, kept: Indices, fractions: NDArray[np.float64], rng: np.random.Generator) -> Indices:
    """Which part (0, 1, 2) each kept sample goes to."""
    targets = source.targets[kept]
    groups = kept if source.groups is None else source.groups[kept]
    names, group_of = np.unique(groups, return_inverse=True)
    # A group that shows several classes counts for the rarest of them, which needs it most.
    counts = np.bincount(targets, minlength=len(source.classes))
    order = np.lexsort((counts[targets], group_of))
    stratum = targets[order][np.searchsorted(group_of[order], np.arange(len(names)))]
    used = np.flatnonzero(fractions > 0)
    part_of_group = np.empty(len(names), dtype=np.int64)
    for index in np.flatnonzero(counts):
        members = rng.permutation(np.flatnonzero(stratum == index))
        present = np.count_nonzero(np.bincount(group_of[targets == index]))
        if present < len(used):
            raise ValueError(
                f"Class {source.classes[index]!r} has {present} independent image(s) or patient(s), too few for "
                f"{len(used)} splits; leave the class out, get more of it, or put all in one split: splits=(0, 0, 1)."
            )
        part_of_group[members] = _shares(len(members), fractions)
    return part_of_group[group_of]


def _shares(count: int, fractions: NDArray[np.float64]) -> Indices:
    """The part of each of ``count`` shuffled members; no used part is left empty while there are members enough."""
    sizes = np.floor(fractions * count).astype(np.int64)
    used = np.flatnonzero(fractions > 0)
    for _ in range(count - sizes.sum()):
        sizes[used[np.argmax((fractions * count - sizes)[used])]] += 1
    for part in used:
        if sizes[part] == 0 and sizes.max() > 1:
            sizes[sizes.argmax()] -= 1
            sizes[part] = 1
    return np.repeat(np.arange(3), sizes)


def _parts(kept: Indices, assigned: Indices, rng: np.random.Generator) -> tuple[Indices, Indices, Indices]:
    train, val, test = (kept[assigned == part] for part in range(3))
    return rng.permutation(train), val, test


def _official(source: Source, kept: Indices, splits: str, rng: np.random.Generator) -> tuple[Indices, Indices, Indices]:
    if splits != "official":
        raise ValueError(f"splits={splits!r}: expected three fractions, such as (0.6, 0.2, 0.2), or 'official'.")
    if source.official is None:
        raise ValueError(
            "This set has no official splits with these parameters; give fractions, such as splits=(0.6, 0.2, 0.2)."
        )
    lists = {part: np.intersect1d(indices, kept) for part, indices in source.official.items()}
    if "test" not in lists:
        lists["test"] = lists.pop("val")
    if "val" not in lists:
        share = np.array([1 - _VAL_SHARE, _VAL_SHARE, 0.0])
        return (*_parts(lists["train"], _deal(source, lists["train"], share, rng), rng)[:2], lists["test"])
    return rng.permutation(lists["train"]), lists["val"], lists["test"]
