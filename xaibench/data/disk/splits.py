"""Splits into train, validation and test: random by group or official for annotated sets, stratified for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.messages import folded, unknown
from xaibench.data.disk.file_readers import to_nfc
from xaibench.data.disk.source import SampleSource

#: Fractions of train, validation and test, or the official split.
Splits: TypeAlias = tuple[float, float, float] | Literal["official"]
Indices: TypeAlias = NDArray[np.int64]

#: Share of the official training samples used for validation if there is no official validation set.
_VAL_SHARE = 0.2


def split_indices(
    source: SampleSource, selected: Indices, splits: Splits, seed: int
) -> tuple[Indices, Indices, Indices]:
    """Return the indices of train, validation and test.

    With fractions, whole groups are assigned at random, class by class, so that every split has its share of every
    class as nearly as whole groups allow. With ``"official"``, the published split is used. Without a test set (its
    masks are often not public), the validation set is the test set. Without a validation set, a fifth of the training
    samples is used. The training indices are in random order, the others in ascending order.

    Args:
        source: The samples of the set.
        selected: Indices of the samples to assign.
        splits: Three fractions that sum to 1, some of which may be 0; or ``"official"``.
        seed: Seed of the random assignment.

    Raises:
        ValueError: If the fractions are invalid, the set has no official split, or a class has too few groups.
    """
    rng = np.random.default_rng([seed, 0x5B117])
    if isinstance(splits, str):
        return _split_officially(source, selected, splits, rng)
    fractions = _check_fractions(splits)
    assigned = _assign_splits(source, selected, fractions, rng)
    return _gather_splits(selected, assigned, rng)


def _check_fractions(splits: Sequence[float]) -> NDArray[np.float64]:
    fractions = np.array([float(share) for share in splits])
    if len(fractions) != 3 or not (fractions >= 0).all() or abs(fractions.sum() - 1) > 1e-6:
        raise ValueError(
            f"splits={tuple(splits)}: expected three fractions (train, val, test) that sum to 1, such as "
            "(0.6, 0.2, 0.2), or 'official'."
        )
    return fractions


def _assign_splits(
    source: SampleSource, selected: Indices, fractions: NDArray[np.float64], rng: np.random.Generator
) -> Indices:
    """Return the split (0, 1, 2) of each kept sample."""
    targets = source.targets[selected]
    groups = selected if source.groups is None else source.groups[selected]
    names, group_of = np.unique(groups, return_inverse=True)
    # A group that shows several classes is assigned with its rarest class.
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
                f"{len(used)} splits; leave the class out, add images, or put all in one split: splits=(0, 0, 1)."
            )
        part_of_group[members] = _divide_members(len(members), fractions)
    return part_of_group[group_of]


def _divide_members(count: int, fractions: NDArray[np.float64]) -> Indices:
    """Return the split of each of ``count`` shuffled members. No used split is empty if there are enough members."""
    sizes = np.floor(fractions * count).astype(np.int64)
    used = np.flatnonzero(fractions > 0)
    for _ in range(count - sizes.sum()):
        sizes[used[np.argmax((fractions * count - sizes)[used])]] += 1
    for split in used:
        if sizes[split] == 0 and sizes.max() > 1:
            sizes[sizes.argmax()] -= 1
            sizes[split] = 1
    return np.repeat(np.arange(3), sizes)


def _gather_splits(selected: Indices, assigned: Indices, rng: np.random.Generator) -> tuple[Indices, Indices, Indices]:
    train, val, test = (selected[assigned == split] for split in range(3))
    return rng.permutation(train), val, test


def _split_officially(
    source: SampleSource, selected: Indices, splits: str, rng: np.random.Generator
) -> tuple[Indices, Indices, Indices]:
    if splits != "official":
        raise ValueError(f"splits={splits!r}: expected three fractions, such as (0.6, 0.2, 0.2), or 'official'.")
    if source.official is None:
        raise ValueError(
            "This data set has no official split with these parameters; give fractions, such as splits=(0.6, 0.2, 0.2)."
        )
    lists = {split: np.intersect1d(indices, selected) for split, indices in source.official.items()}
    if "test" not in lists:
        lists["test"] = lists.pop("val")
    if "val" not in lists:
        share = np.array([1 - _VAL_SHARE, _VAL_SHARE, 0.0])
        assigned = _assign_splits(source, lists["train"], share, rng)
        return (*_gather_splits(lists["train"], assigned, rng)[:2], lists["test"])
    return rng.permutation(lists["train"]), lists["val"], lists["test"]


def choose_classes(
    wanted: str | Sequence[str] | None,
    known: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    default: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return the wanted classes, in the order given.

    An exact name has priority. Otherwise upper and lower case, spaces, ``-`` and ``_`` are ignored, unless the name
    then matches several classes.

    Args:
        wanted: ``"aeroplane,bicycle"``, a sequence of names, or None for ``default``.
        known: All class names.
        aliases: Other spellings, ``{alias: name}``.
        default: The classes for ``wanted=None``; None = all.

    Raises:
        ValueError: If a name is unknown (the message has the nearest one), ambiguous or repeated, or the list is empty.

    Example:
        >>> choose_classes("Dog, cat", ("cat", "dog", "tv_monitor"))
        ('dog', 'cat')
        >>> choose_classes(["dgo"], ("cat", "dog"))
        Traceback (most recent call last):
            ...
        ValueError: Unknown class 'dgo'; did you mean 'dog'? Known: cat, dog.
    """
    if wanted is None:
        return tuple(known if default is None else default)
    names = [name.strip() for name in (wanted.split(",") if isinstance(wanted, str) else wanted)]
    names = [name for name in names if name]
    if not names:
        raise ValueError(f"classes={wanted!r} names no class; known: {', '.join(known)}.")
    exact = {to_nfc(name): name for name in known}
    spelled: dict[str, list[str]] = {}
    for name in known:
        spelled.setdefault(folded(to_nfc(name)), []).append(name)
    for alias, name in (aliases or {}).items():
        spelled.setdefault(folded(alias), [name])
    chosen = []
    for name in map(to_nfc, names):
        meant = [exact[name]] if name in exact else spelled.get(folded(name), [])
        if not meant:
            raise ValueError(unknown("Unknown class", name, known, aliases or ()))
        if len(meant) > 1:
            raise ValueError(f"Class {name!r} is ambiguous: {' or '.join(map(repr, meant))}; give the exact name.")
        chosen += meant
    twice = sorted({name for name in chosen if chosen.count(name) > 1})
    if twice:
        raise ValueError(f"classes={wanted!r} names {', '.join(twice)} more than once; name each once.")
    return tuple(chosen)


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return the fractions of train, validation and test as floats.

    Raises:
        ValueError: If they are not three positive numbers that sum to 1.
    """
    try:
        values = tuple(float(fraction) for fraction in fractions)
    except (TypeError, ValueError):
        values = ()
    if len(values) != 3 or not all(value > 0 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise ValueError(
            f"split={fractions!r}: expected three positive fractions (train, val, test) that sum to 1, "
            "such as (0.8, 0.1, 0.1)."
        )
    return values[0], values[1], values[2]


def stratified_split(
    strata: NDArray[np.int64], fractions: Sequence[float], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of train, validation and test, with every stratum divided in the same proportion.

    The sizes of the splits are exact (rounded once, over all samples). Within a split, every stratum is at most one
    sample off its share. Every split is in random order.

    Args:
        strata: ``[N]`` stratum of each sample.
        fractions: Fractions of train, validation and test; positive, with sum 1.
        rng: Random generator.

    Raises:
        ValueError: If the fractions are invalid, or a split would be empty.

    Example:
        >>> parts = stratified_split(np.arange(100) % 2, (0.8, 0.1, 0.1), np.random.default_rng(0))
        >>> [len(part) for part in parts], [int((part % 2).sum()) for part in parts]
        ([80, 10, 10], [40, 5, 5])
    """
    checked = check_fractions(fractions)
    count = len(strata)
    bounds = [0, *(round(float(bound) * count) for bound in np.cumsum(checked))]
    sizes = np.diff(bounds)
    if (sizes == 0).any():
        raise ValueError(
            f"{count} samples split {checked} leave an empty split (sizes {sizes.tolist()}); use more samples or other "
            "fractions."
        )
    shuffled = rng.permutation(count)
    left = shuffled[np.argsort(strata[shuffled], kind="stable")]
    parts: list[NDArray[np.int64]] = []
    for size in sizes[:0:-1]:
        # Take every (len/size)-th sample of the concatenated strata: `size` in all, with every stratum within one
        # sample of its share.
        taken = np.diff(np.arange(len(left) + 1) * size // len(left)) > 0
        parts.append(left[taken])
        left = left[~taken]
    test, val, train = (rng.permutation(part) for part in (*parts, left))
    return train, val, test
