"""What a result says of itself: ``result.json``, beside the tables of its run.

A result is a run folder of one method (:mod:`xaibench.runfolder`) with this manifest, a card, a license, a citation
and, where the method is no part of the library, its source. In a results repository it lies at
``METHOD/SUITE@VERSION``, one of fresh seeds at ``METHOD/SUITE@VERSION+ROUND``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from xaibench.core.messages import did_you_mean

MANIFEST, VERIFICATION, CARD, CITATION, LICENSE, METHOD = (
    "result.json",
    "verification.json",
    "README.md",
    "CITATION.bib",
    "LICENSE",
    "method",
)

#: What a verification may say, from the surest on; the last one refuses the result.
VERDICTS = ("bit-equal", "within bounds", "differs")

#: The version of the schema that is written. A reader takes this one alone.
SCHEMA = 1


class ResultError(ValueError):
    """A result that cannot be taken; the message says which, why, and what to do."""


@dataclass(frozen=True)
class MethodInfo:
    """Who made what.

    Attributes:
        name: Of the folder, and as in the scores.
        label: For people.
        entry: A listed explainer, or ``module:name`` below the folder ``method``.
        summary: What it does, in a sentence.
        citation: The publication to cite.
        license: Of code and scores, as the Hub names it.
        authors: Of the method.
        homepage: An address on the web.
        passes: How often it asks the network for an image, where that is no choice.
        control: Whether it knows no model.
    """

    name: str
    label: str
    entry: str
    summary: str = ""
    citation: str = ""
    license: str = ""
    authors: tuple[str, ...] = ()
    homepage: str = ""
    passes: int | None = None
    control: bool = False


@dataclass(frozen=True)
class SuiteVersion:
    """On what it was measured; scores of two methods stand beside each other when all of this is the same.

    Attributes:
        name: Of the suite.
        title: For people.
        version: Of all that decides images, networks and metrics, their revisions included.
    """

    name: str
    title: str
    version: str


@dataclass(frozen=True)
class CodeInfo:
    """What was run.

    Attributes:
        sha256: Of the files below ``method``; empty for a listed explainer.
        repository: Where the source is developed.
        commit: Which state of it this is.
        requires: Packages that it imports beside the library and what that needs, as ``name==version``.
    """

    sha256: str = ""
    repository: str = ""
    commit: str = ""
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of ``result.json``.

    Attributes:
        method: Who made what.
        suite: On what it was measured.
        submitted: The day, ``2026-11-23``.
        files: The sha256 of each file of the folder but this one and the verification.
        code: What was run.
        round: Of fresh seeds; empty for the suite's own.
    """

    method: MethodInfo
    suite: SuiteVersion
    submitted: str
    files: Mapping[str, str] = field(default_factory=dict)
    code: CodeInfo = field(default_factory=CodeInfo)
    round: str = ""

    @property
    def folder(self) -> str:
        """Where the result lies in a results repository."""
        return f"{self.method.name}/{self.suite.name}@{self.suite.version}{'+' * bool(self.round)}{self.round}"

    def to_json(self) -> bytes:
        """The content of the file."""
        words = asdict(self)
        ordered = {name: words[name] for name in ("method", "suite", "round", "submitted", "code", "files")}
        return json.dumps({"schema": SCHEMA} | ordered, indent=2, ensure_ascii=False).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """What the result in a folder says of itself.

    Args:
        folder: Of the result.

    Returns:
        Its manifest, which fits the schema.

    Raises:
        ResultError: If there is none, or it does not fit the schema; says where.
    """
    file = folder / MANIFEST
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(
            f"{file} cannot be read ({error}); a result has this file. `xaibench submit` writes it."
        ) from error
    if problems := list(schema_violations(content, manifest_schema())):
        raise ResultError(f"{file} does not fit schema {SCHEMA}: {'; '.join(problems)}.")
    method = content["method"] | {"authors": tuple(content["method"].get("authors", ()))}
    return Manifest(
        MethodInfo(**method),
        SuiteVersion(**content["suite"]),
        content["submitted"],
        content["files"],
        CodeInfo(**content["code"] | {"requires": tuple(content["code"].get("requires", ()))}),
        content["round"],
    )


