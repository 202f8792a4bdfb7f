"""A results repository on the Hub is looked at, and made into a site, as one in a folder is."""

import re

import pytest
from generators.hub import Repo

from xaibench.data.annotated import MissingDataError
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import find_results
from xaibench.leaderboard.repository import open_repository


@pytest.fixture
def published(hub, submitted):
    """The address of a repository with one result."""
    folder = submitted.parent.parent
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    repo = hub.repos["ann/results"] = Repo(private=False)
    repo.branches["main"] = repo.commit(files)
    return "hf://ann/results"


def test_a_folder_is_itself_and_one_on_the_hub_a_copy(published, submitted, tmp_path):
    with open_repository(tmp_path) as place:
        assert place == tmp_path
    with open_repository(published) as place:
        (found,) = find_results(place)
        assert found.relative_to(place) == submitted.relative_to(submitted.parent.parent)
        assert check(found) == [], "its files are no links into a cache"
    assert not place.exists()
    with pytest.raises(MissingDataError, match="ann/none"), open_repository("hf://ann/none"):
        pass


def test_it_is_checked_and_made_into_a_site(published, typed, tmp_path):
    said = typed(["results", "check", published])
    assert said.exit_code == 0, said.output
    assert re.search(r"ok +hf://ann/results/gxi/tiny@\w{32}\n", said.output)
    said = typed(["leaderboard", published, "--out", "site"])
    assert said.exit_code == 0, said.output
    assert "1 method on 1 suite" in said.output
    assert (tmp_path / "site" / "methods" / "gxi.html").is_file()


def test_one_without_results_is_called_by_its_address(hub, typed):
    hub.repos["ann/empty"] = Repo(private=False)
    for command in (["results", "check"], ["leaderboard"]):
        said = typed([*command, "hf://ann/empty"])
        assert said.exit_code == 2
        assert "hf://ann/empty contains no results" in said.output


def test_a_verdict_is_not_written_to_a_copy(published, typed):
    said = typed(["results", "verify", published])
    assert said.exit_code == 2
    assert "hf download ann/results --repo-type dataset --local-dir results" in " ".join(said.output.split())
