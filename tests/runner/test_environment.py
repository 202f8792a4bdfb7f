"""The environment of a run: the commit of a checkout, of an installation from git, or none."""

import json
from pathlib import Path

import pytest
from refusals import refused
from small_suites import write_suite

import xaibench
from xaibench.runner import environment as run_environment
from xaibench.runner import run
from xaibench.runner.environment import environment


class _Installed:
    def __init__(self, noted: str | None) -> None:
        self.noted = noted

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.noted


@pytest.fixture
def outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_environment.xaibench, "__file__", str(tmp_path / "xaibench" / "__init__.py"))


@pytest.mark.parametrize(
    ("noted", "commit"),
    [
        (json.dumps({"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}), "abc"),
        (json.dumps({"url": "file:///somewhere", "dir_info": {}}), None),
        (None, None),
    ],
)
def test_an_installed_package_names_the_commit_that_pip_took(
    outside_a_checkout: None, monkeypatch: pytest.MonkeyPatch, noted: str | None, commit: str | None
) -> None:
    others = run_environment.metadata.distribution
    monkeypatch.setattr(
        run_environment.metadata,
        "distribution",
        lambda name: _Installed(noted) if name == "xaibench" else others(name),
    )

    assert environment()["commit"] == commit


def test_a_resumed_run_lists_every_version_that_computed_results(tmp_path, monkeypatch):
    suite = write_suite(tmp_path)

    def versions():
        run(suite, tmp_path / "run", engine="serial")
        content = json.loads((tmp_path / "run" / "environment.json").read_text())
        return content["xaibench"], [each["xaibench"] for each in content.get("earlier", [])]

    known = xaibench.__version__
    assert versions() == versions() == (known, [])
    monkeypatch.setattr(xaibench, "__version__", "9.9.9")
    with monkeypatch.context() as patch:  # stopped before its first job
        patch.setitem(run.__globals__, "_compute", lambda *arguments: 1 / 0)
        refused(ZeroDivisionError, "", lambda: run(suite, tmp_path / "run", engine="serial"))
    monkeypatch.setattr(xaibench, "__version__", "10.0")
    assert versions() == versions() == ("10.0", [known, "9.9.9"])
    (tmp_path / "run" / "environment.json").write_text("{")
    assert versions() == ("10.0", [])
