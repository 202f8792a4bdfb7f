"""``verified.csv`` of a results repository: the results whose scores a maintainer reproduced.

Maintainers commit the file. A row is of one state of a result; it does not apply to a result that has changed since.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xaibench.core.files import atomic_file
from xaibench.leaderboard.manifest import ResultError, result_checksum

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
