"""The page of robust rankings, from a run folder with robustness results."""

import importlib.util
import sys
from pathlib import Path

import pytest
from benchmark_scripts import load_benchmark

from xaibench.report.read.results import read_run
from xaibench.runfolder.robust_rankings import write_robust

rank_robustness = load_benchmark("robust_rankings").rank_robustness

GENERATE = Path(__file__).parents[2] / "docs" / "generate"


@pytest.fixture
def robust(monkeypatch):
    monkeypatch.syspath_prepend(str(GENERATE))
    spec = importlib.util.spec_from_file_location("robust", GENERATE / "robust.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ("papers", "page_sections"):
        sys.modules.pop(name, None)


def test_the_page_has_the_least_tau_of_each_parameter_and_who_is_first(robust, small_run):
    settings = {"emd_perf": {"power": 1}, "topk_precision": {"power": 2}}
    found = rank_robustness(read_run(small_run), "emd_perf", settings)
    write_robust(small_run, found)
    run = read_run(small_run)
    page = robust.section(run)
    tau = f"{found.tau[0, 1]:.2f}"
    assert f"| power | power=1 · power=2 | {'**' + tau + '**' if found.tau[0, 1] < 0.8 else tau} |" in page
    assert f"{found.low[1, 0]:.2f} to {found.high[1, 0]:.2f}" in page
    best = found.ranks[1].argsort(kind="stable")[0]
    assert f"| power=2 | {run.explainers[found.methods[best]].label} ({found.means[1].max():.3f})," in page
    assert "left out: guided_gradcam." in page


def test_what_is_not_made_anew_stays(robust, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(robust.renewed(page, "# Title\n\nOld words.\n", ["\n## A\n\none\n", "\n## B\n\ntwo\n"]))
    again = robust.renewed(page, "# Title\n\nNew words.\n", ["\n## C\n\nfour\n", "\n## A\n\nthree\n"])
    assert again == "# Title\n\nNew words.\n\n## A\n\nthree\n\n## B\n\ntwo\n\n## C\n\nfour\n"
    with pytest.raises(ValueError, match="the same heading: ## A, ## A"):
        robust.renewed(page, "# Title\n", ["## A\n", "## A\n\nagain\n"])
