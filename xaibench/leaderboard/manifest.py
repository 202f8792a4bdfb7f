"""The manifest of a result: JSON in the metadata of its ``scores.parquet``.

A result is the scores of one method with this manifest and, if the method is not part of the library, its
source::

    results/
      METHOD/SUITE@VERSION/         or SUITE@VERSION+ROUND, for a round of fresh seeds
        scores.parquet              one row per sample and metric; in its metadata, this manifest and a picture of the
                                    first maps (score_files.py)
        method/                     source of the method
      suites/SUITE@VERSION/         facts that all results of the suite share (suite_facts.py)
      verdicts.json                 outcomes of running methods again (verdicts.py)

A result names its suite and does not bring it.
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
from xaibench.leaderboard.score_files import MANIFEST, read_note
from xaibench.runfolder.descriptions import PARTS
from xaibench.runfolder.tables import SCORES, RunFolderError

#: Folder with the source of a method.
METHOD = "method"

#: Version of the schema. Other versions are not read.
SCHEMA = 5

#: Largest size of a JSON file of a result, in bytes.
MAX_JSON_BYTES = 1 << 20


class ResultError(ValueError):
    """A result that is not accepted. The message says which one, why, and what to do."""


@dataclass(frozen=True)
class MethodInfo:
    """Description of a method and its authors.

    Attributes:
        name: Name of the folder and in the scores.
        label: Display name.
        entry: A listed explainer, or ``module:name`` below the folder ``method``.
        summary: One-sentence description.
        citation: The publication to cite.
        license: License of code and scores, as an identifier of the Hub.
        authors: Authors of the method.
        homepage: A web address.
        passes: Network passes per image, if the method's parameters do not determine them.
        control: Whether the method does not use the model.
        parameters: Parameters of the method.
        tuned_on: Names of metrics or suites that the method or its parameters were tuned on.
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
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tuned_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuiteVersion:
    """Suite and version that a method was scored on. Only scores of the same version are comparable.

    Attributes:
        name: Name of the suite.
        version: Hash of the suite and of everything that determines its images, networks and metrics
            (:func:`xaibench.leaderboard.suite_text.suite_version`).
    """

    name: str
    version: str


@dataclass(frozen=True)
class RunInfo:
    """How the scores were computed, as the submitter's machine recorded it.

    Attributes:
        versions: Versions of xaibench and of the libraries that it uses.
        machine: Processor and GPUs.
        seconds: Time of explaining, summed over jobs.
        maps: Number of maps.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    seconds: float = 0.0
    maps: int = 0


@dataclass(frozen=True)
class CodeInfo:
    """The code that was run.

    Attributes:
        sha256: Checksum of the files below ``method``; empty for a listed explainer.
        repository: Address of the source repository.
        commit: Commit in that repository.
        requires: Imported packages that the library does not depend on, as ``name==version``.
    """

    sha256: str = ""
    repository: str = ""
    commit: str = ""
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """Method, suite and origin of the scores of a result.

    Attributes:
        method: The method.
        suite: The suite and its version.
        submitted: Date of the submission according to the submitter, such as ``2026-11-23``.
        code: The code that was run.
        round: Name of the round of fresh seeds; empty for the suite's own seeds.
        run: How the scores were computed.
    """

    method: MethodInfo
    suite: SuiteVersion
    submitted: str
    code: CodeInfo = field(default_factory=CodeInfo)
    round: str = ""
    run: RunInfo = field(default_factory=RunInfo)

    @property
    def suite_folder(self) -> str:
        """``SUITE@VERSION``, followed by ``+ROUND`` for a round of fresh seeds."""
        return f"{self.suite.name}@{self.suite.version}{'+' * bool(self.round)}{self.round}"

    @property
    def folder(self) -> str:
        """Path of the result below a results repository."""
        return f"{self.method.name}/{self.suite_folder}"

    def to_json(self) -> bytes:
        """Return the manifest as the metadata of ``scores.parquet`` has it."""
        words = asdict(self)
        ordered = {name: words[name] for name in ("method", "suite", "round", "submitted", "run", "code")}
        return write_json(ordered)


def read_manifest(folder: Path) -> Manifest:
    """Read and validate the manifest of a result.

    Args:
        folder: Folder of the result.

    Returns:
        The manifest.

    Raises:
        ResultError: If it is missing or does not match the schema; the message lists the violations.
    """
    file = folder / SCORES.name
    try:
        data = read_note(folder, MANIFEST)
    except RunFolderError as error:
        raise ResultError(str(error)) from error
    if not data:
        raise ResultError(f"{file} has no manifest; `xaibench submit` and `xaibench results add` write results.")
    name = f"The manifest in {file}"
    content = parse_json(data, name)
    if problems := list(schema_violations(content, manifest_schema())):
        raise ResultError(f"{name} does not fit schema {SCHEMA}: {'; '.join(problems)}.")
    method = content["method"]
    return Manifest(
        MethodInfo(**method | {name: tuple(method.get(name, ())) for name in ("authors", "tuned_on")}),
        SuiteVersion(**content["suite"]),
        content["submitted"],
        CodeInfo(**content["code"] | {"requires": tuple(content["code"].get("requires", ()))}),
        content["round"],
        RunInfo(**content["run"]),
    )


def read_json(file: Path, most: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file of a results repository.

    Args:
        file: The file.
        most: Largest accepted size in bytes.

    Returns:
        Its content, as :func:`parse_json` returns it.

    Raises:
        ResultError: If it cannot be read, is longer than ``most``, or is not such JSON.
    """
    try:
        if (size := file.stat().st_size) > most:
            raise ResultError(f"{file} has {size:,} bytes; expected at most {most:,}.")
        data = file.read_bytes()
    except OSError as error:
        raise ResultError(f"{file} cannot be read ({error}).") from error
    return parse_json(data, str(file), most)


