"""The upload itself, which happens only when it is asked for."""

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

#: Files of an earlier upload, which a new one replaces even where its own have other names.
_OURS = re.compile(
    rf"data/(train|validation|test)-\d{{5}}-of-\d{{5}}\.parquet|({'|'.join(table.stem for table in TABLES)})\.parquet"
)

_LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write (huggingface.co/settings/tokens)."


class HubError(OSError):
    """The Hub did not take an upload; says why and what to do. The repository is as it was."""


@dataclass(frozen=True)
class Target:
    """Where an upload goes.

    Attributes:
        repo: ``"owner/name"``, a dataset repository; made if it is not there.
        private: Make a new one private.
        revision: Branch; made if it is not there. None = the main branch.
        create_pr: Open a pull request instead of changing the branch.

    Raises:
        ValueError: If that is no repository's name.
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
    """What is on the Hub before an upload.

    Attributes:
        endpoint: Address of the Hub.
        user: Who is logged in.
        exists: Whether the repository does.
        private: Whether it is private; of one that will be made, whether it will be.
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
    """Upload a set, with a card; ``xaibench.load("hf://owner/name")`` gives it back to the bit.

    Args:
        dataset: The set.
        repo: ``"owner/name"``.
        license: See :func:`~xaibench.hub.prepare_dataset`.
        private: Make a new repository private.
        revision: Branch; None = the main branch.
        create_pr: Open a pull request instead of changing the branch.

    Returns:
        Address of the page of what was uploaded.

    Raises:
        LicenseError: If the set may not be uploaded, or its license must be said first.
        HubError: If nobody is logged in, the repository may not be written, or the Hub cannot be reached.
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
    """Upload the results of a run, with a card; :func:`~xaibench.hub.load_results` reads them.

    Args:
        run: A folder that ``xaibench run`` wrote.
        repo: ``"owner/name"``.
        license: Of the results, as the Hub names it; None = not stated.
        private: Make a new repository private.
        revision: Branch; None = the main branch.
        create_pr: Open a pull request instead of changing the branch.

    Returns:
        Address of the page of what was uploaded.

    Raises:
        RunFolderError: If it is no run folder.
        HubError: If nobody is logged in, the repository may not be written, or the Hub cannot be reached.
    """
    target = Target(repo, private, revision, create_pr)
    return _push(target, "Upload results", lambda folder: prepare_run(run, folder, license=license, repo=repo))


def _push(target: Target, message: str, prepare: Callable[[str], Path]) -> str:
    remote = inspect_remote(target)
    with tempfile.TemporaryDirectory(prefix="xaibench-push-") as folder:
        return upload(prepare(folder), target, remote, message=message)


def inspect_remote(target: Target) -> Remote:
    """Who is logged in, and what the repository holds; changes nothing.

    Args:
        target: The repository to look at.

    Returns:
        Who is logged in, whether the repository is there and private, and which files would be replaced.

    Raises:
        HubError: If nobody is logged in, the token is not valid, the Hub cannot be reached, or the repository is public
            and was to be private.
    """
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(f"Nobody is logged in to the Hugging Face Hub. {_LOGIN}")
    api = _api()
    with _explaining(target, api):
        user = str(api.whoami()["name"])
        found: Any = _repo_info(api, target)
    if found is None:
        if target.create_pr:
            raise HubError(f"There is no dataset repository {target.repo} to open a pull request in; leave that out.")
        return Remote(api.endpoint, user, exists=False, private=target.private)
    if target.private and not found.private:
        raise HubError(
            f"{target.repo} is there already, and public: it was to be private. Choose another name, or make it "
            "private in its settings first."
        )
    files = [file.rfilename for file in found.siblings or ()]
    replaced = tuple(name for name in files if _OURS.fullmatch(name))
    return Remote(api.endpoint, user, exists=True, private=bool(found.private), replaced=replaced)


def upload(folder: Path, target: Target, remote: Remote, *, message: str) -> str:
    """Upload all files of a folder in one commit: all of them are there afterwards, or none.

    Files of an earlier upload that are not among them are removed (from the branch; its history keeps them).

    Args:
        folder: What :func:`~xaibench.hub.prepare_dataset` or :func:`~xaibench.hub.prepare_run` wrote.
        target: Where it goes.
        remote: What :func:`inspect_remote` found there.
        message: Title of the commit.

    Returns:
        Address of the page of what was uploaded.

    Raises:
        HubError: If a file holds the token, the repository may not be written, or the Hub cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    names = list_files(folder)
    _refuse_token([folder / name for name in names])
    is_set = any(name.startswith("data/") for name in names)
    if any(name.startswith("data/") != is_set for name in remote.replaced):
        there, new = ("results of a run", "a data set") if is_set else ("a data set", "results of a run")
        raise HubError(f"{target.repo} holds {there}; choose another repository for {new}.")
    operations: list[Any] = [CommitOperationAdd(name, str(folder / name)) for name in names]
    operations += [CommitOperationDelete(name) for name in remote.replaced if name not in names]
    api = _api()
    with _explaining(target, api):
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
    """The files below a folder, as a repository names them; hidden ones are none of ours."""
    found = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    return sorted(file.as_posix() for file in found if not any(part.startswith(".") for part in file.parts))


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(library_name="xaibench", library_version=__version__)


def _repo_info(api: HfApi, target: Target) -> Any:
    """What the Hub knows of the repository, at the branch or (if that is not there) its main one; None if it is not."""
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


def _refuse_token(files: Sequence[Path]) -> None:
    from huggingface_hub import get_token

    token = get_token()
    if not token:
        return
    for file in files:
        if not file.stat().st_size:
            continue
        with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(token.encode()) >= 0:
                raise HubError(
                    f"{file.name} holds your token for the Hub; nothing was uploaded. Remove it there first."
                )


@contextlib.contextmanager
def _explaining(target: Target, api: HfApi) -> Iterator[None]:
    """Errors of the Hub, said so that a user knows what to do."""
    try:
        yield
    except Exception as error:
        explained = _explained(error, target, api)
        if explained is None:
            raise
        raise explained from (error if _without_token(str(error)) == str(error) else None)


def _without_token(text: str) -> str:
    """What a server says, without the token that it may echo."""
    from huggingface_hub import get_token

    token = get_token()
    return text.replace(token, "(your token)") if token else text


def _root(error: BaseException) -> str:
    """What began it: the name of the first error of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _explained(error: Exception, target: Target, api: HfApi) -> HubError | None:
    """What a user can do about an error of the Hub; None if it is of another kind."""
    status = status_of(error)
    if status is None:
        if "OfflineModeIsEnabled" in error_class_names(error):
            return HubError("HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it.")
        if is_network_error(error):
            return HubError(
                f"{api.endpoint} cannot be reached ({_root(error)}). Check the network, and HF_ENDPOINT if it "
                "is set; then try again: nothing was changed."
            )
        return None
    if status == 401:
        return HubError(f"the Hub does not know your token, or it has expired. {_LOGIN}")
    if status == 403:
        return HubError(
            f"you may not write to {target.repo}. Choose a repository of your own, ask its owner to let you write, or "
            "use a token that may write (huggingface.co/settings/tokens)."
        )
    if status == 404:
        return HubError(
            f"There is no dataset repository {target.repo}, or you may not see it. Check the name, and that your token "
            "may write to it."
        )
    said = _without_token(str(getattr(error, "server_message", None) or "").strip())
    return HubError(
        f"the Hub answers with HTTP status {status}{': ' + said if said else ''}. "
        + ("Try again later." if status >= 500 or status == 429 else "Nothing was uploaded.")
    )
