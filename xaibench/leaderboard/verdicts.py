"""Records of the keeper of a results repository: when each result was received, and the outcome of running it again.

    results/
      keepers              trusted public keys, as in ssh-keygen(1), ALLOWED SIGNERS
      verdicts.json        one record per result
      verdicts.json.sig    signature of a keeper

Records are valid only if a keeper has signed the file, by ``ssh-keygen -Y``. The author of a result can write any
record, but cannot sign it.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from xaibench.core.files import atomic_file
from xaibench.leaderboard.manifest import ResultError, read_json, result_checksum, write_json

log = logging.getLogger("xaibench")

#: Verdicts, from best to worst; the scores of a result with the last one are not the method's.
VERDICTS = ("bit-equal", "equal", "differs")
#: File of the trusted keys and file of the records in a results repository.
KEEPERS, RECORDS = "keepers", "verdicts.json"
#: Share of maps that must change (:mod:`xaibench.leaderboard.dependence`); with a smaller share, a method ignores the
#: network or the image.
MIN_CHANGED = {"weights": 0.5, "training": 0.05, "image": 0.05}
#: Purpose of the signatures; a signature for another purpose is not accepted.
_NAMESPACE = "xaibench-verdict"
_TIMEOUT = 60
#: Largest size of the file of the records, in bytes.
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Verification:
    """Outcome of running a method again.

    Attributes:
        verdict: ``"bit-equal"`` (every stored score is the same), ``"equal"`` (no score differs by more than
            :data:`xaibench.leaderboard.verification.SCORE_TOLERANCE`), or ``"differs"``.
        rows: Number of compared scores.
        equal_rows: Number of bit-identical scores.
        largest_difference: Largest absolute difference of a score; None if a score is missing or undefined on one side.
        where: Data set, model and metric of that score.
        xaibench: Version of the library that ran the verification.
        date: Date of the verification.
        changed: Share of the maps that change with ``"weights"`` (randomized), ``"training"`` (another training of the
            network) and ``"image"`` (another image); without entries that could not be measured
            (:mod:`xaibench.leaderboard.dependence`).
    """

    verdict: str
    rows: int
    equal_rows: int
    largest_difference: float | None
    where: str
    xaibench: str
    date: str
    changed: Mapping[str, float] = field(default_factory=dict)

    @property
    def ignores(self) -> tuple[str, ...]:
        """Return ``"network"`` and ``"image"`` if the maps do not depend on them."""
        low = {name for name, share in self.changed.items() if share < MIN_CHANGED.get(name, 0.0)}
        return ("network",) * bool(low & {"weights", "training"}) + ("image",) * ("image" in low)


@dataclass(frozen=True)
class Record:
    """The keeper's record of a result.

    Attributes:
        result: SHA-256 of ``scores.parquet``. A record of another checksum is of an earlier state of the result.
        received: Day on which the keeper received this state, such as ``2026-11-23``.
        verification: Outcome of running the method again; None if it has not been run.
    """

    result: str
    received: str
    verification: Verification | None = None


def record_key(folder: Path) -> tuple[Path, str]:
    """Return the repository of a result, and the name of its record: ``METHOD/SUITE@VERSION``."""
    place = folder.resolve()
    return place.parent.parent, f"{place.parent.name}/{place.name}"


def read_records(repository: Path, *, signed: bool = True) -> dict[str, Record]:
    """Read the records of a repository.

    Args:
        repository: The results repository.
        signed: Read them only if a keeper has signed them; otherwise there are none.

    Returns:
        Folder of a result to its record.

    Raises:
        ResultError: If the file is damaged.
    """
    file = repository / RECORDS
    if not file.is_file() or (signed and not _is_signed(file, repository / KEEPERS)):
        return {}
    try:
        return {str(name): _parse_record(words) for name, words in read_json(file, _MAX_BYTES)["results"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ResultError(f"{file} cannot be read ({error}); `xaibench results verify` writes it.") from error


def _parse_record(words: Mapping[str, Any]) -> Record:
    found = words["verification"]
    return Record(str(words["result"]), str(words["received"]), None if found is None else Verification(**found))


def find_record(folder: Path, *, signed: bool = True) -> Record | None:
    """Return the record of a result, if there is one of its current state.

    Args:
        folder: Folder of the result in its repository.
        signed: Accept it only if a keeper has signed it.

    Raises:
        ResultError: If the file of the records is damaged.
    """
    repository, name = record_key(folder)
    found = read_records(repository, signed=signed).get(name)
    return found if found is not None and found.result == result_checksum(folder) else None


def receive(folders: Iterable[Path], *, day: str | None = None) -> list[Path]:
    """Record the day on which results were received, for those without a record of their current state.

    Args:
        folders: Folders of results in one repository.
        day: The day. Default: today.

    Returns:
        The folders with a new record.
    """
    new = [folder for folder in folders if find_record(folder, signed=False) is None]
    today = day or datetime.now(UTC).date().isoformat()
    _add_records({folder: Record(result_checksum(folder), today) for folder in new})
    return new


def record_verification(folder: Path, found: Verification) -> None:
    """Record the outcome of running the method of a result again, without a signature.

    Args:
        folder: Folder of the result in its repository.
        found: The outcome.
    """
    known = find_record(folder, signed=False) or Record(result_checksum(folder), datetime.now(UTC).date().isoformat())
    _add_records({folder: replace(known, verification=found)})


def _add_records(new: Mapping[Path, Record]) -> None:
    if not new:
        return
    repository = record_key(next(iter(new)))[0]
    known = read_records(repository, signed=False)
    known |= {record_key(folder)[1]: record for folder, record in new.items()}
    file = repository / RECORDS
    _signature(file).unlink(missing_ok=True)
    with atomic_file(file) as stream:
        stream.write(write_json({"results": {name: asdict(record) for name, record in sorted(known.items())}}))


def sign_records(repository: Path, key: Path) -> Path | None:
    """Sign the records of a repository, unless they have a signature.

    Args:
        repository: The results repository.
        key: Private key of a keeper, as ``ssh-keygen`` writes it.

    Returns:
        The signed file; None if there is nothing to sign.

    Raises:
        ResultError: If it cannot be signed.
    """
    file = repository / RECORDS
    if not file.is_file() or _signature(file).exists():
        return None
    done = _ssh_keygen("sign", "-q", "-f", str(key), "-n", _NAMESPACE, str(file))
    if done.returncode:
        raise ResultError(f"{file} cannot be signed with {key}: {_said(done)}.")
    return file


def _is_signed(file: Path, keepers: Path) -> bool:
    signature = _signature(file)
    if not (signature.is_file() and keepers.is_file() and _has_ssh_keygen()):
        return False
    found = _ssh_keygen("find-principals", "-s", str(signature), "-f", str(keepers))
    names = found.stdout.decode(errors="replace").splitlines()
    if found.returncode or not names:
        return False
    told = ("-f", str(keepers), "-I", names[0], "-n", _NAMESPACE, "-s", str(signature))
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
