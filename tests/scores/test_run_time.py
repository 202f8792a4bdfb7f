import json

import pandas as pd
import pytest
from report.conftest import FEW_CELLS, write_run

from xaibench.report import write_report
from xaibench.runfolder.schema import JOBS
from xaibench.scores.results import read_run
from xaibench.scores.run_time import costs


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", samples=4, cells=FEW_CELLS[:2])


def write(folder, *rows):
    """Rows of stage, key, model, explainer, metric, seconds, processor seconds, memory, failed."""
    table = pd.DataFrame(
        rows, columns=["stage", "key", "model", "explainer", "metric", "seconds", "cpu_seconds", "peak_mb", "failed"]
    )
    table = table.assign(dataset="set", data_seed=0, worker="host:1")
    table[list(JOBS.columns)].to_csv(folder / "jobs.csv", index=False)


ROWS = [
    ("data", "a", "", "", "", 1.0, 1.0, 100, 0),
    ("train", "b", "mlp", "", "", 6.0, 3.0, 300, 0),
    ("explain", "c", "mlp", "lime", "", 2.0, 2.5, 200, 0),
    ("explain", "d", "", "sobel", "", 0.5, 0.5, 200, 1),
    ("explain", "d", "", "sobel", "", 0.25, 0.25, 200, 0),
    ("score", "e", "mlp", "lime", "emd_perf", 0.25, 0.0, 900, 0),
]


def test_time_is_added_up_by_stage_method_model_and_metric(folder):
    write(folder, *ROWS)
    found = costs(read_run(folder))
    assert (found.total.jobs, found.total.seconds, found.total.peak_mb) == (6, 10.0, 900.0)
    assert found.total.waiting == pytest.approx(1 - 7.25 / 10)
    assert {stage: (one.jobs, one.seconds) for stage, one in found.stages.items()} == {
        "data": (1, 1.0),
        "train": (1, 6.0),
        "explain": (3, 2.75),
        "score": (1, 0.25),
    }
    assert [(one.label, one.seconds, one.control) for one in found.explainers] == [
        ("LIME", 2.25, False),
        ("Sobel", 0.75, True),
    ]
    assert found.explainers[0].parts == {"data": 0.0, "train": 0.0, "explain": 0.2, "score": 0.025}
    assert [(one.label, one.seconds) for one in found.models] == [("MLP", 8.25)]
    assert [(one.label, one.share) for one in found.metrics] == [("EMD_perf", 0.025)]
    assert (found.again, found.failed, found.workers) == (1, 1, 1)
    assert found.stages["train"].waiting == 0.5
    assert found.stages["explain"].waiting == 0.0  # several threads are no waiting
    assert [row["what"] for row in found.longest[:3]] == ["set · MLP", "set · MLP · LIME", "set"]
    assert found.longest[0]["stage"] == "Training"


@pytest.mark.usefixtures("no_figures")
def test_results_that_no_job_of_the_folder_computed_are_counted_as_reused(folder):
    write(folder, *ROWS)
    assert costs(read_run(folder)).reused == {}
    (folder / "environment.json").write_text(json.dumps({"jobs": {"data": 1, "train": 3, "explain": 2, "score": 9}}))
    found = costs(read_run(folder))
    assert found.reused == {"data": 0, "train": 2, "explain": 0, "score": 8}
    page = write_report(folder).read_text()
    assert "10 of 15 results were reused" in page
    assert "their time is not included" in page


def test_lines_that_a_crash_cut_short_are_left_out(folder):
    write(folder, *ROWS)
    text = (folder / "jobs.csv").read_text()
    (folder / "jobs.csv").write_text(text + "score,f,set,0,mlp,lime,emd_perf,0.5\n" + text.splitlines()[1] + ",0,0\n")
    assert costs(read_run(folder)).total.jobs == 6
    (folder / "jobs.csv").write_text(text.splitlines()[0] + "\n")
    assert costs(read_run(folder)) is None
