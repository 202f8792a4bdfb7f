"""Which classes a user asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xaibench.core.messages import folded, unknown


def choose_classes(
    wanted: str | Sequence[str] | None,
    known: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    default: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The classes that are meant, in the order in which they were asked for.

    Capitals, spaces, ``-`` and ``_`` make no difference.

    Args:
        wanted: ``"aeroplane,bicycle"``, a sequence of names, or None for all.
        known: The names there are.
        aliases: Other spellings, ``{alias: name}``.
        default: What None stands for; all that are known, when left out.

    Raises:
        ValueError: For a name that is not known (with the nearest), one given twice, or an empty list.

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
    spelt = {folded(name): name for name in known}
    spelt |= {folded(alias): name for alias, name in (aliases or {}).items() if folded(alias) not in spelt}
    chosen = []
    for name in names:
        if folded(name) not in spelt:
            raise ValueError(unknown("Unknown class", name, known, aliases or ()))
        chosen.append(spelt[folded(name)])
    twice = sorted({name for name in chosen if chosen.count(name) > 1})
    if twice:
        raise ValueError(f"classes={wanted!r} names {', '.join(twice)} more than once; name each once.")
    return tuple(chosen)
