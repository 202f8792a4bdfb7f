"""Descriptive files of a run folder: parts (``descriptions.json``), environment (``environment.json``) and suite."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, cast

from xaibench.core.files import check_regular
from xaibench.registry.parameters import Frozen
from xaibench.runfolder.sanitize import sanitize_json, sanitize_text
from xaibench.runfolder.schema import damaged_file

PARTS, ENVIRONMENT, SUITE = "descriptions.json", "environment.json", "suite.toml"
_OLDER_PARTS = "parts.json"


@dataclass(frozen=True)
class PartDescription:
    """Description of an explainer, model or metric, so that a report needs nothing but the run folder.

    Attributes:
        name: Name in the scores.
        label: Displayed name.
        control: True for a control, an explainer that does not use the model.
        reference: True for an explainer that defines what a map should show. It is not ranked.
        higher_is_better: Direction of a metric.
        meaning: One sentence on the meaning of a score, or empty.
        skill_of: Name of the metric that this chance-corrected metric is based on, or empty.
        citation: The publication to cite, or empty.
        parameters: All parameters: the defaults, overridden by the suite.
        own: Whether the part is user-defined, that is, not part of the library.
        method: Label of the explainer behind an entry with a custom name: ``"RISE"`` for ``"rise-1000"``.
        passes: Number of passes per image, for explainers for which it is fixed.
        range: Smallest and largest possible value of a metric; infinite if unbounded or unknown.
        attains_ends: Whether samples are often scored by a metric exactly at an end of the range.
        truth: Kind of truth that a metric's scores refer to (:mod:`xaibench.core.truth_kinds`), from the scores; empty
            if unknown, as in run folders of older versions.
    """

    name: str
    label: str
    control: bool = False
    reference: bool = False
    higher_is_better: bool = True
    meaning: str = ""
    skill_of: str = ""
    citation: str = ""
    parameters: Frozen = field(default_factory=Frozen)
    own: bool = False
    method: str = ""
    passes: int | None = None
    range: tuple[float, float] = (-math.inf, math.inf)
    attains_ends: bool = False
    truth: str = ""

    @classmethod
    def of(cls, name: str, known: Mapping[str, Any], *, label: str = "") -> PartDescription:
        """Create the description of a part.

        Args:
            name: Name in the scores.
            known: The attributes of its info record, or its entry in ``descriptions.json``.
            label: Displayed name that replaces the part's label.

        Example:
            >>> PartDescription.of("rise", {"label": "RISE", "kind": "forward"}).label
            'RISE'
        """
        values = {each.name: known[each.name] for each in fields(cls)[2:] if known.get(each.name) is not None}
        values["parameters"] = Frozen(values.get("parameters"))
        values["range"] = _parse_range(values.get("range"))
        return cls(name, label or str(known.get("label") or name), **values)

    def plain(self) -> dict[str, Any]:
        """Return all attributes except the name and those with default values, as a JSON-serializable dictionary."""
        values = {each.name: getattr(self, each.name) for each in fields(self)[1:]} | {
            "parameters": dict(self.parameters)
        }
        values["range"] = [end if math.isfinite(end) else None for end in self.range]  # JSON has no infinity
        defaults = {field.name: field.default for field in fields(self) if field.default is not MISSING}
        defaults |= {"parameters": {}, "range": [None, None]}
        return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


def _parse_range(given: Any) -> tuple[float, float]:
    """Convert a range from an info record or JSON; an invalid range becomes unbounded."""
    try:
        low, high = given
        ends = float(-math.inf if low is None else low), float(math.inf if high is None else high)
    except (TypeError, ValueError):
        return -math.inf, math.inf
    return ends if ends[0] < ends[1] else (-math.inf, math.inf)


@dataclass(frozen=True)
class RunParts:
    """Content of ``descriptions.json``.

    Attributes:
        suite: Name of the suite.
        title: Heading of the page.
        citation: The suite's publication, or empty.
        explainers: Descriptions by name, in display order.
        models: Descriptions by name, in display order.
        metrics: Descriptions by name, in display order.
    """

    suite: str = ""
    title: str = ""
    citation: str = ""
    explainers: Mapping[str, PartDescription] = field(default_factory=dict)
    models: Mapping[str, PartDescription] = field(default_factory=dict)
    metrics: Mapping[str, PartDescription] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the content of the file as JSON values."""
        content: dict[str, Any] = {"suite": self.suite, "title": self.title, "citation": self.citation}
        for kind in _KINDS:
            content[kind] = {name: part.plain() for name, part in getattr(self, kind).items()}
        return content

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(self.plain(), indent=2, ensure_ascii=False).encode()


