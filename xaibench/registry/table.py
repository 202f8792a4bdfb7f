"""Registries of data sets, models, explainers, metrics and suites.

A registry maps a name to a target ``"package.module:attribute"``, which is imported on first use. A part of the user
needs no entry: ``"mypackage.module:Thing"`` is accepted instead of a name.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from xaibench.core.messages import capitalize, did_you_mean, folded, unknown

#: The target of the part whose module is being imported; empty if there is none.
IMPORTING: ContextVar[str] = ContextVar("importing", default="")


class Registry:
    """Names of parts, and the modules that define them.

    Args:
        kind: Kind of the parts in the singular, for error messages: ``"explainer"``.
        targets: ``{name: "package.module:attribute"}``.
        aliases: Other names, ``{alias: name}``; accepted by :meth:`resolve` but not listed. ``{name: target}`` adds a
            part that is found by its name but not listed.
        schemes: Prefixes, ``{"folder": target}``: ``"folder:~/mine"`` is the part that ``target("~/mine")`` returns.
        own: A sentence for error messages that tells users how to give a part of their own.
        hints: Names used elsewhere that may mean several parts, ``{name: suggestion}``, for error messages.
        record: Name of the decorator that gives listed parts their ``info``; empty = they need none.

    Example:
        >>> registry = Registry("function", {"sqrt": "math:sqrt"})
        >>> registry.resolve("sqrt")(9.0), registry.resolve("math:floor")(9.5)
        (3.0, 9)
        >>> registry.resolve("sqr")
        Traceback (most recent call last):
            ...
        xaibench.registry.table.UnknownNameError: Unknown function 'sqr'; did you mean 'sqrt'? Known: sqrt. A part \
