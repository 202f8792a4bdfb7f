"""Verdicts on results. They are stored separately, and are valid only if a keeper of the repository has signed them.

    results/
      keepers                             trusted public keys, as in ssh-keygen(1), ALLOWED SIGNERS
      verdicts/METHOD/SUITE@VERSION.json  outcome of running the method again
      verdicts/METHOD/SUITE@VERSION.json.sig

Signatures are made by ``ssh-keygen -Y``. The author of a result can write any verdict, but cannot sign it.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xaibench.core.files import atomic_file
from xaibench.leaderboard.manifest import (
    ResultError,
    manifest_checksum,
    read_json,
    write_json,
)

log = logging.getLogger("xaibench")

#: Verdicts, from best to worst; a result with the last one is not the method's.
VERDICTS = ("bit-equal", "equal", "differs")
#: File of the trusted keys and folder of the verdicts in a results repository.
KEEPERS, FOLDER = "keepers", "verdicts"
#: Purpose of the signatures; a signature for another purpose is not accepted.
_NAMESPACE = "xaibench-verdict"
_TIMEOUT = 60


@dataclass(frozen=True)
class Verification:
    """Outcome of a verification: the content of a verdict's file.

    Attributes:
        result: SHA-256 of ``result.json`` at the time of the verification.
        verdict: ``"bit-equal"``, ``"equal"`` (no score differs by more than
            :data:`xaibench.leaderboard.verification.SCORE_TOLERANCE`), or ``"differs"``.
        rows: Number of compared scores.
        equal_rows: Number of bit-identical scores.
        largest_difference: Largest absolute difference of a score; None if a score is missing or undefined on one side.
        where: Data set, model and metric of that score.
        xaibench: Version of the library that ran the verification.
        date: Date of the verification.
    """

    result: str
    verdict: str
    rows: int
    equal_rows: int
    largest_difference: float | None
    where: str
    xaibench: str
    date: str


def verdict_file(folder: Path) -> Path:
    """Return the file of the verdict on a result, by the folder of the result in its repository."""
    place = folder.resolve()
    return place.parent.parent / FOLDER / place.parent.name / f"{place.name}.json"


def write_verdict(folder: Path, found: Verification) -> Path:
    """Write the verdict on a result, without a signature.

    Args:
        folder: Folder of the result.
        found: The outcome of its verification.

    Returns:
        The file.
    """
    file = verdict_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    _signature(file).unlink(missing_ok=True)
    with atomic_file(file) as stream:
        stream.write(write_json(asdict(found)))
    return file


def sign_verdicts(repository: Path, key: Path) -> list[Path]:
    """Sign every verdict of a repository that has no signature.

    Args:
        repository: The results repository.
        key: Private key of a keeper, as ``ssh-keygen`` writes it.

    Returns:
        The signed files.

    Raises:
        ResultError: If a verdict cannot be signed.
    """
    files = sorted(file for file in (repository / FOLDER).glob("*/*.json") if not _signature(file).exists())
    for file in files:
        done = _ssh_keygen("sign", "-q", "-f", str(key), "-n", _NAMESPACE, str(file))
        if done.returncode:
            raise ResultError(f"{file} cannot be signed with {key}: {_said(done)}.")
    return files


def read_verdict(folder: Path) -> dict[str, Any]:
    """Read the verdict on a result, if a keeper has signed it and it applies to the current state of the result.

    Args:
        folder: Folder of the result in its repository.

    Returns:
        The fields of a :class:`Verification`; empty without such a verdict.
    """
    file = verdict_file(folder)
    keepers = folder.resolve().parent.parent / KEEPERS
    if not (file.is_file() and _signature(file).is_file() and keepers.is_file()):
        return {}
    try:
        content = read_json(file)
    except ResultError:
        return {}
    if not isinstance(content, dict) or content.get("result") != manifest_checksum(folder):
        return {}
    return content if _is_signed(file, keepers) else {}


def has_verdict(folder: Path) -> bool:
    """Return whether a result was verified in its current state, signed or not."""
    with contextlib.suppress(ResultError):
        content = read_json(verdict_file(folder))
        return isinstance(content, dict) and content.get("result") == manifest_checksum(folder)
    return False


def _is_signed(file: Path, keepers: Path) -> bool:
    if not _has_ssh_keygen():
        return False
    signature = str(_signature(file))
    found = _ssh_keygen("find-principals", "-s", signature, "-f", str(keepers))
    names = found.stdout.decode(errors="replace").splitlines()
    if found.returncode or not names:
        return False
    told = ("-f", str(keepers), "-I", names[0], "-n", _NAMESPACE, "-s", signature)
    return _ssh_keygen("verify", *told, content=file.read_bytes()).returncode == 0


@cache
def _has_ssh_keygen() -> bool:
    there = shutil.which("ssh-keygen") is not None
    if not there:
        log.warning("ssh-keygen is not installed, so that no verdict can be checked; results count as not verified.")
    return there


def _signature(file: Path) -> Path:
    return file.with_name(f"{file.name}.sig")


def _ssh_keygen(command: str, *words: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", command, *words], input=content, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResultError(f"Signatures need ssh-keygen, which cannot be run ({error}); install OpenSSH.") from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join(done.stderr.decode(errors="replace").split()) or f"ssh-keygen ended with {done.returncode}"
