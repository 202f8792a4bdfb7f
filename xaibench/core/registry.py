"""One kind of registry for data sets, models, explainers, metrics and suites.

A registry maps a name to a target ``"package.module:attribute"``, which is imported only when it is asked for. A
user's own part needs no entry: ``"mypackage.module:Thing"`` is accepted wherever a name is.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from xaibench.core.messages import capitalised, did_you_mean, unknown


class Registry:
    """Names and where their parts live.

    Args:
        kind: What the parts are, in the singular, for error messages: ``"explainer"``.
        targets: ``{name: "package.module:attribute"}``.
        aliases: Other spellings, ``{alias: name}``; accepted by :meth:`resolve`, not listed. Of a part that is to be
            found by its name and listed nowhere, ``{name: target}``.
        schemes: Prefixes, ``{"folder": target}``: ``"folder:~/mine"`` is the part that ``target("~/mine")`` makes.
        own: How a part of the user's own is given, for error messages.

    Example:
        >>> registry = Registry("function", {"sqrt": "math:sqrt"})
        >>> registry.resolve("sqrt")(9.0), registry.resolve("math:floor")(9.5)
        (3.0, 9)
        >>> registry.resolve("sqr")
        Traceback (most recent call last):
            ...
        xaibench.core.registry.UnknownNameError: Unknown function 'sqr'; did you mean 'sqrt'? Known: sqrt. A part of \
your own is given as 'package.module:name'.
    """

    def __init__(
        self,
        kind: str,
        targets: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        schemes: Mapping[str, str] | None = None,
        own: str = "A part of your own is given as 'package.module:name'.",
    ) -> None:
        self.kind = kind
        self._own = own
        self._schemes = dict(schemes or {})
        self._targets = dict(targets)
        self._aliases = dict(aliases or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    @property
    def schemes(self) -> frozenset[str]:
        """What stands before the colon of names that say how a part is made, and not where it is imported from."""
        return frozenset(self._schemes)

    def canonical(self, name: str) -> str:
        """The listed name of the part behind ``name``; unknown names unchanged.

        Whatever decides by the name of a part decides by this one, so that a part is the same however it was written.

        Args:
            name: As a user wrote it: listed, an alias, another spelling (``-`` for ``_``, capitals), or
                ``"package.module:attribute"``, which is imported to see whether it is a listed part.

        Returns:
            As the table has it, or as it was.

        Raises:
            TypeError: If it is no text.

        Example:
            >>> registry = Registry("function", {"floor": "fractions:Fraction.__floor__"}, {"entier": "floor"})
            >>> registry.canonical("Entier"), registry.canonical("fractions:Fraction.__floor__")
            ('floor', 'floor')
            >>> registry.canonical("math:sqrt")
            'math:sqrt'
        """
        known = self._listed(name)
        if ":" not in known or known.partition(":")[0] in self._schemes:
            return known
        try:
            return self.name_of(import_target(known, self.kind)) or known
        except UnknownNameError:
            return known

    def name_of(self, part: object) -> str | None:
        """The listed name of a function or class.

        Args:
            part: Whatever it is.

        Returns:
            Its name, or ``None`` where it is not listed, or one target has several names.

        Example:
            >>> import textwrap
            >>> registry = Registry("function", {"dedent": "textwrap:dedent"})
            >>> registry.name_of(textwrap.dedent), registry.name_of(textwrap.indent)
            ('dedent', None)
        """
        module, attribute = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
        return self._name_of_target(f"{module}:{attribute}")

    def _name_of_target(self, target: str) -> str | None:
        names = [name for name, own in self._targets.items() if own == target]
        return names[0] if len(names) == 1 else None

    def _listed(self, name: str) -> str:
        """As :meth:`canonical`, by the text alone: nothing is imported."""
        if not isinstance(name, str):
            raise TypeError(f"{self.kind}: got {type(name).__name__}, expected a name or 'package.module:name'.")
        if name in self._targets:
            return name
        if ":" in name:
            return self._name_of_target(name) or name
        folded = name.casefold().replace("_", "-")
        for known in self._targets:
            if known.casefold().replace("_", "-") == folded:
                return known
        for alias, known in self._aliases.items():
            if alias.casefold().replace("_", "-") == folded:
                return known
        return name

    def resolve(self, name: str) -> Any:
        """Import and return the part behind ``name`` (a listed name, an alias, or ``"package.module:attribute"``).

        Args:
            name: As a user wrote it.

        Returns:
            The class, function or object; for a scheme, what it makes of the rest of the name.

        Raises:
            UnknownNameError: If the name is not listed, or the module or attribute does not exist; names the nearest.
        """
        part = import_target(self.target(name), self.kind)
        scheme, _, rest = name.partition(":")
        return part(rest) if ":" in name and scheme in self._schemes else part

    def target(self, name: str) -> str:
        """What stands in the table for ``name``; a name with a colon is its own target (for a scheme, the scheme's).

        Args:
            name: As a user wrote it.

        Returns:
            ``"package.module:attribute"``.

        Raises:
            UnknownNameError: If the name is not listed; names the nearest.
        """
        canonical = self._listed(name)
        scheme = canonical.partition(":")[0]
        if ":" in name and scheme in self._schemes:
            return self._schemes[scheme]
        if canonical not in self._targets and ":" not in canonical:
            raise UnknownNameError(self._message(name))
        return self._targets.get(canonical, canonical)

    def _message(self, name: str) -> str:
        return f"{unknown(f'Unknown {self.kind}', name, sorted(self._targets), self._aliases)} {self._own}"


class UnknownNameError(KeyError, ValueError):
    """A name that no registry entry and no importable target answers to."""

    def __str__(self) -> str:
        return str(self.args[0])


def import_target(target: str, kind: str = "part") -> Any:
    """Import ``"package.module:attribute"``; attributes may be dotted.

    Args:
        target: As above.
        kind: What the part is, in the singular, for error messages.

    Returns:
        The class, function or object.

    Raises:
        UnknownNameError: If module or attribute is missing; the message says which of the two.
    """
    module_name, _, attribute = target.partition(":")
    if not all(step.isidentifier() for step in (*module_name.split("."), *attribute.split("."))):
        raise UnknownNameError(f"{capitalised(kind)} {target!r}: expected 'package.module:name'.")
    try:
        part: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that exists but lacks one of its own dependencies must say so itself.
        if error.name is not None and not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise UnknownNameError(
            f"{capitalised(kind)} {target!r}: there is no module {error.name!r} to import; install it, or run where it "
            "lies."
        ) from error
    owner = module_name
    for step in attribute.split("."):
        if not hasattr(part, step):
            hint = did_you_mean(step, dir(part))
            raise UnknownNameError(f"{capitalised(kind)} {target!r}: {owner!r} has no attribute {step!r}{hint}")
        part, owner = getattr(part, step), f"{owner}.{step}"
    return part
