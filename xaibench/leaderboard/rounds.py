"""Fresh data that nobody can have tuned on: a seed is promised by its hash, and shown when the deadline is over.

Generated data give fresh test sets for free. Before the deadline ``rounds.json`` of a results repository holds the
commitment alone, ``sha256(name:suite:deadline:seed:salt)``; whoever drew the seed keeps it. Methods are handed in, with
their code. Afterwards the seed is shown, everybody can check that it is the promised one, and the methods that lie
there are run on the data and networks of that seed.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from xaibench.core.files import atomic_file
from xaibench.core.messages import listed, unknown
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.suite_text import is_generated, read_seeds, with_seeds
from xaibench.runner.suites.files import SUITES, load_suite

ROUNDS = "rounds.json"


@dataclass(frozen=True)
class Round:
    """Fresh seeds for one suite.

    Attributes:
        name: Of the round.
        suite: Whose seeds they take the place of.
        commitment: The sha256 that promises the seed.
        deadline: The last day on which methods are handed in, ``2026-12-31``.
        seed: None until it is shown.
        salt: Of the commitment, so that the seed cannot be guessed from it; None until it is shown.
    """

    name: str
    suite: str
    commitment: str
    deadline: str
    seed: int | None = None
    salt: str | None = None

    def matches_commitment(self, seed: int, salt: str) -> bool:
        """Whether this is the seed that was promised."""
        return secrets.compare_digest(self.commitment, _commitment(self.name, self.suite, self.deadline, seed, salt))

    def seeds(self, count: int) -> list[int]:
        """So many seeds of data sets, which follow from the one that was drawn.

        Raises:
            ResultError: If it is not shown yet.
        """
        if self.seed is None:
            raise ResultError(
                f"The seed of round {self.name} is not shown before {self.deadline} is over: `xaibench results reveal`."
            )
        sums = (hashlib.sha256(f"{self.seed}:{number}".encode()).digest() for number in range(count))
        return [int.from_bytes(one[:4], "big") >> 1 for one in sums]


def _commitment(name: str, suite: str, deadline: str, seed: int, salt: str) -> str:
    return hashlib.sha256(f"{name}:{suite}:{deadline}:{seed}:{salt}".encode()).hexdigest()


def read_rounds(repository: Path) -> list[Round]:
    """The rounds of a results repository; each seed that is shown is the promised one.

    Args:
        repository: The folder.

    Returns:
        The rounds, in their order; none where there is no file.

    Raises:
        ResultError: If the file is damaged, or a seed is not the promised one.
    """
    file = repository / ROUNDS
    if not file.exists():
        return []
    try:
        rounds = [Round(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
        days = [date.fromisoformat(one.deadline) for one in rounds]
    except (TypeError, ValueError, OSError) as error:
        raise ResultError(f"{file} cannot be read ({error}); `xaibench results commit` writes it.") from error
    for one, _ in zip(rounds, days, strict=True):
        if one.seed is not None and not one.matches_commitment(one.seed, one.salt or ""):
            raise ResultError(f"{file}: the seed of round {one.name} is not the one that was promised.")
    return rounds


def commit_round(repository: Path, name: str, suite: str, deadline: date, secret: Path) -> Round:
    """Draw a seed, promise it in the repository, and keep it in a file that is nobody's but one's own.

    Args:
        repository: Where the promise goes.
        name: Of the round.
        suite: A suite of generated data.
        deadline: The last day on which methods are handed in.
        secret: The file with the seed; keep it out of the repository until then.

    Returns:
        The round.

    Raises:
        ResultError: If there is such a round, or the secret would lie in the repository or in place of another.
        UnknownNameError: If there is no such suite.
    """
    name_of_suite = SUITES.canonical(suite)
    _check_generated(name_of_suite)
    rounds = read_rounds(repository)
    if name in {one.name for one in rounds}:
        raise ResultError(f"There is a round {name!r} already; give the new one another name.")
    if secret.exists() or secret.resolve().is_relative_to(repository.resolve()):
        raise ResultError(f"{secret} is there, or lies in {repository}; choose another file for the seed.")
    seed, salt = secrets.randbelow(1 << 62), secrets.token_hex(16)
    day = deadline.isoformat()
    made = Round(name, name_of_suite, _commitment(name, name_of_suite, day, seed, salt), day)
    secret.touch(mode=0o600, exist_ok=False)
    secret.write_text(json.dumps({"name": name, "seed": seed, "salt": salt}) + "\n", encoding="utf-8")
    _write(repository, [*rounds, made])
    return made


def reveal_round(repository: Path, secret: Path, *, today: date | None = None) -> Round:
    """Show the seed of a round when its deadline is over.

    Args:
        repository: Of the promise.
        secret: The file that :func:`commit_round` left.
        today: The day; default by the clock.

    Returns:
        The round with its seed.

    Raises:
        ResultError: If the deadline is not over, or this is not the promised seed.
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
            f"Round {name} is open until {rounds[name].deadline}; once the seed is shown, methods can be tuned on it. "
            "Show it on the day after."
        )
    if not rounds[name].matches_commitment(seed, salt):
        raise ResultError(f"{secret} holds another seed than round {name} was promised with.")
    rounds[name] = replace(rounds[name], seed=seed, salt=salt)
    _write(repository, list(rounds.values()))
    return rounds[name]


def suite_for_round(text: str, drawn: Round) -> str:
    """A suite on the data of a round, and on networks that are trained anew.

    Args:
        text: The suite as TOML.
        drawn: The round, whose seed is shown.

    Returns:
        The suite as TOML.

    Raises:
        ResultError: If the seed is not shown.
    """
    return with_seeds(text, drawn.seeds(len(read_seeds(text))))


def suite_with_public_seeds(text: str, suite: str, drawn: Round) -> str:
    """A suite of a round with the public seeds again, by which its version is known.

    Args:
        text: The suite as TOML, on the data of the round.
        suite: The public suite.
        drawn: The round.

    Returns:
        The suite as TOML.

    Raises:
        ResultError: If it is on other seeds than those of the round.
    """
    _, public = load_suite(suite)
    seeds = read_seeds(public)
    if read_seeds(text) != (expected := drawn.seeds(len(seeds))):
        raise ResultError(f"Its seeds are {listed(read_seeds(text), 3)}; round {drawn.name} has {listed(expected, 3)}.")
    return with_seeds(text, seeds)


def _check_generated(suite: str) -> None:
    found, _ = load_suite(suite)
    if fixed := sorted({name for cell in found.cells for name in cell.datasets if not is_generated(name)}):
        raise ResultError(
            f"{suite} has sets that are not generated ({listed(fixed, 2)}), so there is nothing fresh to draw. Rounds "
            f"are of suites such as {listed([one for one in SUITES if one.startswith('xai-tris')], 2)}."
        )


def _write(repository: Path, rounds: Sequence[Round]) -> None:
    repository.mkdir(parents=True, exist_ok=True)
    with atomic_file(repository / ROUNDS) as stream:
        stream.write(json.dumps([asdict(one) for one in rounds], indent=2).encode() + b"\n")