def parse_json(data: bytes, name: str, most: int = MAX_JSON_BYTES) -> Any:
    """Parse JSON of somebody else.

    Args:
        data: The JSON.
        name: Its name in messages.
        most: Largest accepted size in bytes.

    Returns:
        Its content. Every text in it can be encoded, and so be shown and written.

    Raises:
        ResultError: If it is longer than ``most``, or is not such JSON.
    """
    if len(data) > most:
        raise ResultError(f"{name} has {len(data):,} bytes; expected at most {most:,}.")
    try:
        content = json.loads(data.decode("utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate, written as \\ud800, is text that cannot be
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{name} cannot be read ({type(error).__name__}: {error}).") from error
    return content


def write_json(content: Mapping[str, Any]) -> bytes:
    """Return a JSON file with the version of the schema in front."""
    return json.dumps({"schema": SCHEMA} | dict(content), indent=2, ensure_ascii=False).encode() + b"\n"


@cache
def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a manifest."""
    text = resources.files("xaibench.leaderboard").joinpath("manifest.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


_TYPES: dict[str, Any] = {
    **{"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)},
    "null": type(None),
}


def schema_violations(value: Any, schema: Mapping[str, Any], place: str = "it") -> Iterator[str]:
    """Validate a value against a JSON Schema, limited to the keywords that ``manifest.schema.json`` uses.

    Args:
        value: A parsed JSON value.
        schema: Its schema.
        place: Name of the value in the messages.

    Returns:
        An iterator over the violations, as text; empty if the value is valid.

    Example:
        >>> list(schema_violations({"n": "x"}, {"type": "object", "properties": {"n": {"type": "integer"}}}))
        ["n is 'x', expected integer"]
    """
    if "const" in schema and value != schema["const"]:
        yield f"{place} is {value!r}, expected {schema['const']!r}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = any(isinstance(value, _TYPES[kind]) for kind in kinds)
    if kinds and (not fits or (isinstance(value, bool) and "boolean" not in kinds)):
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


def result_checksum(folder: Path) -> str:
    """Return the SHA-256 of ``scores.parquet``, which contains the checksum of the source of the method."""
    return hashlib.sha256((folder / SCORES.name).read_bytes()).hexdigest()


def find_results(folder: Path) -> list[Path]:
    """Return the folders of all results in a repository.

    Args:
        folder: A results repository, or a single result.

    Returns:
        The folders, sorted by name.

    Raises:
        ResultError: If the folder does not exist, contains no result or is a run folder.
    """
    if (folder / SCORES.name).is_file():
        if (folder / PARTS).is_file():
            raise ResultError(
                f"{folder} is a run folder, not a result; `xaibench results add {folder} --out REPOSITORY` turns its "
                "scores into results."
            )
        return [folder]
    found = sorted(file.parent for file in folder.glob(f"*/*/{SCORES.name}"))
    if not found:
        if str(folder).startswith("hf:"):
            repository = "/".join(folder.parts[1:3])  # Path collapses the two slashes of the address
            raise ResultError(
                f"{repository} is on the Hub; expected a local folder, as verdicts are written beside the results. "
                f"Get it by `hf download {repository} --repo-type dataset --local-dir results`."
            )
        there = "no such folder" if not folder.is_dir() else f"no METHOD/SUITE@VERSION/{SCORES.name} below it"
        raise ResultError(
            f"{folder} contains no results: {there}. `xaibench submit` and `xaibench results add` write them."
        )
    return found


def code_checksum(folder: Path) -> str:
    """Return one checksum over the names and contents of all files below ``method``; empty if there are none."""
    files = (path for path in (folder / METHOD).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    code = sorted(
        f"{path.relative_to(folder).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files
    )
    return hashlib.sha256("\n".join(code).encode()).hexdigest() if code else ""
