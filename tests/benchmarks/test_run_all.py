"""``benchmarks/run_all.py`` runs every script of its folder and writes what they print to one file."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "run_all.py"


@pytest.fixture
def run_all():
    if not PATH.exists():
        pytest.skip("the benchmarks are not part of an installation")
    spec = importlib.util.spec_from_file_location("run_all", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path):
    main = 'if __name__ == "__main__":\n'
    (tmp_path / "good.py").write_text(f'import sys\n{main}    print("took 1.5 s", sys.argv[1:])  # has "--quick"\n')
    (tmp_path / "bad.py").write_text(f'{main}    print("1 of 2"); raise SystemExit(3)\n')
    (tmp_path / "helper.py").write_text("NUMBER = 1\n")
    return tmp_path


def run(module, monkeypatch, folder, *arguments):
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--out", str(folder / "out.json"), *arguments])
    code = module.main(folder)
    return code, json.loads((folder / "out.json").read_text())


def test_every_script_is_run_and_failures_are_reported(run_all, monkeypatch, folder):
    code, results = run(run_all, monkeypatch, folder)
    assert code == 1
    assert set(results) == {"version", "date", "quick", "machine", "benchmarks"}
    good, bad = results["benchmarks"]["good"], results["benchmarks"]["bad"]
    assert list(results["benchmarks"]) == ["bad", "good"]
    assert (good["exit_code"], bad["exit_code"]) == (0, 3)
    assert good["lines"] == [{"text": "took 1.5 s []", "numbers": [1.5]}]
    assert good["command"] == "python benchmarks/good.py"


def test_only_keeps_the_other_entries_and_quick_is_passed_on(run_all, monkeypatch, folder):
    run(run_all, monkeypatch, folder)
    code, results = run(run_all, monkeypatch, folder, "--only", "good", "--quick")
    assert code == 0
    assert results["benchmarks"]["bad"]["exit_code"] == 3
    assert results["benchmarks"]["good"]["lines"][0]["text"] == "took 1.5 s ['--quick']"


def test_a_time_limit_ends_a_script(run_all, monkeypatch, folder):
    (folder / "slow.py").write_text('import time\nif __name__ == "__main__":\n    time.sleep(60)\n')
    code, results = run(run_all, monkeypatch, folder, "--only", "slow", "--limit", "0.5")
    assert code == 1
    assert results["benchmarks"]["slow"]["error"] == "Exceeded the time limit of 0.5 s."


def test_the_tables_name_scripts_that_exist(run_all):
    scripts = {path.stem for path in PATH.parent.glob("*.py")}
    assert {*run_all.ARGUMENTS, *run_all.QUICK, *run_all.SKIPPED} <= scripts
    assert set(run_all.list_scripts()) == set(scripts - run_all.SKIPPED - {"metric_rounds", "run_all"})