_KINDS = ("explainers", "models", "metrics")


def read_parts(folder: Path) -> RunParts:
    """Read the parts of a run; empty if the folder has no ``descriptions.json``.

    In folders of older versions the file is called ``parts.json``.

    Raises:
        RunFolderError: If the file is damaged.
    """
    file = folder / PARTS if (folder / PARTS).exists() else folder / _OLDER_PARTS
    return parse_parts(_read_object(file), file)


def parse_parts(content: Mapping[str, Any], file: Path) -> RunParts:
    """Parse the parts of a run.

    Args:
        content: What :meth:`RunParts.plain` returns.
        file: The file of the content, for error messages.

    Raises:
        RunFolderError: If the content is malformed.
    """
    try:
        kinds = {kind: _read_descriptions(content.get(kind) or {}) for kind in _KINDS}
    except AttributeError as error:
        raise damaged_file(file, error) from error
    words = {name: str(content.get(name) or "") for name in ("suite", "title", "citation")}
    return RunParts(**words, **kinds)  # type: ignore[arg-type]


def _read_descriptions(content: Mapping[str, Any]) -> dict[str, PartDescription]:
    return {str(name): PartDescription.of(str(name), dict(known.items())) for name, known in content.items()}


def order_parts(parts: Mapping[str, PartDescription], seen: Iterable[str]) -> dict[str, PartDescription]:
    """Return the descriptions of ``seen`` parts in the order of ``parts``, followed by parts without a description.

    Example:
        >>> list(order_parts({"b": PartDescription("b", "B"), "a": PartDescription("a", "A")}, ["c", "a", "c"]))
        ['a', 'c']
    """
    return {name: parts.get(name, PartDescription(name, name)) for name in order_names(parts, seen)}


def order_names(known: Collection[str], seen: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that occur, in their own order, followed by the others as they occur."""
    seen = list(dict.fromkeys(seen))
    return (*(name for name in known if name in seen), *(name for name in seen if name not in known))


class Machine(TypedDict, total=False):
    """The machine of a run."""

    system: str
    processor: str
    cpus: int | None
    gpus: list[str]


class Seeds(TypedDict, total=False):
    """The seeds of a run."""

    data: tuple[int, ...]
    training: tuple[int, ...]
    explaining: int


class Environment(TypedDict, total=False):
    """Content of ``environment.json``: versions, machine, time and settings, as needed to repeat the run."""

    xaibench: str
    commit: str | None
    kernels: bool
    python: str
    versions: dict[str, str]
    machine: Machine
    engine: str
    workers: int
    device: str
    finished: str
    seconds: float
    seeds: Seeds
    jobs: dict[str, int]
    choices: dict[str, Any]
    missing: list[str]
    inapplicable: dict[str, str]
    beside: list[str]
    notes: dict[str, str]
    unreadable: dict[str, dict[str, str]]  # why, by data set and sample; not published
    earlier: list[Environment]  # of calls that were stopped, or of other versions


def read_environment(folder: Path) -> Environment:
    """Read the environment of a run; empty if the folder has no ``environment.json``.

    Raises:
        RunFolderError: If the file is damaged.
    """
    return cast("Environment", _read_object(folder / ENVIRONMENT))


def without_names(environment: Environment) -> Environment:
    """Return an environment as it may be published: without the names of samples, also of earlier calls."""
    public: dict[str, Any] = {key: value for key, value in environment.items() if key != "unreadable"}
    if "earlier" in public:
        public["earlier"] = [without_names(one) for one in public["earlier"]]
    return cast("Environment", public)


def read_suite(folder: Path) -> str:
    """Read the suite of a run as TOML; empty if the folder has no ``suite.toml``.

    Raises:
        RunFolderError: If the file is not text.
    """
    file = folder / SUITE
    try:
        return sanitize_text(file.read_text(encoding="utf-8")) if file.exists() else ""
    except UnicodeDecodeError as error:
        raise damaged_file(file, error) from error


def _read_object(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    check_regular(file)
    try:
        content = sanitize_json(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise damaged_file(file, error) from error
    if not isinstance(content, dict):
        raise damaged_file(file, f"expected a JSON object, got {type(content).__name__}")
    return content
