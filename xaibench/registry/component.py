"""A component of a suite: a registered part with its parameters."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, Self

from xaibench.registry.info import DatasetInfo, ExplainerInfo, ModelInfo, describe_own_metric
from xaibench.registry.parameters import Frozen, named_parameters
from xaibench.registry.table import Registry, import_target

Kind = Literal["dataset", "model", "explainer", "metric"]

_REGISTRIES: dict[Kind, str] = {
    "dataset": "xaibench.data:DATASETS",
    "model": "xaibench.models:MODELS",
    "explainer": "xaibench.explainers:EXPLAINERS",
    "metric": "xaibench.metrics:METRICS",
}

#: Components by class, name and parameters; clear it if the module of one has changed.
COMPONENTS: dict[tuple[type[Component], str, Frozen], Component] = {}


@functools.cache
def registry(kind: Kind) -> Registry:
    """Return the registry of one kind of part, imported on first use."""
    table: Registry = import_target(_REGISTRIES[kind])
    return table


@dataclass(frozen=True)
class Component:
    """A part with its parameters. It is imported when one of its properties is read.

    Attributes:
        name: Name in the suite, the scores and the report.
        use: Registered name, or ``"package.module:name"``.
        parameters: Keyword arguments.
        table: Its table in the suite, for errors.
    """

    kind: ClassVar[Kind]
    name: str
    use: str
    parameters: Frozen = field(default_factory=Frozen)
    table: str = field(default="", compare=False, repr=False)

    @classmethod
    def of(cls, use: str, parameters: Frozen = Frozen()) -> Self:  # noqa: B008 - it is immutable
        """Return the component of a registered name; the same object for the same name and parameters."""
        known: Any = COMPONENTS.setdefault((cls, use, parameters), cls(use, use, parameters))
        return known  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration only, without imported and built objects."""
        return type(self), (self.name, self.use, self.parameters, self.table)

    def as_json(self) -> list[object]:
        """Return everything that decides the results, for the keys of jobs; the name in the suite does not."""
        return [self.use, self.parameters.as_json()]

    @functools.cached_property
    def key(self) -> str:
        """Text of everything that decides the results."""
        return json.dumps(self.as_json(), default=str)

    @functools.cached_property
    def target(self) -> Any:
        """The registered class, function or object. Raises UnknownNameError if there is none."""
        return registry(self.kind).resolve(self.use)

    @property
    def is_described(self) -> bool:
        """Whether the part has an info record; a user's own part need not have one."""
        return getattr(self.target, "info", None) is not None

    @functools.cached_property
    def info(self) -> Any:
        """The info record of the part; the defaults for a user's own part without one."""
        if self.is_described:
            return self.target.info
        if self.kind == "dataset":
            return DatasetInfo(self.use, (), (3, 224, 224))
        if self.kind == "metric":
            return describe_own_metric(self.name)
        return (ExplainerInfo if self.kind == "explainer" else ModelInfo)(self.name)

    @functools.cached_property
    def revision(self) -> str:
        """The stated revision of the part; if it states none, a hash of its source."""
        if self.is_described:
            return str(self.info.revision)
        part = self.target
        try:
            source = inspect.getsource(part if inspect.isroutine(part) or inspect.isclass(part) else type(part))
        except (OSError, TypeError):
            return "unknown"
        return hashlib.sha256(source.encode()).hexdigest()[:12]

    @functools.cached_property
    def accepted(self) -> Mapping[str, inspect.Parameter]:
        """All parameters of the part, by name."""
        return named_parameters(self.target)

    @property
    def all_parameters(self) -> dict[str, Any]:
        """The values of all parameters as JSON: from the suite, otherwise the defaults."""
        values = {name: one.default for name, one in self.accepted.items() if one.default is not one.empty}
        if is_dataclass(self.target):
            factories = {f.name: f.default_factory for f in fields(self.target) if f.default_factory is not MISSING}
            values |= {name: make() for name, make in factories.items() if name in values}
        return {name: _to_json(value) for name, value in (values | dict(self.parameters)).items()}

    @property
    def is_users_own(self) -> bool:
        """Whether the part is ``"package.module:name"`` of the user, neither registered nor made by a scheme."""
        table = registry(self.kind)
        is_target = ":" in self.use and table.target(self.use) == self.use
        return is_target and table.canonical(self.use) not in table and not getattr(self.info, "reference", False)


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, list | tuple) else str(value)
