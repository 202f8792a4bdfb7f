"""Compare the code in a result with the commit that the result names."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from xaibench.core.messages import listed
from xaibench.leaderboard.manifest import METHOD, ResultError

#: Disables prompts, and the user's settings, keys and hooks.
_GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def check_code_at_commit(folder: Path, repository: str, commit: str, *, seconds: float = 300.0) -> None:
    """Fetch a commit and check that it contains every code file of a result, without running any of it.

    Args:
        folder: Folder of the result.
        repository: Address of a git repository.
        commit: Full hash of the commit.
        seconds: Time limit for fetching, in seconds.

    Raises:
        ResultError: If repository or commit is empty, the commit cannot be fetched, or it lacks one of the files.
    """
    if not repository or not commit:
        raise ResultError(
            f"{folder} names no repository and commit to compare its code with. Give them to "
            "`xaibench submit` as --repository and --commit."
        )
    there = _list_blobs(repository, commit, seconds)
    code = folder / METHOD
    files = sorted(path for path in code.rglob("*") if path.is_file())
    lacking = [
        path.relative_to(code).as_posix() for path in files if (path.name, _blob_hash(path.read_bytes())) not in there
    ]
    if lacking:
        raise ResultError(
            f"{listed(lacking, 3)} of {METHOD} differs from commit {commit[:12]} of {repository}; submit the "
            "committed code."
        )


def _list_blobs(repository: str, commit: str, seconds: float) -> set[tuple[str, str]]:
    """Return file name and git hash of each file of a commit."""
    with tempfile.TemporaryDirectory(prefix="xaibench-commit-") as place:
        for step in (
            ["init", "--quiet"],
            ["fetch", "--quiet", "--depth=1", "--", repository, commit],
            ["ls-tree", "-r", "FETCH_HEAD"],
        ):
            try:
                command = ["git", "-C", place, *step]
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=seconds,
                    check=True,
                    env=os.environ | _GIT_ENVIRONMENT,
                )
            except subprocess.CalledProcessError as error:
                said = error.stderr.strip().splitlines()
                raise ResultError(
                    f"Commit {commit[:12]} of {repository} cannot be fetched: {said[-1] if said else error}. Give the "
                    "full hash of a commit in a public repository."
                ) from error
            except (OSError, subprocess.TimeoutExpired) as error:
                raise ResultError(f"Commit {commit[:12]} of {repository} cannot be fetched: {error}.") from error
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    return {(Path(name).name, words.split()[2]) for words, _, name in lines}


def _blob_hash(content: bytes) -> str:
    """Return git's hash of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
