"""Upload prepared files to the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench._version import __version__
from xaibench.data.exchange.hub_sets import HubAddress, error_class_names, is_network_error, status_of
from xaibench.hub.card_text import strip_folders
from xaibench.hub.license import choose_license
from xaibench.hub.run_upload import prepare_run
from xaibench.hub.set_upload import prepare_dataset
from xaibench.runfolder.tables import TABLES

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from xaibench.data import Dataset

#: Names of uploaded files; those of an earlier upload are replaced or removed.
_GENERATED_FILES = re.compile(
    rf"data/(train|validation|test)-\d{{5}}-of-\d{{5}}\.parquet|({'|'.join(table.stem for table in TABLES)})\.parquet"
)

_LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token with write access (huggingface.co/settings/tokens)."


class HubError(OSError):
    """A failed upload. The message says why, and what to do. The repository is unchanged."""


@dataclass(frozen=True)
class Target:
    """Destination of an upload.

    Attributes:
        repo: ``"owner/name"``, a dataset repository; created if it does not exist.
        private: Make a new repository private.
        revision: Branch; created if it does not exist. None = the main branch.
        create_pr: Open a pull request instead of changing the branch.

    Raises:
        ValueError: If the name of the repository is malformed.
    """

    repo: str
    private: bool = False
    revision: str | None = None
    create_pr: bool = False

    def __post_init__(self) -> None:
        if HubAddress.parse(self.repo) != HubAddress(self.repo):
            raise ValueError(f"repo={self.repo!r}: expected owner/name; the branch is given as revision.")


@dataclass(frozen=True)
class Remote:
    """State of a repository before an upload.

    Attributes:
        endpoint: Address of the Hub.
        user: The user who is logged in.
        exists: Whether the repository exists.
        private: Whether the repository is, or will be, private.
        replaced: Files of an earlier upload in it.
    """

    endpoint: str
    user: str
    exists: bool
    private: bool
    replaced: tuple[str, ...] = ()


def push_dataset(
    dataset: Dataset,
    repo: str,
    *,
    license: str | None = None,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
) -> str:
    """Upload a data set with a card. ``xaibench.load("hf://owner/name")`` returns bit-identical data.

    Args:
        dataset: The data set.
        repo: ``"owner/name"``.
        license: See :func:`~xaibench.hub.prepare_dataset`.
        private: Make a new repository private.
        revision: Branch; None = the main branch.
        create_pr: Open a pull request instead of changing the branch.

    Returns:
        Address of the uploaded page.

    Raises:
        LicenseError: If the data set may not be uploaded, or requires a license.
        HubError: If no user is logged in, the repository is not writable, or the Hub cannot be reached.
    """
    choose_license(dataset.info, license)
    target = Target(repo, private, revision, create_pr)
    return _push(
        target,
        f"Upload {strip_folders(dataset.info.name)}",
        lambda folder: prepare_dataset(dataset, folder, license=license, repo=repo),
    )


def push_run(
    run: str | os.PathLike[str],
    repo: str,
    *,
    license: str | None = None,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
) -> str:
    """Upload the results of a run with a card; :func:`~xaibench.hub.load_results` reads them.

    Args:
        run: Folder written by ``xaibench run``.
        repo: ``"owner/name"``.
        license: License of the results, as an identifier of the Hub; None = not stated.
        private: Make a new repository private.
        revision: Branch; None = the main branch.
        create_pr: Open a pull request instead of changing the branch.

    Returns:
        Address of the uploaded page.

    Raises:
        RunFolderError: If ``run`` is not a run folder.
        HubError: If no user is logged in, the repository is not writable, or the Hub cannot be reached.
    """
    target = Target(repo, private, revision, create_pr)
    return _push(target, "Upload results", lambda folder: prepare_run(run, folder, license=license, repo=repo))


def _push(target: Target, message: str, prepare: Callable[[str], Path]) -> str:
    remote = inspect_remote(target)
    with tempfile.TemporaryDirectory(prefix="xaibench-push-") as folder:
        return upload(prepare(folder), target, remote, message=message)


def inspect_remote(target: Target) -> Remote:
    """Return the user and the state of the repository, without changing anything.

    Args:
        target: The repository.

    Returns:
        User, existence and visibility of the repository, and the files that would be replaced.

    Raises:
        HubError: If no user is logged in, the token is invalid, the Hub cannot be reached, or the repository is public
            but ``target`` asks for a private one.
    """
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(f"No user is logged in to the Hugging Face Hub. {_LOGIN}")
    api = _api()
    with _translate_errors(target, api):
        user = str(api.whoami()["name"])
        found: Any = _repo_info(api, target)
    if found is None:
        if target.create_pr:
            raise HubError(f"There is no dataset repository {target.repo} to open a pull request in; leave that out.")
        return Remote(api.endpoint, user, exists=False, private=target.private)
    if target.private and not found.private:
        raise HubError(
            f"{target.repo} exists and is public, but a private repository was requested. Choose another name, or "
            "make it "
            "private in its settings."
        )
    files = [file.rfilename for file in found.siblings or ()]
    replaced = tuple(name for name in files if _GENERATED_FILES.fullmatch(name))
    return Remote(api.endpoint, user, exists=True, private=bool(found.private), replaced=replaced)


def upload(folder: Path, target: Target, remote: Remote, *, message: str) -> str:
    """Upload all files of a folder in one commit.

    Files of an earlier upload that are not among them are removed from the branch; its history keeps them.

    Args:
        folder: Folder written by :func:`~xaibench.hub.prepare_dataset` or :func:`~xaibench.hub.prepare_run`.
        target: Destination.
        remote: State of the repository, from :func:`inspect_remote`.
        message: Title of the commit.

    Returns:
        Address of the uploaded page.

    Raises:
        HubError: If a file contains the token, the repository is not writable, or the Hub cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    names = list_files(folder)
    _check_no_token([folder / name for name in names])
    is_set = any(name.startswith("data/") for name in names)
    if any(name.startswith("data/") != is_set for name in remote.replaced):
        there, new = ("results of a run", "a data set") if is_set else ("a data set", "results of a run")
        raise HubError(f"{target.repo} contains {there}; choose another repository for {new}.")
    operations: list[Any] = [CommitOperationAdd(name, str(folder / name)) for name in names]
    operations += [CommitOperationDelete(name) for name in remote.replaced if name not in names]
    api = _api()
    with _translate_errors(target, api):
        if not remote.exists:
            api.create_repo(target.repo, repo_type="dataset", private=target.private, exist_ok=True)
        if target.revision not in (None, "main"):
            api.create_branch(target.repo, repo_type="dataset", branch=target.revision, exist_ok=True)
        done = api.create_commit(
            target.repo,
            operations,
            commit_message=message,
            commit_description=f"With xaibench {__version__}.",
            repo_type="dataset",
            revision=target.revision,
            create_pr=target.create_pr,
        )
    page = f"{remote.endpoint}/datasets/{target.repo}"
    if target.create_pr:
        return str(done.pr_url)
    return page if target.revision in (None, "main") else f"{page}/tree/{target.revision}"


