"""Building blocks of error messages: the nearest known name, lists of names, and warnings with the caller's line.

This module imports nothing that is slow to load.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

from xaibench.core.process_settings import SEEN_WARNINGS


def unknown(start: str, name: object, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """Return the error message for an unknown name, with the nearest known name and a list of all.

    Args:
        start: Beginning of the sentence, up to the name: ``"Unknown loss"``, ``"LIME has no parameter"``.
        name: The name as the user wrote it.
        known: The known names, in the order in which they are listed.
        also: Other spellings that can be suggested but are not listed.

    Returns:
        Two sentences.

    Example:
        >>> unknown("Unknown loss", "probs", ["logits", "probabilities"])
        "Unknown loss 'probs'; did you mean 'probabilities'? Known: logits, probabilities."
        >>> unknown("Zero has no parameter", "n", [])
        "Zero has no parameter 'n'. Known: none."
    """
    known = list(known)
    return f"{start} {name!r}{did_you_mean(name, [*known, *also])} Known: {listed(known)}."


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: a suggestion, or a full stop.

    Capitals, spaces, ``-`` and ``_`` are ignored in the comparison.

    Args:
        name: The name as the user wrote it.
        known: The known names. Of two equally near names the first is suggested.

    Returns:
        ``"; did you mean 'nearest'?"``, or ``"."`` if no name is near.

    Example:
        >>> did_you_mean("TV-Monitor", ["cat", "tv monitor"]), did_you_mean("zebra", ["cat"])
        ("; did you mean 'tv monitor'?", '.')
    """
    spellings: dict[str, str] = {}
    for one in known:
        spellings.setdefault(folded(one), one)
    near = difflib.get_close_matches(folded(str(name)), spellings, n=1, cutoff=0.5)
    return f"; did you mean {spellings[near[0]]!r}?" if near else "."


def listed(names: Iterable[object], most: int | None = None) -> str:
    """Join names in one line: all of them, or the first ``most`` and the total number.

    Args:
        names: Names or numbers.
        most: Largest number of names to list; None = all.

    Returns:
        The line; ``"none"`` if there are no names.

    Example:
        >>> listed("abc"), listed(range(9), most=3), listed([])
        ('a, b, c', '0, 1, 2, ... (9 in all)', 'none')
    """
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:most]) or "none"
    return shown if most is None or len(texts) <= most else f"{shown}, ... ({len(texts)} in all)"


def count_samples(samples: int, groups: int, groups_by: str = "") -> str:
    """Return the number of samples, with the number of their groups if it differs.

    Args:
        samples: Number of samples.
        groups: Number of groups that they belong to.
        groups_by: What the groups are, such as ``"patients"``.

    Example:
        >>> count_samples(24, 12, "patients"), count_samples(24, 24)
        ('24 samples in 12 groups (patients)', '24 samples')
    """
    if groups == samples:
        return f"{samples} samples"
    return f"{samples} samples in {groups} groups{f' ({groups_by})' if groups_by else ''}"


def folded(name: str) -> str:
    """Remove the differences in spelling from a name: capitals, spaces, ``-`` and ``_``.

    Example:
        >>> folded("Tv_Monitor") == folded("tv-monitor") == folded("TV monitor")
        True
    """
    return "".join(letter for letter in name.casefold() if letter not in " -_")


def capitalize(text: str) -> str:
    """Capitalize the first letter of a text, and keep the others.

    Example:
        >>> capitalize("data set of MNIST")
        'Data set of MNIST'
    """
    return text[:1].upper() + text[1:]


def first_line(error: BaseException) -> str:
    r"""Return the first line of the message of an error; if it has no message, the name of its class.

    Example:
        >>> first_line(OSError("No such file. \nTraceback ...")), first_line(KeyError())
        ('No such file.', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def printable(text: str, keep: str = "") -> str:
    r"""Replace characters that are not printed by their codes: control characters, writing directions, surrogates.

    Args:
        text: Text that may come from a stranger.
        keep: Characters to leave as they are, such as line breaks.

    Example:
        >>> printable("a\x1b[2J\u202eb\n", keep="\n")
        'a\\x1b[2J\\u202eb\n'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def kind_of(value: object) -> str:
    """Describe a value by its type, or as ``"the class NAME"`` if it is a class that should have been called.

    Example:
        >>> kind_of(3), kind_of(dict)
        ('int', 'the class dict')
    """
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


class ParameterWarning(UserWarning):
    """Parameters with which the results of a method are of little use. Not shown in a run, whose suite states them."""


def warn_caller(text: str, kind: type[UserWarning] = UserWarning) -> None:
    """Warn with the line of the caller outside of xaibench, and of torch, whose modules and hooks call xaibench.

    Args:
        text: What was found, and what to do.
        kind: Class of the warning.
    """
    seen = SEEN_WARNINGS.get()
    if seen is not None:
        if text in seen:
            return
        seen.add(text)
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in ("xaibench", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)
