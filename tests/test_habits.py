"""What the files around the code say of it stays true: pins, versions, names."""

import importlib.machinery
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import xaibench

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Addresses of files of the repository: pages and pictures.
REPOSITORY_FILES = (
    f"{PROJECT['urls']['Source']}/blob/main/",
    f"{PROJECT['urls']['Source'].replace('github.com', 'raw.githubusercontent.com')}/main/",
)


def yaml_of(name):
    return pytest.importorskip("yaml").safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_pre_commit_pins_what_the_extra_dev_pins():
    pinned = dict(entry.split("==") for entry in PROJECT["optional-dependencies"]["dev"] if "==" in entry)
    assert {"ruff", "mypy", "typos"} <= set(pinned)
    for hook in yaml_of(".pre-commit-config.yaml")["repos"][0]["hooks"]:
        for entry in hook.get("additional_dependencies", []):
            name, version = entry.split("==")
            assert (name, version) == (name, pinned[name])


def test_ci_runs_on_the_pythons_that_are_promised():
    jobs = yaml_of(".github/workflows/ci.yml")["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert matrix["python"][0] == matrix["include"][0]["python"] == lowest
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    extras = set(PROJECT["optional-dependencies"])
    for job in jobs.values():
        for step in job["steps"]:
            for listed in re.findall(r'"\.\[(.*?)\]"', step.get("run", "")):
                assert set(listed.split(",")) <= extras


def test_the_tests_that_ci_names_are_there():
    """A file that was moved would end the job, or worse, be left out."""
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    named = re.findall(r"(?<=\s)tests/[\w/.]+", text)
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("name", ["ci", "docs", "release"])
def test_actions_are_pinned_and_rights_are_least(name):
    workflow = yaml_of(f".github/workflows/{name}.yml")
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert "id-token" not in job.get("permissions", {}) or job["environment"] in ("pypi", "github-pages")
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])


def test_the_text_of_a_release_is_the_section_of_its_version():
    loader = importlib.machinery.SourceFileLoader("release_notes", str(ROOT / ".ci/release-notes"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release_notes", loader))
    loader.exec_module(module)
    text = "# A\n\n## 0.3.0 (unreleased)\n\n- New\n\n## 0.2.0 (2026-12-01)\n\n- [A](docs/a.md#b)\n\n## 0.1.0\n- Old\n"
    notes = module.release_notes(text, "0.2.0", "https://host/name")
    assert notes == "- [A](https://host/name/blob/v0.2.0/docs/a.md#b)\n"
    for version in ("0.3.0", "0.1.0", "0.2"):
        with pytest.raises(ValueError, match=version):
            module.release_notes(text, version, "https://host/name")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("(unreleased)", "(2026-12-01)")
    assert "### Added" in module.release_notes(changelog, xaibench.__version__, "https://host/name")


def test_the_citation_has_the_version_and_the_license():
    citation = yaml_of("CITATION.cff")
    assert citation["version"] == xaibench.__version__
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"])
def test_what_the_pages_name_is_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:xaibench|tests|docs|examples|\.ci)/[\w./-]*\w)`", text)
    named += re.findall(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]+)?\)", text)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    if page == "README.md":  # PyPI shows it, where relative links are dead
        assert [link for link in links if not link.startswith("https://")] == []
    for prefix in REPOSITORY_FILES:
        named += [link.removeprefix(prefix).partition("#")[0] for link in links if link.startswith(prefix)]
    assert named or page == "SECURITY.md"
    for path in named:
        assert (ROOT / path).exists() or (ROOT / page).parent.joinpath(path).exists(), path
