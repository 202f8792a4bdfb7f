"""A folder in place of the Hugging Face Hub."""

import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.utils import LocalEntryNotFoundError


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """``folder / OWNER / NAME / BRANCH`` are the repositories; ``private`` has the visibility of each."""
    folder, visible = tmp_path / "hub", {}

    class Api:
        def __init__(self, **options):
            pass

        def create_repo(self, repo, *, repo_type, private, exist_ok):
            assert (repo_type, exist_ok) == ("dataset", True)
            visible.setdefault(repo, private)
            return f"https://hub/{repo}"

        def repo_info(self, repo, *, repo_type):
            return SimpleNamespace(private=visible[repo])

        def create_branch(self, repo, **options):
            pass

        def upload_folder(self, *, repo_id, folder_path, revision, **options):
            shutil.copytree(folder_path, folder / repo_id / (revision or "main"), dirs_exist_ok=True)

    def download(repo, *, revision, **options):
        target = folder / repo / (revision or "main")
        if not target.exists():
            raise LocalEntryNotFoundError("it cannot be reached.")
        return str(target)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return SimpleNamespace(folder=folder, private=visible)
