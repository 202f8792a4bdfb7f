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
from xaibench.data.exchange.parquet import ParquetSet

# As on the Hub: also neither -- nor .. inside, nor .git at the end.
_NAME = r"\w(?:[\w.-]{0,94}\w)?"
_REPO = re.compile(rf"(?!.*(?:--|\.\.)){_NAME}/{_NAME}(?<!\.git)", re.ASCII)


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
            raise ValueError(
                f"{text[:200]!r}: expected hf://owner/name or hf://owner/name@revision; names have at most 96 letters, "
                "digits, _, - and ., and begin and end with a letter or a digit."
            )
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
        return download_snapshot(self._address, ["data/*.parquet"])

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
    except (OSError, ValueError) as error:  # errors of the Hub; a missing network without a complete cache
        raise MissingDataError(
            f"{address} cannot be loaded: {error} Check the name, the network and HF_HUB_OFFLINE; log in with "
            "`hf auth login`, or set HF_TOKEN, for private and gated repositories."
        ) from error
    return Path(folder)