of your own is given as 'package.module:name'.
    """

    def __init__(
        self,
        kind: str,
        targets: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        schemes: Mapping[str, str] | None = None,
        own: str = "A part of your own is given as 'package.module:name'.",
        hints: Mapping[str, str] | None = None,
        record: str = "",
    ) -> None:
        self.kind = kind
        self._own = own
        self._record = record
        self._hints = dict(hints or {})
        self._schemes = dict(schemes or {})
        self._targets = dict(targets)
        self._aliases = dict(aliases or {})
        self._imported: dict[str, Any] = {}  # listed parts by name

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    @property
    def schemes(self) -> frozenset[str]:
        """Prefixes of names that a function turns into a part, such as ``"folder"`` in ``"folder:~/mine"``."""
        return frozenset(self._schemes)

    def names_by_module(self, package: str) -> dict[str, list[str]]:
        """Return the attributes that the targets name, for lazy imports.

        Args:
            package: Package of the parts, whose name is left out of the names of the modules.

        Returns:
            Names of attributes by module.
        """
        names: dict[str, list[str]] = {}
        for target in (*self._targets.values(), *self._aliases.values()):
            module, _, attribute = target.removeprefix(f"{package}.").partition(":")
            if attribute:
                names.setdefault(module, []).append(attribute)
        return names

    def canonical(self, name: str) -> str:
        """Return the registered name of a part; unknown names are returned unchanged.

        Compare parts by this name: it is the same for all spellings.

        Args:
            name: A registered name, an alias, another spelling (``-`` for ``_``, capitals), or
                ``"package.module:attribute"``, which is imported to find out whether it is a registered part.

        Returns:
            The registered name, or ``name``.

        Raises:
            TypeError: If the name is not a string.

        Example:
            >>> registry = Registry("function", {"floor": "fractions:Fraction.__floor__"}, {"entier": "floor"})
            >>> registry.canonical("Entier"), registry.canonical("fractions:Fraction.__floor__")
            ('floor', 'floor')
            >>> registry.canonical("math:sqrt")
            'math:sqrt'
        """
        known = self._registered_name(name)
        if ":" not in known or known.partition(":")[0] in self._schemes:
            return known
        try:
            return self.name_of(import_target(known, self.kind)) or known
        except UnknownNameError:
            return known

    def name_of(self, part: object) -> str | None:
        """Return the registered name of a function or class.

        Args:
            part: Any object.

        Returns:
            Its name; ``None`` if it is not registered, or registered under several names.

        Example:
            >>> import textwrap
            >>> registry = Registry("function", {"dedent": "textwrap:dedent"})
            >>> registry.name_of(textwrap.dedent), registry.name_of(textwrap.indent)
            ('dedent', None)
        """
        module, attribute = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
        return self._find_by_target(f"{module}:{attribute}")

    def _find_by_target(self, target: str) -> str | None:
        targets = list(self._targets.values())
        return list(self._targets)[targets.index(target)] if targets.count(target) == 1 else None

    def _registered_name(self, name: str) -> str:
        """Return the registered name without importing anything (see :meth:`canonical`)."""
        if not isinstance(name, str):
            raise TypeError(
                f"{self.kind}: got {type(name).__name__}, expected a name or 'package.module:name'.{_file_hint(name)}"
            )
        if name in self._targets:
            return name
        if ":" in name:
            return self._find_by_target(name) or name
        folded = name.casefold().replace("_", "-")
        for known in self._targets:
            if known.casefold().replace("_", "-") == folded:
                return known
        for alias, known in self._aliases.items():
            if alias.casefold().replace("_", "-") == folded:
                return known
        return name

    def resolve(self, name: str) -> Any:
        """Import and return a part.

        Args:
            name: A registered name, an alias, or ``"package.module:attribute"``.

        Returns:
            The class, function or object; for a scheme, the result of its target for the rest of the name.

        Raises:
            UnknownNameError: If the name is not registered, or the module or attribute does not exist; names the
                nearest.
            TypeError: If a listed part lacks the info that parts of this kind must have.
        """
        if isinstance(name, str) and name in self._imported:
            return self._imported[name]
        part = import_target(self.target(name), self.kind)
        if name in self._targets:
            if self._record and not hasattr(part, "info"):
                raise TypeError(
                    f"{self.kind} {name!r} has no info; decorate {self.target(name)} with @{self._record}(...)."
                )
            self._imported[name] = part
        scheme, _, rest = name.partition(":")
        return part(rest) if ":" in name and scheme in self._schemes else part

    def target(self, name: str) -> str:
        """Return the import target of a name.

        Args:
            name: A registered name, an alias, or ``"package.module:attribute"``, which is its own target.

        Returns:
            ``"package.module:attribute"``; for a scheme, the target of the scheme.

        Raises:
            UnknownNameError: If the name is not registered; names the nearest.
        """
        canonical = self._registered_name(name)
        scheme = canonical.partition(":")[0]
        if ":" in name and scheme in self._schemes:
            return self._schemes[scheme]
        if canonical not in self._targets and ":" not in canonical:
            raise UnknownNameError(self._describe_unknown(name))
        return self._targets.get(canonical, canonical)

    def _describe_unknown(self, name: str) -> str:
        if hint := {folded(other): hint for other, hint in self._hints.items()}.get(folded(name)):
            return f"Unknown {self.kind} {name!r}; did you mean {hint}?"
        return f"{unknown(f'Unknown {self.kind}', name, sorted(self._targets), self._aliases)} {self._own}"


def _file_hint(part: object) -> str:
    """Return how to give a function or class by name, which other processes can import; empty for other objects."""
    name = getattr(part, "__name__", "")
    if not callable(part) or not name.isidentifier():
        return ""
    return f" Put {name} into a file that can be imported, such as mine.py in this folder, and give 'mine:{name}'."


class UnknownNameError(KeyError, ValueError):
    """A name is neither registered nor importable."""

    def __str__(self) -> str:
        return str(self.args[0])


def import_target(target: str, kind: str = "part") -> Any:
    """Import a part from its target.

    Args:
        target: ``"package.module:attribute"``; the attribute may be dotted.
        kind: Kind of the part in the singular, for error messages.

    Returns:
        The class, function or object.

    Raises:
        UnknownNameError: If the module or the attribute does not exist.
    """
    module_name, _, attribute = target.partition(":")
    if not all(map(str.isidentifier, (*module_name.split("."), *attribute.split(".")))):
        raise UnknownNameError(f"{capitalize(kind)} {target!r}: expected 'package.module:name'.")
    token = IMPORTING.set(target)
    try:
        part: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A missing dependency of an existing module is another error.
        if error.name is not None and not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise UnknownNameError(
            f"{capitalize(kind)} {target!r}: there is no module {error.name!r} to import; install it, or start from "
            "its folder."
        ) from error
    finally:
        IMPORTING.reset(token)
    owner = module_name
    for step in attribute.split("."):
        if not hasattr(part, step):
            hint = did_you_mean(step, dir(part))
            raise UnknownNameError(f"{capitalize(kind)} {target!r}: {owner!r} has no attribute {step!r}{hint}")
        part, owner = getattr(part, step), f"{owner}.{step}"
    return part
