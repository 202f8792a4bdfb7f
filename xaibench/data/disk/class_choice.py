"""Parsing of the ``classes`` parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xaibench.core.messages import folded, unknown
from xaibench.data.disk.file_readers import to_nfc


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
