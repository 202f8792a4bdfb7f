"""Which classes a user asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xaibench.core.messages import folded, unknown
from xaibench.data.disk.file_readers import composed


def choose_classes(
    wanted: str | Sequence[str] | None,
    known: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    default: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The classes that are meant, in the order in which they were asked for.

    A name as it is written comes first. Else capitals, spaces, ``-`` and ``_`` make no difference, as long as only one
    class can be meant: what is not certain is not guessed.

    Args:
        wanted: ``"aeroplane,bicycle"``, a sequence of names, or None for all.
        known: The names there are.
        aliases: Other spellings, ``{alias: name}``.
        default: What None stands for; all that are known, when left out.

    Raises:
        ValueError: For a name that is not known (with the nearest) or may mean several, one given twice, or an empty
            list.

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
    exact = {composed(name): name for name in known}
    spelt: dict[str, list[str]] = {}
    for name in known:
        spelt.setdefault(folded(composed(name)), []).append(name)
    for alias, name in (aliases or {}).items():
        spelt.setdefault(folded(alias), [name])
    chosen = []
    for name in map(composed, names):
        meant = [exact[name]] if name in exact else spelt.get(folded(name), [])
        if not meant:
            raise ValueError(unknown("Unknown class", name, known, aliases or ()))
        if len(meant) > 1:
            raise ValueError(f"Class {name!r} may be {' or '.join(map(repr, meant))}; write it as it is known.")
        chosen += meant
    twice = sorted({name for name in chosen if chosen.count(name) > 1})
    if twice:
        raise ValueError(f"classes={wanted!r} names {', '.join(twice)} more than once; name each once.")
    return tuple(chosen)
