"""Data sets on the Hugging Face Hub: ``load("hf://owner/name")``.

Downloads are cached by ``huggingface_hub`` (``$HF_HOME``, or ``~/.cache/huggingface``). Private repositories are read
with its token: that of ``hf auth login``, or ``$HF_TOKEN``. xaibench does not access the token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from xaibench._version import __version__
from xaibench.data.disk.file_readers import MissingDataError
from xaibench.data.exchange.parquet_format import list_set_files
from xaibench.data.exchange.parquet_reading import ParquetSet

_REPO = re.compile(r"[\w.-]+/[\w.-]+")

#: HTTP packages that versions of ``huggingface_hub`` have used; their errors are network errors.
_TRANSPORT = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3"}


@dataclass(frozen=True)
class HubAddress:
    """A dataset repository of the Hub at a revision.

    Attributes:
        repo: ``"owner/name"``.
        revision: A branch, tag or commit; None = the main branch.
    """

    repo: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """Parse ``"hf://owner/name"`` or ``"hf://owner/name@revision"``; ``datasets/`` before the owner is allowed.

        Raises:
            ValueError: If the address has another form.

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
    """A data set on the Hub: ``HubSet("ann/tetrominoes")``, by name ``"hf://ann/tetrominoes"``.

    The data set was uploaded with ``xaibench push``; it is downloaded on first use. A suite should name a revision
    (``"hf://ann/tetrominoes@v1"``), because its results are stored under the name and a branch may change.

    Args:
        address: ``owner/name`` or ``owner/name@revision``.

    Raises:
        ValueError: If the address has another form.
    """

    def __init__(self, address: str) -> None:
        self._address = HubAddress.parse(address)

    @cached_property
    def folder(self) -> Path:
        """Folder of the downloaded files.

        Raises:
            MissingDataError: If the data set cannot be downloaded; the message says why.
        """
        folder = download_snapshot(self._address, ["data/*.parquet"])
        if not list_set_files(folder):
            raise MissingDataError(
                f"{self._address} is not a data set of xaibench: expected files such as "
                "data/train-00000-of-00001.parquet. Read results of a run with xaibench.hub.load_results, and other "
                "data with the library datasets."
            )
        return folder

    def __repr__(self) -> str:
        return str(self._address)


def download_snapshot(address: HubAddress, patterns: Sequence[str]) -> Path:
    """Download the files of a repository that match the patterns, unless they are cached, and return their folder.

    Raises:
        MissingDataError: If the repository or revision does not exist (or is not accessible to you), or the network is
            down and the files are not cached.
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
        if (reason := _explain_error(error, address)) is None:
            raise
        raise MissingDataError(f"{address} cannot be loaded: {reason}") from error
    return Path(folder)


def error_class_names(error: BaseException) -> set[str]:
    """Return the names of the classes of an error, since ``huggingface_hub`` has moved its classes between modules."""
    return {base.__name__ for base in type(error).__mro__}


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of an error or of its causes; None without a response."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status is not None:
            return int(status)
        error = error.__cause__
    return None


def is_network_error(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes means that the Hub could not be reached."""
    while error is not None:
        modules = {base.__module__.partition(".")[0] for base in type(error).__mro__}
        if isinstance(error, ConnectionError | TimeoutError) or (modules & _TRANSPORT and status_of(error) is None):
            return True
        error = error.__cause__
    return False


def _explain_error(error: Exception, address: HubAddress) -> str | None:
    """Return the cause and the remedy of a download error; None for other errors."""
    found = error_class_names(error)
    if "GatedRepoError" in found:
        return f"its users have to accept conditions. Accept them on the page of {address.repo}, then log in."
    if "RepositoryNotFoundError" in found:
        return (
            f"there is no dataset repository {address.repo}, or it is private. Check the name; for a private one log "
            "in with `hf auth login`, or set HF_TOKEN to a token that may read it."
        )
    if "RevisionNotFoundError" in found:
        return f"it has no branch, tag or commit {address.revision!r}. Check the name after the @."
    if (status := status_of(error)) is not None:
        return f"the Hub returned HTTP status {status}. Try again later; log in again if it is 401 or 403."
    if "LocalEntryNotFoundError" in found or is_network_error(error):
        return (
            "the Hub cannot be reached, and the data set is not completely cached. Connect to the network, unset "
            "HF_HUB_OFFLINE, or load it on a machine with a network and copy HF_HOME."
        )
    return None
