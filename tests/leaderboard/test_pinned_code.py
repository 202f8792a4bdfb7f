"""The code of a result is that of the commit it names, or it is said which file is not."""

import shutil
import subprocess

import pytest

from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.pinned_code import check_code_at_commit

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="there is no git")


@pytest.fixture
def repository(submitted, tmp_path):
    """Where the method is developed, and the commit of it that was handed in."""
    place = tmp_path / "repository"
    (place / "src").mkdir(parents=True)
    shutil.copyfile(submitted / "method" / "mine.py", place / "src" / "mine.py")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for step in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "A method"]):
        subprocess.run(["git", "-C", str(place), *step], check=True)
    said = subprocess.run(["git", "-C", str(place), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return str(place), said.stdout.strip()


def test_code_is_compared_with_the_commit(result, repository):
    check_code_at_commit(result, *repository)
    (result / "method" / "mine.py").write_text("def gxi(model, images, targets): ...\n")
    with pytest.raises(ResultError, match=r"mine\.py of method differs from commit"):
        check_code_at_commit(result, *repository)


def test_what_cannot_be_compared_is_said(result, repository):
    with pytest.raises(ResultError, match="names no repository and commit"):
        check_code_at_commit(result, "", "")
    with pytest.raises(ResultError, match=r"Commit 000000000000 of .* cannot be fetched"):
        check_code_at_commit(result, repository[0], "0" * 40)