def list_files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, except hidden ones."""
    found = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    return sorted(file.as_posix() for file in found if not any(part.startswith(".") for part in file.parts))


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(library_name="xaibench", library_version=__version__)


def _repo_info(api: HfApi, target: Target) -> Any:
    """Return information on the repository at the branch, or at its main branch; None if it does not exist."""
    for revision in (target.revision, None):
        try:
            return api.repo_info(target.repo, repo_type="dataset", revision=revision)
        except Exception as error:
            if "RevisionNotFoundError" in error_class_names(error):
                continue
            if "RepositoryNotFoundError" in error_class_names(error) and status_of(error) != 401:
                return None
            raise
    return None


def _check_no_token(files: Sequence[Path]) -> None:
    from huggingface_hub import get_token

    token = get_token()
    if not token:
        return
    for file in files:
        if not file.stat().st_size:
            continue
        with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(token.encode()) >= 0:
                raise HubError(f"{file.name} contains your Hub token; nothing was uploaded. Remove it from the file.")


@contextlib.contextmanager
def _translate_errors(target: Target, api: HfApi) -> Iterator[None]:
    """Turn errors of the Hub into :class:`HubError`."""
    try:
        yield
    except Exception as error:
        explained = _to_hub_error(error, target, api)
        if explained is None:
            raise
        raise explained from (error if _hide_token(str(error)) == str(error) else None)


def _hide_token(text: str) -> str:
    """Remove the token from a server's message."""
    from huggingface_hub import get_token

    token = get_token()
    return text.replace(token, "(your token)") if token else text


def _root_cause_name(error: BaseException) -> str:
    """Return the class name of the first error in a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _to_hub_error(error: Exception, target: Target, api: HfApi) -> HubError | None:
    """Return an error that says what to do; None for other kinds of errors."""
    status = status_of(error)
    if status is None:
        if "OfflineModeIsEnabled" in error_class_names(error):
            return HubError("HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it.")
        if is_network_error(error):
            return HubError(
                f"{api.endpoint} cannot be reached ({_root_cause_name(error)}). Check the network, and "
                "HF_ENDPOINT if it "
                "is set; then try again: nothing was changed."
            )
        return None
    if status == 401:
        return HubError(f"Your token is unknown to the Hub, or it has expired. {_LOGIN}")
    if status == 403:
        return HubError(
            f"You may not write to {target.repo}. Choose a repository of your own, ask its owner for write access, or "
            "use a token with write access (huggingface.co/settings/tokens)."
        )
    if status == 404:
        return HubError(
            f"There is no dataset repository {target.repo}, or you have no access to it. Check its name and the "
            "access of "
            "your token."
        )
    said = _hide_token(str(getattr(error, "server_message", None) or "").strip())
    return HubError(
        f"The Hub returned HTTP status {status}{': ' + said if said else ''}. "
        + ("Try again later." if status >= 500 or status == 429 else "Nothing was uploaded.")
    )
