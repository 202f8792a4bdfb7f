"""A results repository: its folders, the description of a result (``result.json``), and ``verified.csv``.

A results repository has one folder per method and version of a suite::

    results/
      METHOD/SUITE@VERSION/
        result.json           method, suite and run
        scores.parquet        one row per sample and metric; in its metadata, a picture of the first maps (scores.py)
      suites/SUITE@VERSION/   facts that all results of the suite share (facts.py)
      verified.csv            results whose scores a maintainer reproduced

A result names its suite and does not contain it. Nothing in a result is executed or imported. Maintainers commit
``verified.csv``. A row is of one state of a result; it does not apply to a result that has changed since.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from xaibench.core.checks import to_latin
from xaibench.core.files import atomic_file
from xaibench.core.messages import did_you_mean, printable
from xaibench.data.exchange.hub_sets import HubAddress, download_snapshot
from xaibench.runfolder.descriptions import PARTS
from xaibench.runfolder.schema import SCORES

#: File of the description of a result.
RESULT = "result.json"
#: Version of its fields. Other versions are not read.
SCHEMA = 6
#: Largest size of a JSON file of a result in bytes, and its deepest nesting.
_MAX_BYTES, _MAX_DEPTH = 1 << 20, 20
#: Largest number in a JSON file.
_MAX_NUMBER = 1e15

_NAME = r"(?!(?:suites|con|prn|aux|nul|com\d|lpt\d)$)[a-z0-9][a-z0-9_-]{0,63}"
_ADDRESS = r"(https://[^\s\"'<>]{1,300})?"
#: Texts of a description, as regular expressions.
_TEXTS = {
    **{"method": _NAME, "suite": _NAME, "version": r"[0-9a-f]{32}", "submitted": r"[0-9]{4}-[0-9]{2}-[0-9]{2}"},
    **{"label": r".{1,80}", "entry": r"[A-Za-z0-9_.:+-]{1,200}", "summary": r".{0,1000}", "machine": r".{0,300}"},
    **{"citation": r"(?s:.{0,5000})", "license": r"([a-z0-9][a-z0-9.+-]{0,60})?", "homepage": _ADDRESS},
    **{"repository": _ADDRESS, "commit": r"([0-9a-f]{7,64})?"},
}
_OTHERS: Mapping[str, type | tuple[type, ...]] = {
    **{"authors": list, "tuned_on": list, "versions": dict, "parameters": dict, "control": bool},
    **{"passes": (int, type(None)), "seconds": (int, float), "maps": int},
}


class ResultError(ValueError):
    """A result that is not accepted. The message says which one, why, and what to do."""


@dataclass(frozen=True)
class Manifest:
    """Description of a result.

    Attributes:
        method: Name of the method: of its folder, and in the scores.
        label: Display name.
        entry: A listed explainer, or ``module:name``.
        suite: Name of the suite.
        version: Hash of the suite and of everything that determines its images, networks and metrics
            (:mod:`xaibench.leaderboard.suites`). Only scores of the same version are comparable.
        submitted: Date of the result, such as ``2026-11-23``.
        summary: One-sentence description.
        citation: The publication to cite, as text or BibTeX.
        license: License of the method and the scores.
        authors: Authors of the method.
        homepage: A web address.
        repository: Address of the source of the method.
        commit: Commit in that repository.
        passes: Network passes per image, if the method's parameters do not determine them.
        control: Whether the method does not use the model.
        parameters: Parameters of the method.
        tuned_on: Names of metrics or suites that the method or its parameters were tuned on.
        versions: Versions of xaibench and of the libraries that it uses.
        machine: Processor and GPUs.
        seconds: Time of explaining, summed over jobs.
        maps: Number of maps.
    """

    method: str
    label: str
    entry: str
    suite: str
    version: str
    submitted: str
    summary: str = ""
    citation: str = ""
    license: str = ""
    authors: tuple[str, ...] = ()
    homepage: str = ""
    repository: str = ""
    commit: str = ""
    passes: int | None = None
    control: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tuned_on: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    seconds: float = 0.0
    maps: int = 0

    @property
    def suite_folder(self) -> str:
        """``SUITE@VERSION``."""
        return f"{self.suite}@{self.version}"

    @property
    def folder(self) -> str:
        """Path of the result below a results repository."""
        return f"{self.method}/{self.suite_folder}"

    def to_json(self) -> bytes:
        """Return the content of ``result.json``."""
        return json.dumps({"schema": SCHEMA} | asdict(self), indent=2, ensure_ascii=False).encode() + b"\n"

    def bibtex(self) -> str:
        """Return a BibTeX entry of the method; a citation that is not BibTeX becomes its note."""
        if self.citation.lstrip().startswith("@"):
            return self.citation.strip()
        texts = {"title": self.label, "author": " and ".join(self.authors), "note": self.citation}
        # Without braces, a text cannot end its field.
        values = {name: " ".join(text.split()).replace("{", "(").replace("}", ")") for name, text in texts.items()}
        values |= {"howpublished": f"\\url{{{self.homepage}}}" * bool(self.homepage), "year": self.submitted[:4]}
        lines = ",\n".join(f"  {name} = {{{text}}}" for name, text in values.items() if text)
        return f"@misc{{{''.join(filter(str.isalnum, self.method))},\n{lines}\n}}"


def read_manifest(folder: Path) -> Manifest:
    """Read and validate the description of a result.

    Args:
        folder: Folder of the result.

    Raises:
        ResultError: If it is missing or not valid; the message lists the problems.
    """
    file = folder / RESULT
    content = parse_json(read_bytes(file, _MAX_BYTES), str(file))
    if problems := list(_problems(content)):
        raise ResultError(f"{file} is not valid: {'; '.join(problems[:5])}.")
    del content["schema"]
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in content.items()}
    return Manifest(**values)


def _problems(content: Any) -> Iterator[str]:
    """Yield what is wrong with the content of ``result.json``."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        yield f"expected an object with schema {SCHEMA}"
        return
    for name in sorted(content.keys() - {"schema", *_TEXTS, *_OTHERS}):
        yield f"{name[:80]!r} is not known{did_you_mean(name[:80], [*_TEXTS, *_OTHERS]).rstrip('.')}"
    if missing := [each.name for each in fields(Manifest)[:6] if each.name not in content]:
        yield f"it lacks {', '.join(missing)}"
    value: Any
    for name in content.keys() & _TEXTS.keys():
        value = content[name]
        if not isinstance(value, str) or not re.fullmatch(_TEXTS[name], value):
            yield f"{name} is {str(value)[:80]!r}, expected text like {_TEXTS[name]}"
        elif name == "submitted" and not _is_date(value):
            yield f"submitted is {value!r}, expected a date"
        elif name == "label" and to_latin(value) != value and to_latin(value).isascii():
            yield f"label is {value!a}, which looks like {to_latin(value)!r}; use Latin letters"
    for name in content.keys() & _OTHERS.keys():
        value, kind = content[name], _OTHERS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            yield f"{name} is {str(value)[:80]!r}, expected {kind}"
        elif isinstance(value, int | float) and value < 0:
            yield f"{name} is {value}, expected at least 0"
        elif name in ("authors", "tuned_on", "versions"):
            texts = [*value.values()] if isinstance(value, dict) else [*content[name]]
            if len(texts) > 200 or not all(isinstance(text, str) and len(text) <= 100 for text in texts):
                yield f"{name} is {str(value)[:80]!r}, expected at most 200 texts of at most 100 characters"


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def read_bytes(file: Path, most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Raises:
        ResultError: If it is missing, a link or too large, or cannot be read.
    """
    if file.is_symlink() or not file.is_file():
        raise ResultError(f"{file} is missing; `xaibench results add` writes it.")
    try:
        with file.open("rb") as stream:
            content = stream.read(most + 1)
    except OSError as error:
        raise ResultError(f"{file} cannot be read ({error}).") from error
    if len(content) > most:
        raise ResultError(f"{file} has more than {most:,} bytes.")
    return content


def parse_json(data: bytes, name: str) -> Any:
    """Parse JSON that may come from a stranger.

    Args:
        data: The JSON.
        name: Its name in messages.

    Returns:
        Its content. Numbers are finite and bounded, the nesting is limited, and texts have printable characters only,
        except for line breaks and tabs.

    Raises:
        ResultError: If it is not such JSON.
    """
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{name} cannot be read ({type(error).__name__}: {error}).") from error
    values = [content]
    for _ in range(_MAX_DEPTH):
        for value in values:
            if isinstance(value, str) and not value.replace("\n", "").replace("\t", "").isprintable():
                raise ResultError(f"{name} has the text {ascii(value)[:80]}; expected printable characters only.")
            if isinstance(value, int | float) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:  # also NaN
                raise ResultError(f"{name} has a number beyond {_MAX_NUMBER:g}, or one that is not finite.")
        values = [each for value in values for each in _children(value)]
        if not values:
            return content
    raise ResultError(f"{name} is nested deeper than {_MAX_DEPTH} levels.")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def result_checksum(folder: Path) -> str:
    """Return the SHA-256 of ``result.json`` followed by ``scores.parquet``."""
    return hashlib.sha256((folder / RESULT).read_bytes() + (folder / SCORES.name).read_bytes()).hexdigest()


def find_results(folder: Path) -> list[Path]:
    """Return the folders of all results in a repository.

    Args:
        folder: A results repository, the folder of a method in it, or a single result.

    Returns:
        The folders, sorted by name.

    Raises:
        ResultError: If the folder does not exist, contains no result or is a run folder.
    """
    if (folder / PARTS).is_file():
        raise ResultError(
            f"{folder} is a run folder, not a result; `xaibench results add {folder} --out REPOSITORY` turns its "
            "scores into results."
        )
    if (folder / SCORES.name).is_file() or (folder / RESULT).is_file():
        return [folder]
    names = [f"{level}/{name}" for level in ("*", "*/*") for name in (RESULT, SCORES.name)]
    results = sorted({file.parent for name in names for file in folder.glob(name)})
    if not results:
        raise ResultError(
            f"{folder} contains no results: no METHOD/SUITE@VERSION/{RESULT} below it. `xaibench results add` writes "
            "them."
        )
    return results


@contextlib.contextmanager
def open_repository(address: str | os.PathLike[str]) -> Iterator[Path]:
    """Open a results repository for reading.

    Args:
        address: A folder, or a data set of the Hub: ``"hf://owner/name"`` or ``"hf://owner/name@revision"``.

    Yields:
        The folder; for the Hub a temporary copy, which is deleted at the end.

    Raises:
        ValueError: If the Hub address is malformed.
        MissingDataError: If the repository does not exist or is not accessible, or the Hub cannot be reached and the
            repository is not in the cache.
    """
    if not str(address).startswith("hf:"):
        yield Path(address)
        return
    snapshot = download_snapshot(HubAddress.parse(str(address)), ["*"])
    with tempfile.TemporaryDirectory(prefix="xaibench-results-") as temporary:
        # The files are links into a cache, which are not allowed in a result.
        copy = Path(shutil.copytree(snapshot, Path(temporary) / "results"))
        try:
            yield copy
        except ResultError as error:  # name the address instead of the copy
            raise ResultError(str(error).replace(str(copy), str(address))) from error


def describe_error(error: Exception) -> str:
    """Return the message of an error while reading a submitted file, as one printable line."""
    text = str(error) if isinstance(error, ResultError) else f"{type(error).__name__}: {error}"
    return printable(" ".join(text[:1000].split()))


#: Name of the file.
VERIFIED = "verified.csv"
#: Largest difference of a score of the same networks on another CPU.
SCORE_TOLERANCE = 1e-6
#: Share of maps that must change (:mod:`xaibench.leaderboard.verification`); with a smaller share, a method ignores the
#: network or the image.
MIN_CHANGED = {"weights": 0.5, "training": 0.05, "image": 0.05}

_COLUMNS = ("result", "sha256", "xaibench", "commit", "largest_difference", *MIN_CHANGED)


@dataclass(frozen=True)
class Verification:
    """Outcome of running a method again.

    Attributes:
        result: Folder of the result in its repository, ``METHOD/SUITE@VERSION``.
        sha256: Checksum of its two files.
        xaibench: Version of the library that ran the verification.
        commit: Commit of the library; empty for a release.
        largest_difference: Largest absolute difference of a score; infinite if a score is missing or undefined on one
            side.
        changed: Share of the maps that change with ``"weights"`` (randomized), ``"training"`` (another training of the
            network) and ``"image"`` (another image), as far as it could be measured.
        where: Data set, model and metric of the largest difference. Not stored.
    """

    result: str
    sha256: str
    xaibench: str
    commit: str
    largest_difference: float
    changed: Mapping[str, float] = field(default_factory=dict)
    where: str = ""

    @property
    def verdict(self) -> str:
        """``"bit-equal"``, ``"equal"`` (no score differs by more than :data:`SCORE_TOLERANCE`) or ``"differs"``."""
        if self.largest_difference == 0:
            return "bit-equal"
        return "equal" if self.largest_difference <= SCORE_TOLERANCE else "differs"

    @property
    def ignores(self) -> tuple[str, ...]:
        """``"network"`` and ``"image"``, if too few maps change with them."""
        low = {name for name, share in self.changed.items() if share < MIN_CHANGED[name]}
        return ("network",) * bool(low & {"weights", "training"}) + ("image",) * ("image" in low)

    def to_csv(self) -> str:
        """Return the row of ``verified.csv``.

        Returns:
            The row without a line break.
        """
        shares = (f"{self.changed[name]:.6g}" if name in self.changed else "" for name in MIN_CHANGED)
        return ",".join((self.result, self.sha256, self.xaibench, self.commit, f"{self.largest_difference:g}", *shares))


def read_verified(repository: Path) -> dict[str, Verification]:
    """Return the rows of ``verified.csv`` by result; none if there is no such file.

    Raises:
        ResultError: If the file is damaged.
    """
    file = repository / VERIFIED
    if file.is_symlink() or not file.is_file():
        return {}
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines(), strict=True))
        found = [
            Verification(
                row["result"],
                row["sha256"],
                row["xaibench"],
                row["commit"],
                float(row["largest_difference"]),
                {name: float(row[name]) for name in MIN_CHANGED if row[name]},
            )
            for row in rows
        ]
        if any(math.isnan(number) for one in found for number in (one.largest_difference, *one.changed.values())):
            raise ValueError("A number is NaN.")
    except (OSError, KeyError, TypeError, AttributeError, ValueError, csv.Error) as error:
        raise ResultError(f"{file} cannot be read ({error}); expected the columns {', '.join(_COLUMNS)}.") from error
    return {one.result: one for one in found}


def find_verification(folder: Path) -> Verification | None:
    """Return the verification of a result in its current state; None if there is none.

    Args:
        folder: Folder of the result in its repository.

    Raises:
        ResultError: If ``verified.csv`` is damaged.
    """
    place = folder.absolute()
    found = read_verified(place.parent.parent).get("/".join(place.parts[-2:]))
    return found if found is not None and found.sha256 == result_checksum(folder) else None


def record_verification(repository: Path, found: Verification) -> None:
    """Add a row to ``verified.csv``, or replace that of an earlier state of the result."""
    rows = read_verified(repository) | {found.result: found}
    with atomic_file(repository / VERIFIED) as stream:
        lines = [",".join(_COLUMNS), *(rows[name].to_csv() for name in sorted(rows))]
        stream.write(("\n".join(lines) + "\n").encode())
