"""The workflows of a results repository do what they say: their scripts are run, on pull requests of a small one."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

WORKFLOWS = Path(__file__).parents[2] / "examples" / "leaderboard" / ".github" / "workflows"
CHECK = yaml.safe_load((WORKFLOWS / "check.yml").read_text())["jobs"]["results"]["steps"]
SITE = yaml.safe_load((WORKFLOWS / "site.yml").read_text())["jobs"]


def script(steps, name):
    """A step as GitHub runs it: by bash, which stops at the first command that fails."""
    (text,) = [step["run"] for step in steps if step.get("name") == name]
    return ["bash", "-e", "-c", text]


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def write(folder, *files):
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(file)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "README.md", "results/rounds.json", "results/lime/tiny@1/scores.parquet")
    write(tmp_path, "results/suites/tiny@1/facts.json")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "base")
    return tmp_path


@pytest.fixture
def xaibench(tmp_path_factory, monkeypatch):
    """A command of that name, which writes down what it is asked, and refuses a folder with `bad` in its name."""
    folder = tmp_path_factory.mktemp("bin")
    said = folder / "said"
    (folder / "xaibench").write_text(f'#!/bin/sh\necho "$@" >> {said}\ncase "$*" in *bad*) exit 1;; esac\n')
    (folder / "xaibench").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RUNNER_TEMP", "/temporary")
    return lambda: said.read_text().splitlines() if said.exists() else []


def pull_request(repository, step):
    """What the step says of what was changed, and whether it passes."""
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "change")
    done = subprocess.run(
        script(CHECK, step), cwd=repository, env=os.environ | {"BASE": base}, capture_output=True, text=True
    )
    return done.returncode == 0, done.stdout


NEW = "List new results, and refuse other changes"


def test_results_of_one_method_are_found_and_checked(repository, xaibench):
    write(repository, "results/rise/tiny@1/scores.parquet", "results/rise/tiny@1/method/a.py", "results/rise/big@2/a")
    assert pull_request(repository, NEW)[0]
    assert (repository / "folders.txt").read_text() == "results/rise/big@2\nresults/rise/tiny@1\n"
    subprocess.run(script(CHECK, "Check and verify"), cwd=repository, check=True)
    assert xaibench() == [
        f"results {said}"
        for place in ("results/rise/big@2", "results/rise/tiny@1")
        for said in (f"check {place}", f"show {place}", f"verify {place} --install --work /temporary/again")
    ]


def test_a_result_that_is_refused_stops_it(repository, xaibench):
    write(repository, "results/bad/tiny@1/scores.parquet")
    assert pull_request(repository, NEW)[0]
    assert subprocess.run(script(CHECK, "Check and verify"), cwd=repository).returncode != 0
    assert xaibench() == ["results check results/bad/tiny@1"]  # nothing of it is run


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["results/rise/tiny@1/scores.parquet", "README.md"], "only change files below results/METHOD/SUITE@VERSION"),
        ([".github/workflows/check.yml"], "only change files below results/METHOD/SUITE@VERSION"),
        (["results/verdicts.json"], "only change files below results/METHOD/SUITE@VERSION"),
        (["results/verdicts.json.sig"], "only change files below results/METHOD/SUITE@VERSION"),
        (["results/suites/tiny@1/facts.json"], "The facts about a suite are the keeper's"),
        (["results/suites/tiny@1/samples.png"], "The facts about a suite are the keeper's"),
        (["results/rise/tiny@1/scores.parquet", "results/suites/tiny@1/a"], "The facts about a suite are the keeper's"),
        (["results/rise/tiny@1/scores.parquet", "results/rise2/tiny@1/scores.parquet"], "one method only"),
        (
            ["results/rise/tiny@1/scores.parquet", "results/rounds.json"],
            "only change files below results/METHOD/SUITE@VERSION",
        ),
        (["results/pip/__init__.py"], "only change files below results/METHOD/SUITE@VERSION"),
    ],
)
def test_a_pull_request_with_more_is_refused(repository, files, reason):
    for file in files:
        (repository / file).unlink(missing_ok=True)
        write(repository, file)
        (repository / file).write_text("changed")
    passed, said = pull_request(repository, NEW)
    assert not passed
    assert reason in said


def test_the_first_result_of_a_suite_brings_its_facts(repository):
    write(repository, "results/rise/big@2/scores.parquet", "results/suites/big@2/facts.json")
    write(repository, "results/suites/big@2/samples.png")
    assert pull_request(repository, NEW)[0]
    assert (repository / "folders.txt").read_text() == "results/rise/big@2\n"


@pytest.mark.parametrize("name", ["site.py", "facts.json/x", "x/facts.json", "facts-json", "facts.json\n"])
def test_facts_are_two_files(repository, name):
    write(repository, "results/rise/big@2/scores.parquet", f"results/suites/big@2/{name}")
    passed, said = pull_request(repository, NEW)
    assert not passed
    assert "Facts about a suite are facts.json and samples.png, and the pull request adds" in said


def test_facts_do_not_come_alone(repository):
    write(repository, "results/rise/tiny@1/scores.parquet", "results/suites/big@2/facts.json")
    passed, said = pull_request(repository, NEW)
    assert not passed
    assert "Facts about 'big@2' come with a result of that suite only." in said


def test_nobody_takes_the_result_of_another_away(repository):
    (repository / "results/lime/tiny@1/scores.parquet").unlink()
    write(repository, "results/rise/tiny@1/scores.parquet")
    passed, said = pull_request(repository, NEW)
    assert not passed
    assert "one method only" in said


def test_files_of_others_cannot_be_moved_away(repository):
    """Git lists a file that was moved under its new name only, unless it is told not to look for renames."""
    mine = repository / "results/mine/tiny@1/method"
    mine.mkdir(parents=True)
    for name in ("README.md", "results/rounds.json", "results/lime/tiny@1/scores.parquet"):
        (repository / name).rename(mine / name.replace("/", "-"))
        passed, said = pull_request(repository, NEW)
        assert not passed, said


def test_a_name_with_a_line_break_hides_nothing(repository):
    write(repository, "results/mine/tiny@1/scores.parquet", "README.md\nresults/mine/tiny@1/x")
    passed, said = pull_request(repository, NEW)
    assert not passed
    assert "changes $'README.md\\nresults/mine/tiny@1/x'" in said
    assert len(said.splitlines()) == 1


def test_what_nobody_has_verified_is_verified_and_kept(repository, xaibench):
    write(repository, "results/rise/tiny@1/scores.parquet", "results/verdicts.json")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "merged")
    steps = SITE["verify"]["steps"]
    subprocess.run(script(steps, "Verify new results"), cwd=repository, check=True)
    # The command that stands in for ours writes no verdicts; these are those that it would have written.
    (repository / "results/verdicts.json").write_text("with another record")
    write(repository, "results/suites/big@2/facts.json")
    subprocess.run(script(steps, "Collect the verdicts"), cwd=repository, check=True)
    assert xaibench() == ["results verify results --new --install --work /temporary/again"]
    kept = [
        path.relative_to(repository / "verdicts") for path in (repository / "verdicts").rglob("*.*") if path.is_file()
    ]
    assert sorted(map(str, kept)) == ["results/suites/big@2/facts.json", "results/verdicts.json"]


def test_the_key_of_the_keeper_is_where_no_code_of_others_runs():
    keyed = [name for name, job in SITE.items() if "KEEPER_KEY" in yaml.safe_dump(job)]
    assert keyed == ["site"]
    assert not [step for step in SITE["site"]["steps"] if "verify" in step.get("run", "")]


def test_what_runs_code_of_others_may_not_write():
    checks = yaml.safe_load((WORKFLOWS / "check.yml").read_text())
    assert checks["permissions"] == SITE["verify"]["permissions"] == {"contents": "read"}
    for steps in (CHECK, SITE["verify"]["steps"]):
        (checkout,) = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
        assert checkout["with"]["persist-credentials"] is False
        assert "secrets." not in yaml.safe_dump(steps)
    on = checks.get("on", checks.get(True))  # YAML 1.1 reads `on` as true
    # Of the base branch; it uses no secret, no cache and no action of the pull request.
    assert list(on) == ["pull_request_target"]
    assert [step for step in CHECK if "cache" in step.get("uses", "") or step.get("uses", "").startswith(".")] == []


@pytest.mark.parametrize("name", ["check", "site"])
def test_actions_are_pinned_by_hash(name):
    text = (WORKFLOWS / f"{name}.yml").read_text()
    assert re.findall(r"uses: (?!\S+@[0-9a-f]{40} # v)", text) == []
    assert text.count("uses: ") >= 2


def test_what_was_verified_in_time_is_kept_where_there_is_too_much():
    steps = SITE["verify"]["steps"]
    (verify,) = [step for step in steps if step.get("id") == "verify"]
    assert verify["continue-on-error"]
    assert verify["timeout-minutes"] < SITE["verify"]["timeout-minutes"]
    assert steps[steps.index(verify) + 1]["name"] == "Collect the verdicts"