@cache
def manifest_schema() -> dict[str, Any]:
    """The schema of ``result.json`` (JSON Schema, draft 2020-12)."""
    text = resources.files("xaibench.leaderboard").joinpath("result.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


_TYPES: dict[str, Any] = {
    **{"object": dict, "array": list, "string": str, "boolean": bool, "integer": int},
    "null": type(None),
}


def schema_violations(value: Any, schema: Mapping[str, Any], place: str = "it") -> Iterator[str]:
    """Where a value does not fit a schema, in words, for the part of JSON Schema that ours is written in.

    Args:
        value: As JSON gives it.
        schema: Of it.
        place: What it is called.

    Returns:
        An iterator over the faults; none where it fits.

    Example:
        >>> list(schema_violations({"n": "x"}, {"type": "object", "properties": {"n": {"type": "integer"}}}))
        ["n is 'x', expected integer"]
    """
    if "const" in schema and value != schema["const"]:
        yield f"{place} is {value!r}, expected {schema['const']!r}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    whole = [kind for kind in kinds if isinstance(value, _TYPES[kind]) and (kind != "integer" or value is not True)]
    if kinds and (not whole or (isinstance(value, bool) and "boolean" not in kinds)):
        yield f"{place} is {value!r}, expected {' or '.join(kinds)}"
    elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{place} is {value!r}, expected a text like {schema['pattern']}"
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from schema_violations(one, schema.get("items", {}), f"entry {number} of {place}")
    elif isinstance(value, dict):
        yield from _object_violations(value, schema, place)


def _object_violations(value: Mapping[str, Any], schema: Mapping[str, Any], place: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    inside = "" if place == "it" else f"{place}."
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place} lacks {name!r}"
    for name, one in value.items():
        if name not in known and others is False:
            yield f"{place} has {name!r}, which is not known{did_you_mean(name, known).rstrip('.')}"
        else:
            yield from schema_violations(one, known.get(name, others), f"{inside}{name}")


def read_verification(folder: Path) -> dict[str, Any]:
    """What came of running a result again, where that is of the result as it now lies there.

    Args:
        folder: Of the result.

    Returns:
        The content of ``verification.json``; empty where there is none, or the result was changed after it.

    Raises:
        ResultError: If the file is damaged.
    """
    file = folder / VERIFICATION
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultError(f"{file} cannot be read ({error}); verify the result again.") from error
    own = isinstance(content, dict) and content.get("result") == manifest_checksum(folder)
    return content if own else {}


def manifest_checksum(folder: Path) -> str:
    """The sha256 of ``result.json``, which holds those of all other files: a verdict is of one state of a result."""
    return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()


def find_results(folder: Path) -> list[Path]:
    """The folders of a results repository, or of a single result, that hold a result.

    Args:
        folder: A results repository, or a result.

    Returns:
        The folders, in the order of their names.

    Raises:
        ResultError: If there is no such folder, or no result in it.
    """
    if (folder / MANIFEST).is_file():
        return [folder]
    found = sorted(file.parent for file in folder.glob(f"*/*/{MANIFEST}"))
    if not found:
        if str(folder).startswith("hf:"):
            repository = "/".join(folder.parts[1:3])  # a path has one slash where the address has two
            raise ResultError(
                f"{repository} lies on the Hub; expected a folder, as a verdict is written beside its result. Get it "
                f"by `hf download {repository} --repo-type dataset --local-dir results`."
            )
        there = "no such folder" if not folder.is_dir() else f"no METHOD/SUITE@VERSION/{MANIFEST} below it"
        raise ResultError(
            f"{folder} holds no results: {there}. `xaibench submit` and `xaibench results add` make them."
        )
    return found


def file_checksums(folder: Path) -> dict[str, str]:
    """The sha256 of each file of a result, by its name below the folder; not of the manifest and the verification.

    Args:
        folder: Of the result.

    Returns:
        The sums, in the order of the names.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in names.items()
        if name not in (MANIFEST, VERIFICATION)
    }


def code_checksum(files: Mapping[str, str]) -> str:
    """One sum of all files below ``method``; empty where there are none."""
    code = sorted(f"{name} {found}" for name, found in files.items() if name.startswith(f"{METHOD}/"))
    return hashlib.sha256("\n".join(code).encode()).hexdigest() if code else ""
