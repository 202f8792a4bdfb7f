"""Whether the code in a result is that of the commit which it names."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from xaibench.core.messages import listed
from xaibench.leaderboard.manifest import METHOD, ResultError

#: Neither a question in the terminal nor the user's settings, keys and hooks.
_ALONE = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def check_code_at_commit(folder: Path, repository: str, commit: str, *, seconds: float = 300.0) -> None:
    """Fetch a commit, and look for each file of the result's code in it; nothing of it is run.

    Args:
        folder: Of the result.
        repository: Address of a git repository.
        commit: Its hash, whole.
        seconds: The longest that fetching may take.

    Raises:
        ResultError: If nothing is named, the commit cannot be fetched, or it lacks one of the files as it is here.
    """
    if not repository or not commit:
        raise ResultError(
            f"{folder} names no repository and commit, so its code can be compared with nothing. They are given to "
            "`xaibench submit` as --repository and --commit."
        )
    there = _blobs(repository, commit, seconds)
    code = folder / METHOD
    files = sorted(path for path in code.rglob("*") if path.is_file())
    lacking = [
        path.relative_to(code).as_posix() for path in files if (path.name, _blob(path.read_bytes())) not in there
    ]
    if lacking:
        raise ResultError(
            f"{listed(lacking, 3)} of {METHOD} is not as in commit {commit[:12]} of {repository}; submit what is there."
        )


def _blobs(repository: str, commit: str, seconds: float) -> set[tuple[str, str]]:
    """Name and git's hash of each file of a commit."""
    with tempfile.TemporaryDirectory(prefix="xaibench-commit-") as place:
        for step in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth=1", "--", repository, commit],
            ["ls-tree", "-r", "FETCH_HEAD"],
        ):
            try:
                command = ["git", "-C", place, *step]
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=seconds, check=True, env=os.environ | _ALONE
                )
            except subprocess.CalledProcessError as error:
                said = error.stderr.strip().splitlines()
                raise ResultError(
                    f"Commit {commit[:12]} of {repository} cannot be fetched: {said[-1] if said else error}. Name a "
                    "commit by its whole hash, of a repository that anybody can read."
                ) from error
            except (OSError, subprocess.TimeoutExpired) as error:
                raise ResultError(f"Commit {commit[:12]} of {repository} cannot be fetched: {error}.") from error
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    return {(Path(name).name, words.split()[2]) for words, _, name in lines}


def _blob(content: bytes) -> str:
    """As git names the content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
