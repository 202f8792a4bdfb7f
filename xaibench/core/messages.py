"""What the error messages of all parts are made of: the nearest name, the known names, the first few of many.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


def unknown(start: str, name: object, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """What to say of a name that is not known: the nearest, and all that there are.

    Args:
        start: How the sentence begins, up to the name: ``"Unknown loss"``, ``"LIME has no parameter"``.
        name: As a user wrote it.
        known: The names there are, in the order in which they are listed.
        also: Other spellings, which may be the nearest but are not listed.

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
    """How a sentence ends after a name that is not known: with the nearest one, or with a full stop.

    Capitals, spaces, ``-`` and ``_`` make no difference to what is near.

    Args:
        name: As a user wrote it.
        known: The names there are; of two that are equally near the first is said.

    Returns:
        ``"; did you mean 'nearest'?"`` or ``"."``.

    Example:
        >>> did_you_mean("TV-Monitor", ["cat", "tv monitor"]), did_you_mean("zebra", ["cat"])
        ("; did you mean 'tv monitor'?", '.')
    """
    spelt: dict[str, str] = {}
    for one in known:
        spelt.setdefault(folded(one), one)
    near = difflib.get_close_matches(folded(str(name)), spelt, n=1, cutoff=0.5)
    return f"; did you mean {spelt[near[0]]!r}?" if near else "."


def listed(names: Iterable[object], most: int | None = None) -> str:
    """Names in one line: all of them, or the first ``most`` and how many there are in all.

    Args:
        names: Names or numbers.
        most: How many are said; None = all.

    Returns:
        ``"none"`` where there are none.

    Example:
        >>> listed("abc"), listed(range(9), most=3), listed([])
        ('a, b, c', '0, 1, 2, ... (9 in all)', 'none')
    """
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:most]) or "none"
    return shown if most is None or len(texts) <= most else f"{shown}, ... ({len(texts)} in all)"


def folded(name: str) -> str:
    """A name without what users spell in several ways: capitals, spaces, ``-`` and ``_``.

    Example:
        >>> folded("Tv_Monitor") == folded("tv-monitor") == folded("TV monitor")
        True
    """
    return "".join(letter for letter in name.casefold() if letter not in " -_")


def capitalised(text: str) -> str:
    """A text whose first letter is a capital; the others stay.

    Example:
        >>> capitalised("data set of MNIST")
        'Data set of MNIST'
    """
    return text[:1].upper() + text[1:]


def first_line(error: BaseException) -> str:
    r"""The first line of what another library's error says, to be put into a sentence; else the name of its kind.

    Example:
        >>> first_line(OSError("No such file. \nTraceback ...")), first_line(KeyError())
        ('No such file.', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def kind_of(value: object) -> str:
    """What a value is, for "got ...": the name of its type, or ``"the class NAME"`` for a class that was not called.

    Example:
        >>> kind_of(3), kind_of(dict)
        ('int', 'the class dict')
    """
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


class ParameterWarning(UserWarning):
    """Parameters with which a method says little. A run leaves it out: its suite states what is wanted."""


def warn_caller(text: str, kind: type[UserWarning] = UserWarning) -> None:
    """Warn with the line outside of xaibench that is the cause, however deep in it that shows.

    Args:
        text: What was found, and what to do.
        kind: Of warning.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "xaibench":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)
