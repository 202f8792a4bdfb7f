"""Upload data sets and results of runs to the Hugging Face Hub.

Uploaded data sets are loaded with ``xaibench.load("hf://owner/name")``. Repositories are private unless ``public`` is
given. The token is that of ``huggingface_hub`` (``hf auth login`` or ``$HF_TOKEN``).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from xaibench._version import __version__
from xaibench.data import DATASETS, Dataset
from xaibench.data.exchange.hub_sets import HubAddress
from xaibench.data.exchange.parquet import write_parquet
from xaibench.registry.info import DatasetInfo
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, SUITE
from xaibench.runfolder.schema import FAILURES, JOBS, SAMPLES, TABLES
from xaibench.scores.results import read_run

__all__ = ["LicenseError", "push_dataset", "push_run"]

#: Tables with names of machines, files or patients, which are not uploaded.
_PRIVATE_TABLES = (SAMPLES, JOBS, FAILURES)


class LicenseError(ValueError):
    """A data set that may not be uploaded, or a license that is missing."""


def push_dataset(
    dataset: Dataset, repo: str, *, license: str | None = None, public: bool = False, revision: str | None = None
) -> str:
    """Upload a data set. ``xaibench.load("hf://owner/name")`` returns bit-identical data.

    Args:
        dataset: The data set.
        repo: ``"owner/name"``; created if it does not exist.
        license: See :func:`prepare_dataset`.
        public: Make a new repository public.
        revision: Branch, created if it does not exist; None = the main branch.

    Returns:
        Address of the uploaded page.

    Raises:
        LicenseError: If the data set may not be uploaded, or requires a license.
        ValueError: If the repository is malformed, or is public but ``public`` is False.
        OSError: If no user is logged in, the repository is not writable, or the Hub cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="xaibench-push-") as folder:
        return upload(prepare_dataset(dataset, folder, license=license), repo, public=public, revision=revision)


