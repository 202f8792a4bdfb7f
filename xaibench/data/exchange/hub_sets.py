"""Sets on the Hugging Face Hub: ``load("hf://owner/name")``.

What is downloaded lies in the cache of ``huggingface_hub`` (``$HF_HOME``, or ``~/.cache/huggingface``) and is not
downloaded again. Private repositories are read with the token of ``huggingface_hub``: that of ``hf auth login``, or
``$HF_TOKEN``. Nothing here sees it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from xaibench._version import __version__
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.exchange.parquet_format import set_files
from xaibench.data.exchange.parquet_reading import ParquetSet

_REPO = re.compile(r"[\w.-]+/[\w.-]+")

#: The packages that ``huggingface_hub`` has talked over, by version; their errors are those of the network.
_TRANSPORT = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3"}


@dataclass(frozen=True)
class HubAddress:
    """A dataset repository of the Hub, at a revision.

    Attributes:
        repo: ``"owner/name"``.
        revision: A branch, tag or commit; None = the main branch.
    """

    repo: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """``"hf://owner/name"``, ``"hf://owner/name@revision"``; ``datasets/`` may stand before the owner.

        Raises:
            ValueError: If it is nothing of the kind.

        Example:
            >>> HubAddress.parse("hf://ann/tetrominoes@v1")
            HubAddress(repo='ann/tetrominoes', revision='v1')
        """
        bare = text.removeprefix("hf:").removeprefix("//").removeprefix("datasets/")
        repo, _, revision = bare.partition("@")
        if not _REPO.fullmatch(repo) or ("@" in bare and not revision):
            raise ValueError(f"{text!r}: expected hf://owner/name or hf://owner/name@revision.")
        return cls(repo, revision or None)

    def __str__(self) -> str:
        return f"hf://{self.repo}" + (f"@{self.revision}" if self.revision else "")


class HubSet(ParquetSet):
    """A set on the Hub: ``HubSet("ann/tetrominoes")``, by name ``"hf://ann/tetrominoes"``.

    It is one that ``xaibench push`` uploaded, and is downloaded when it is first needed. A suite should name a revision
    (``"hf://ann/tetrominoes@v1"``): its results are kept under the name, and a branch may move.

    Args:
        address: ``owner/name`` or ``owner/name@revision``.

    Raises:
        ValueError: For another address.
    """

    def __init__(self, address: str) -> None:
        self._address = HubAddress.parse(address)

    @cached_property
    def folder(self) -> Path:
        """Where its files lie, after the download.

        Raises:
            MissingDataError: If it cannot be had; says why.
        """
        folder = download(self._address, ["data/*.parquet"])
        if not set_files(folder):
            raise MissingDataError(
                f"{self._address} holds no data set of xaibench: expected data/train-00000-of-00001.parquet and its "
                "like. Results of a run are read with xaibench.hub.load_results; other data with the library datasets."
            )
        return folder

    def __repr__(self) -> str:
        return str(self._address)


def download(address: HubAddress, patterns: Sequence[str]) -> Path:
    """The folder in which the files of a repository lie that match the patterns, downloaded if they are not there.

    Raises:
        MissingDataError: If there is no such repository or revision (or none that you may read), or the network is down
            and they were not downloaded before.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            address.repo,
            repo_type="dataset",
            revision=address.revision,
            allow_patterns=list(patterns),
            library_name="xaibench",
            library_version=__version__,
        )
    except Exception as error:
        if (reason := _reason(error, address)) is None:
            raise
        raise MissingDataError(f"{address} cannot be loaded: {reason}") from error
    return Path(folder)


def kinds(error: BaseException) -> set[str]:
    """The names of an error's classes: ``huggingface_hub`` has moved its own from module to module."""
    return {base.__name__ for base in type(error).__mro__}


def status_of(error: BaseException | None) -> int | None:
    """The HTTP status that an error, or what it came from, tells of; None if the Hub gave no answer."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return int(status)
        error = error.__cause__
    return None


def is_network_error(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that the Hub could not be reached."""
    while error is not None:
        modules = {base.__module__.partition(".")[0] for base in type(error).__mro__}
        if isinstance(error, ConnectionError | TimeoutError) or (modules & _TRANSPORT and status_of(error) is None):
            return True
        error = error.__cause__
    return False


def _reason(error: Exception, address: HubAddress) -> str | None:
    """What a user can do about an error of a download; None if it is of another kind."""
    found = kinds(error)
    if "GatedRepoError" in found:
        return f"it asks its readers to accept conditions. Accept them on the page of {address.repo}, then log in."
    if "RepositoryNotFoundError" in found:
        return (
            f"there is no dataset repository {address.repo}, or it is private. Check the name; for a private one log "
            "in with `hf auth login`, or set HF_TOKEN to a token that may read it."
        )
    if "RevisionNotFoundError" in found:
        return f"it has no branch, tag or commit {address.revision!r}. Check the name after the @."
    if (status := status_of(error)) is not None:
        return f"the Hub answers with HTTP status {status}. Try again later; log in anew if it is 401 or 403."
    if "LocalEntryNotFoundError" in found or is_network_error(error):
        return (
            "the Hub cannot be reached, and it is not (or not wholly) in the cache. Connect to the network, unset "
            "HF_HUB_OFFLINE, or load it once where there is a network and copy HF_HOME."
        )
    return None
