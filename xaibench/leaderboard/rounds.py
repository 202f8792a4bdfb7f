"""Rounds of fresh seeds by commit and reveal, so that no method can be tuned on the test data.

Before the deadline, ``rounds.json`` of a results repository contains only the commitment,
``sha256(name:suite:deadline:seed:salt)``; the organizer keeps the seed. Methods are submitted with their code. After
the deadline the seed is revealed, anyone can check it against the commitment, and the submitted methods are run on the
data and networks of that seed.

A round replaces the data set seeds of its suite. In XAI-TRIS the patterns are at the same positions for every seed, so
that a map that ignores image and network can score well. A round therefore also moves and turns them (``layout``).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from xaibench.core.files import atomic_file
from xaibench.core.messages import listed, unknown
from xaibench.leaderboard.manifest import ResultError, read_json
from xaibench.leaderboard.suite_text import (
    is_generated,
    official_suite,
    read_datasets,
    read_layouts,
    read_seeds,
    with_layout,
    with_seeds,
)
from xaibench.runner.suites.files import SUITES

ROUNDS = "rounds.json"
#: Names of rounds, as the schema of a manifest has them.
_NAME = r"[a-z0-9][a-z0-9_.-]{0,63}"


@dataclass(frozen=True)
class Round:
    """Fresh seeds for one suite.

    Attributes:
        name: Name of the round.
        suite: The suite whose seeds are replaced.
        commitment: SHA-256 that commits to the seed.
        deadline: Last day of submissions, such as ``2026-12-31``.
        seed: The seed; None until it is revealed.
        salt: Random text in the commitment that prevents guessing the seed; None until it is revealed.
    """

    name: str
    suite: str
    commitment: str
    deadline: str
    seed: int | None = None
    salt: str | None = None

    def matches_commitment(self, seed: int, salt: str) -> bool:
        """Return whether seed and salt match the commitment."""
        return secrets.compare_digest(
            self.commitment, _make_commitment(self.name, self.suite, self.deadline, seed, salt)
        )

    def seeds(self, count: int) -> list[int]:
        """Derive ``count`` data set seeds from the seed of the round.

        Raises:
            ResultError: If the seed has not been revealed.
        """
        return [self._derive(str(number)) for number in range(count)]

    @property
    def layout(self) -> int:
        """Positive number of the layout of the XAI-TRIS data sets, derived from the seed of the round.

        Raises:
            ResultError: If the seed has not been revealed.
        """
        return 1 + self._derive("layout")

    def _derive(self, purpose: str) -> int:
        """Return 31 bits that depend on the seed of the round and the purpose."""
        if self.seed is None:
            raise ResultError(
                f"The seed of round {self.name} is revealed after {self.deadline}, by `xaibench results reveal`."
            )
        return int.from_bytes(hashlib.sha256(f"{self.seed}:{purpose}".encode()).digest()[:4], "big") >> 1


def _make_commitment(name: str, suite: str, deadline: str, seed: int, salt: str) -> str:
    return hashlib.sha256(f"{name}:{suite}:{deadline}:{seed}:{salt}".encode()).hexdigest()


def read_rounds(repository: Path) -> list[Round]:
    """Read the rounds of a results repository and check each revealed seed against its commitment.

    Args:
        repository: The folder.

    Returns:
        The rounds, in file order; empty if there is no file.

    Raises:
        ResultError: If the file is damaged, or a seed does not match its commitment.
    """
    file = repository / ROUNDS
    if not file.exists():
        return []
    try:
        rounds = [Round(**one) for one in read_json(file)]
        days = [date.fromisoformat(one.deadline) for one in rounds]
    except (TypeError, ValueError, OSError) as error:
        raise ResultError(f"{file} cannot be read ({error}); `xaibench results commit` writes it.") from error
    for one, _ in zip(rounds, days, strict=True):
        if one.seed is not None and not one.matches_commitment(one.seed, one.salt or ""):
            raise ResultError(f"{file}: the seed of round {one.name} does not match its commitment.")
    return rounds


def find_round(result: Path, name: str) -> Round:
    """Return a round of the repository in which a result lies.

    Args:
        result: Folder of the result.
        name: Name of the round.

    Raises:
        ResultError: If there is none of that name.
    """
    rounds = {one.name: one for one in read_rounds(result.resolve().parent.parent)}
    if name not in rounds:
        raise ResultError(unknown("The repository has no round", name, rounds))
    return rounds[name]


def commit_round(
    repository: Path, name: str, suite: str, deadline: date, secret: Path, *, today: date | None = None
) -> Round:
    """Draw a seed, write its commitment to the repository, and the seed to a private file.

    Args:
        repository: The results repository.
        name: Name of the round, part of the names of folders: small letters, digits, ``_``, ``.`` and ``-``.
        suite: A suite of generated data.
        deadline: Last day of submissions.
        secret: New file for the seed; it must not be published before the deadline.
        today: Current date. Default: from the clock.

    Returns:
        The round.

    Raises:
        ResultError: If the name is not one, the deadline has passed, the round exists already, or the secret file
            exists or is inside the repository.
        UnknownNameError: If there is no such suite.
    """
    if not re.fullmatch(_NAME, name):
        raise ResultError(f"The name of the round is {name!r}; expected small letters, digits, '_', '.' and '-'.")
    if deadline < (today or datetime.now(UTC).date()):
        raise ResultError(f"The deadline {deadline} has passed; choose a day from today on.")
    name_of_suite = SUITES.canonical(suite)
    _check_generated(name_of_suite)
    rounds = read_rounds(repository)
    if name in {one.name for one in rounds}:
        raise ResultError(f"Round {name!r} exists already; choose another name.")
    if secret.exists() or secret.resolve().is_relative_to(repository.resolve()):
        raise ResultError(f"{secret} exists, or is inside {repository}; choose another file for the seed.")
    seed, salt = secrets.randbelow(1 << 62), secrets.token_hex(16)
    day = deadline.isoformat()
    made = Round(name, name_of_suite, _make_commitment(name, name_of_suite, day, seed, salt), day)
    secret.touch(mode=0o600, exist_ok=False)
    secret.write_text(json.dumps({"name": name, "seed": seed, "salt": salt}) + "\n", encoding="utf-8")
    _write_rounds(repository, [*rounds, made])
    return made


def reveal_round(repository: Path, secret: Path, *, today: date | None = None) -> Round:
    """Publish the seed of a round after its deadline.

    Args:
        repository: The results repository.
        secret: The file written by :func:`commit_round`.
        today: Current date. Default: from the clock.

    Returns:
        The round with its seed.

    Raises:
        ResultError: If the deadline has not passed, or the seed does not match the commitment.
    """
    try:
        known = json.loads(secret.read_text(encoding="utf-8"))
        name, seed, salt = str(known["name"]), int(known["seed"]), str(known["salt"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{secret} cannot be read ({error}); `xaibench results commit` writes it.") from error
    rounds = {one.name: one for one in read_rounds(repository)}
    if name not in rounds:
        raise ResultError(unknown(f"{repository} has no round", name, rounds))
    if (today or datetime.now(UTC).date()) <= date.fromisoformat(rounds[name].deadline):
        raise ResultError(
            f"Round {name} is open until {rounds[name].deadline}; methods could be tuned on a revealed seed. "
            "Reveal it on the day after."
        )
    if not rounds[name].matches_commitment(seed, salt):
        raise ResultError(f"{secret} does not contain the seed that round {name} commits to.")
    rounds[name] = replace(rounds[name], seed=seed, salt=salt)
    _write_rounds(repository, list(rounds.values()))
    return rounds[name]


def suite_for_round(text: str, drawn: Round) -> str:
    """Replace the data set seeds of a suite by the seeds of a round, and the layout of its XAI-TRIS data sets.

    Args:
        text: The suite as TOML.
        drawn: The round, whose seed has been revealed.

    Returns:
        The suite as TOML.

    Raises:
        ResultError: If the seed has not been revealed.
    """
    return with_layout(with_seeds(text, drawn.seeds(len(read_seeds(text)))), drawn.layout)


def suite_with_public_seeds(text: str, suite: str, drawn: Round) -> str:
    """Restore the public seeds and layout in a suite of a round; its version is computed with these.

    Args:
        text: The suite as TOML, with the seeds and the layout of the round.
        suite: Name of the public suite.
        drawn: The round.

    Returns:
        The suite as TOML.

    Raises:
        ResultError: If the seeds or the layout do not belong to the round.
    """
    seeds = read_seeds(official_suite(suite))
    if read_seeds(text) != (expected := drawn.seeds(len(seeds))):
        raise ResultError(f"Its seeds are {listed(read_seeds(text), 3)}; round {drawn.name} has {listed(expected, 3)}.")
    if layouts := read_layouts(text) - {drawn.layout}:
        raise ResultError(
            f"Its XAI-TRIS data sets have layout {listed(sorted(layouts), 3)}; round {drawn.name} has {drawn.layout}."
        )
    return with_layout(with_seeds(text, seeds), 0)


def _check_generated(suite: str) -> None:
    if fixed := sorted(name for name in read_datasets(official_suite(suite)) if not is_generated(name)):
        raise ResultError(
            f"{suite} has data sets that are not generated ({listed(fixed, 2)}) and have no fresh seeds. Use "
            f"a suite such as {listed([one for one in SUITES if one.startswith('xai-tris')], 2)}."
        )


def _write_rounds(repository: Path, rounds: Sequence[Round]) -> None:
    repository.mkdir(parents=True, exist_ok=True)
    with atomic_file(repository / ROUNDS) as stream:
        stream.write(json.dumps([asdict(one) for one in rounds], indent=2).encode() + b"\n")