def push_run(
    run: str | os.PathLike[str],
    repo: str,
    *,
    license: str | None = None,
    public: bool = False,
    revision: str | None = None,
) -> str:
    """Upload the results of a run.

    Args:
        run: Folder written by ``xaibench run``; see :func:`prepare_run` for what is uploaded.
        repo: ``"owner/name"``; created if it does not exist.
        license: License of the results, as an identifier of the Hub; None = not stated.
        public: Make a new repository public.
        revision: Branch, created if it does not exist; None = the main branch.

    Returns:
        Address of the uploaded page.

    Raises:
        RunFolderError: If ``run`` is not a run folder, or one of its files is damaged.
        ValueError: If the repository is malformed, or is public but ``public`` is False.
        OSError: If no user is logged in, the repository is not writable, or the Hub cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="xaibench-push-") as folder:
        return upload(prepare_run(run, folder, license=license), repo, public=public, revision=revision)


def prepare_dataset(dataset: Dataset, folder: str | os.PathLike[str], *, license: str | None = None) -> Path:
    """Write the files of an upload: ``data/*.parquet``, and a short card ``README.md``.

    Args:
        dataset: The data set. Of a local folder in its name, only the last component is kept.
        folder: An empty folder.
        license: License as an identifier of the Hub (``"cc-by-4.0"``, ``"mit"``, ...). None = CC0 for data generated
            from numbers alone; other data sets require one.

    Returns:
        The folder.

    Raises:
        LicenseError: If the data set belongs to others (annotated sets), or requires a license.
        TypeError: If a parameter of the data set is not a plain value.
    """
    chosen = choose_license(dataset.info, license)
    name = re.sub(r"(?<=:).*[/\\](?=.)", "", dataset.info.name)
    info = dataclasses.replace(dataset.info, name=name)
    if not info.license.startswith("generated"):
        info = dataclasses.replace(info, license=chosen)
    write_parquet(dataclasses.replace(dataset, info=info), folder)
    made = "".join(f"- {key}: `{value!r}`\n" for key, value in dataset.parameters.items())
    _write_card(Path(folder), name, f"{made}\n{info.citation}", license=chosen)
    return Path(folder)


def prepare_run(run: str | os.PathLike[str], folder: str | os.PathLike[str], *, license: str | None = None) -> Path:
    """Copy the tables of a run with its suite, versions and part descriptions, and write a short card ``README.md``.

    Images, masks and maps are not copied, nor tables with names of samples and machines. Data sets are named as in the
    suite.

    Args:
        run: Folder written by ``xaibench run``.
        folder: An empty folder.
        license: License of the results, as an identifier of the Hub; None = not stated.

    Returns:
        The folder, which ``xaibench compare`` accepts as a run folder.

    Raises:
        RunFolderError: If ``run`` is not a run folder, or one of its files is damaged.
    """
    results = read_run(run)
    names = [table.name for table in TABLES if table not in _PRIVATE_TABLES]
    for name in (*names, PARTS, SUITE):
        if (Path(run) / name).exists():
            shutil.copy(Path(run) / name, folder)
    if results.environment:
        (Path(folder) / ENVIRONMENT).write_text(json.dumps(results.environment, indent=2), encoding="utf-8")
    _write_card(Path(folder), results.title, results.citation, license=license)
    return Path(folder)


def check_repository(repo: str) -> None:
    """Raise an error if the name of a repository is not ``owner/name``."""
    if HubAddress.parse(repo) != HubAddress(repo):
        raise ValueError(f"repo={repo!r}: expected owner/name; the branch is given as revision.")


def upload(folder: Path, repo: str, *, public: bool = False, revision: str | None = None) -> str:
    """Upload a folder of :func:`prepare_dataset` or :func:`prepare_run` in one commit; see :func:`push_dataset`."""
    from huggingface_hub import HfApi

    check_repository(repo)
    api = HfApi(library_name="xaibench", library_version=__version__)
    try:
        page = api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        if not public and not api.repo_info(repo, repo_type="dataset").private:
            raise ValueError(f"repo={repo!r}: it is public. Choose another name, or give public=True (--public).")
        if revision is not None:
            api.create_branch(repo, repo_type="dataset", branch=revision, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=folder,
            revision=revision,
            commit_message=f"Upload with xaibench {__version__}",
            delete_patterns=[table.name for table in TABLES],
        )
    except (OSError, ValueError):
        raise
    except Exception as error:  # of the HTTP package, which differs between versions of huggingface_hub
        raise ConnectionError(f"The upload to {repo} failed: {error}") from error
    return str(page) if revision is None else f"{page}/tree/{revision}"


def choose_license(info: DatasetInfo, license: str | None) -> str:
    """Return the license of an upload: the given one, or CC0 for data generated from numbers alone.

    Raises:
        LicenseError: If the data set may not be uploaded, or requires a license and none is given.
    """
    if info.license.startswith("generated"):
        return license or "cc0-1.0"
    if info.name.startswith("published:") or (DATASETS.canonical(info.name) in DATASETS and info.variant != "imagenet"):
        raise LicenseError(
            f"{info.name} cannot be uploaded: its files belong to their publishers, under this license: "
            f"{info.license}. Upload generated data sets or your own images (folder:DIR)."
        )
    if license is None:
        raise LicenseError(
            f"{info.name} contains images that xaibench did not generate; its license is: {info.license or '(none)'}. "
            "If you may redistribute them, state the license: --license cc-by-4.0 (in Python license='cc-by-4.0')."
        )
    return license


def _write_card(folder: Path, title: str, body: str, **header: Any) -> None:
    from huggingface_hub import DatasetCard, DatasetCardData

    head = DatasetCardData(pretty_name=title, tags=["xaibench", "explainable-ai", "saliency-maps"], **header)
    text = f"# {title}\n\n{body}\n\nUploaded with [xaibench](https://pypi.org/project/xaibench/) {__version__}."
    DatasetCard(f"---\n{head.to_yaml()}\n---\n\n{text}\n").save(folder / "README.md")
