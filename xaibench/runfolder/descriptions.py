"""What a run folder says in words: what was run and its parts (``parts.json``), where and with what, and the suite."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, cast

from xaibench.core.frozen import Frozen
from xaibench.runfolder.legible_text import all_legible, legible
from xaibench.runfolder.tables import damaged

PARTS, ENVIRONMENT, SUITE = "parts.json", "environment.json", "suite.toml"


@dataclass(frozen=True)
class PartWords:
    """An explainer, model or metric in words, so that a run folder can be reported on by itself.

    Attributes:
        name: As in the scores.
        label: As shown.
        control: True for an explainer that knows no model.
        reference: True for what says what a map should show, and is ranked with none.
        higher_is_better: Direction of a metric.
        meaning: What a score means, in a sentence; empty where nothing says.
        skill_of: Name of the metric that this one reads against chance, or empty.
        citation: The publication to cite, or empty.
        parameters: What it was run with: its defaults, and what the suite says in their place.
        own: Whether it is the user's, and not one of the library's.
        method: Label of the explainer that an entry with a name of its own is of: ``"RISE"`` of ``"rise-1000"``.
        passes: How often an explainer asks the network for an image, where that is no choice.
        range: Smallest and largest possible value of a metric; infinite where there is none, or nothing says.
        truth: The kind of truth that a metric's scores are of (:mod:`xaibench.core.truths`), as the scores themselves
            say it; empty where nothing does, as in folders of before.
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
    truth: str = ""

    @classmethod
    def of(cls, name: str, known: Mapping[str, Any], *, label: str = "") -> PartWords:
        """The words of a part.

        Args:
            name: As in the scores.
            known: What is known of it: its record's attributes, or its entry in ``parts.json``.
            label: Shown in place of its own.

        Example:
            >>> PartWords.of("rise", {"label": "RISE", "kind": "forward"}).label
            'RISE'
        """
        own = {each.name: known[each.name] for each in fields(cls)[2:] if known.get(each.name) is not None}
        own["parameters"] = Frozen(own.get("parameters"))
        own["range"] = _range(own.get("range"))
        return cls(name, label or str(known.get("label") or name), **own)

    def plain(self) -> dict[str, Any]:
        """All but the name, JSON-ready; what is as usual is left out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)[1:]} | {
            "parameters": dict(self.parameters)
        }
        values["range"] = [end if math.isfinite(end) else None for end in self.range]  # JSON knows no infinity
        usual = {each.name: each.default for each in fields(self) if each.default is not MISSING} | {"parameters": {}}
        usual["range"] = [None, None]
        return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _range(given: Any) -> tuple[float, float]:
    """A range as it stands in a record or in JSON; what is none is without ends."""
    try:
        low, high = given
        ends = float(-math.inf if low is None else low), float(math.inf if high is None else high)
    except (TypeError, ValueError):
        return -math.inf, math.inf
    return ends if ends[0] < ends[1] else (-math.inf, math.inf)


@dataclass(frozen=True)
class RunParts:
    """The content of ``parts.json``.

    Attributes:
        suite: Name of the suite.
        title: Heading of the page.
        citation: The suite's publication, or empty.
        explainers: Name to words, in the order to show; so are ``models`` and ``metrics``.
    """

    suite: str = ""
    title: str = ""
    citation: str = ""
    explainers: Mapping[str, PartWords] = field(default_factory=dict)
    models: Mapping[str, PartWords] = field(default_factory=dict)
    metrics: Mapping[str, PartWords] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The content of the file."""
        content: dict[str, Any] = {"suite": self.suite, "title": self.title, "citation": self.citation}
        for kind in _KINDS:
            content[kind] = {name: part.plain() for name, part in getattr(self, kind).items()}
        return json.dumps(content, indent=2, ensure_ascii=False).encode()


_KINDS = ("explainers", "models", "metrics")


def read_parts(folder: Path) -> RunParts:
    """The parts of a run; of folders without ``parts.json``, nothing.

    Raises:
        RunFolderError: If the file is damaged.
    """
    content = _read_object(folder / PARTS)
    try:
        kinds = {kind: _read_kind(content.get(kind) or {}) for kind in _KINDS}
    except AttributeError as error:
        raise damaged(folder / PARTS, error) from error
    words = {name: str(content.get(name) or "") for name in ("suite", "title", "citation")}
    return RunParts(**words, **kinds)  # type: ignore[arg-type]


def _read_kind(content: Mapping[str, Any]) -> dict[str, PartWords]:
    return {str(name): PartWords.of(str(name), dict(known.items())) for name, known in content.items()}


def ordered(parts: Mapping[str, PartWords], seen: Iterable[str]) -> dict[str, PartWords]:
    """The described parts that were seen, in their order; then what was seen without a description.

    Example:
        >>> list(ordered({"b": PartWords("b", "B"), "a": PartWords("a", "A")}, ["c", "a", "c"]))
        ['a', 'c']
    """
    seen = list(dict.fromkeys(seen))
    names = [name for name in parts if name in seen] + [name for name in seen if name not in parts]
    return {name: parts.get(name, PartWords(name, name)) for name in names}


class Machine(TypedDict, total=False):
    """Where a run was done."""

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
    """The content of ``environment.json``: where, when and with what a run was done, enough to do it again."""

    xaibench: str
    commit: str | None
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


def read_environment(folder: Path) -> Environment:
    """Where and with what a run was done; nothing without ``environment.json``.

    Raises:
        RunFolderError: If the file is damaged.
    """
    return cast("Environment", _read_object(folder / ENVIRONMENT))


def read_suite(folder: Path) -> str:
    """The suite as it was run, in TOML; empty without ``suite.toml``."""
    file = folder / SUITE
    return legible(file.read_text(encoding="utf-8")) if file.exists() else ""


def _read_object(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        content = all_legible(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(content, dict):
        raise damaged(file, f"expected a JSON object, got {type(content).__name__}")
    return content
