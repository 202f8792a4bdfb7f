"""The workflows of a results repository: what runs code of others has no network, no secrets and no write access."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

WORKFLOWS = Path(__file__).parents[2] / "examples" / "leaderboard" / ".github" / "workflows"
FILES = {name: yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text()) for name in ("check", "verify", "site")}


def script(name, step):
    (job,) = FILES[name]["jobs"].values()
    (text,) = [each["run"] for each in job["steps"] if each.get("name") == step]
    return text


@pytest.mark.parametrize("name", ["check", "verify"])
def test_jobs_with_files_of_others_may_not_write(name):
    assert FILES[name]["permissions"] == {"contents": "read"}
    (job,) = FILES[name]["jobs"].values()
    assert "permissions" not in job
    (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
    assert checkout["with"]["persist-credentials"] is False
    text = (WORKFLOWS / f"{name}.yml").read_text()
    assert "secrets." not in text
    assert "pull_request_target" not in text


def test_methods_run_in_a_container_without_network():
    text = script("verify", "Verify")
    (call,) = re.findall(r"docker run (.*?)xaibench results verify", text, re.DOTALL)
    assert {"--network", "none", "--read-only", "--cap-drop", "ALL"} <= set(call.split())
    assert re.search(r"--volume \S+/results:\S+:ro", call)
    # The input of the workflow is never part of the script's text.
    assert "${{" not in "".join(step.get("run", "") for step in FILES["verify"]["jobs"]["verify"]["steps"])


@pytest.mark.parametrize(
    ("file", "accepted"),
    [
        ("results/rise/tiny@1/scores.parquet", True),
        ("results/rise/tiny@1/result.json", True),
        ("results/suites/tiny@1/facts.json", True),
        ("results/suites/tiny@1/samples.png", True),
        ("README.md", False),
        ("results/verified.csv", False),
        (".github/workflows/check.yml", False),
        ("results/rise/tiny@1/mine.py", False),
        ("results/suites/tiny@1/mine.py", False),
        ("README.md\nresults/rise/tiny@1/result.json", False),
    ],
)
def test_a_pull_request_brings_results_only(file, accepted, tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "--quiet", "--initial-branch=main")
    git("commit", "--quiet", "--allow-empty", "-m", "base")
    git("checkout", "--quiet", "-b", "change")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("x")
    git("add", ".")
    git("commit", "--quiet", "-m", "change")
    text = script("check", "Refuse other changes")
    done = subprocess.run(["bash", "-e", "-c", text], cwd=tmp_path, env={"BASE": "main", "PATH": "/usr/bin:/bin"})
    assert (done.returncode == 0) == accepted


@pytest.mark.parametrize("name", FILES)
def test_actions_are_pinned_by_hash(name):
    text = (WORKFLOWS / f"{name}.yml").read_text()
    assert re.findall(r"uses: (?!\S+@[0-9a-f]{40} # v)", text) == []
    assert "uses: " in text
