"""A keeper of a results repository: a key, and verdicts that are signed with it."""

import shutil
import subprocess

import pytest

from xaibench.leaderboard import verdicts
from xaibench.leaderboard.manifest import result_checksum
from xaibench.leaderboard.verdicts import KEEPERS, RECORDS, Record, Verification, sign_records


def make_key(folder, name="keeper"):
    """A new private key; the public one is beside it."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key], check=True)
    return key


def trust(repository, key):
    """Name the key as one of a keeper."""
    with (repository / KEEPERS).open("a") as file:
        file.write(f"{key.name}@example.org {key.with_suffix('.pub').read_text()}")


def give_verdict(folder, key=None, **changes):
    """Write a verdict on a result, signed if there is a key."""
    words = {"verdict": "bit-equal", "rows": 96, "equal_rows": 96, "largest_difference": 0.0, "where": ""}
    words |= {"xaibench": "0.2.0", "date": "2026-02-02"} | changes
    result, received = words.pop("result", result_checksum(folder)), words.pop("received", "2026-01-01")
    verdicts._add_records({folder: Record(result, received, Verification(**words))})
    if key is not None:
        sign_records(folder.parent.parent, key)
    return folder.parent.parent / RECORDS
