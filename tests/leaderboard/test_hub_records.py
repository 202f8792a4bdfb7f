"""Results as evaluation records of the Hub, read by the Hub's own library."""

import huggingface_hub
import pandas as pd
import pytest
import yaml
from leaderboard.keepers import give_verdict, make_key, trust
from leaderboard.site.repositories import METHODS, VERSION, write_repository

from xaibench.leaderboard.hub_records import export_hub_records
from xaibench.leaderboard.manifest import ResultError

parse_eval_result_entries = getattr(huggingface_hub, "parse_eval_result_entries", None)
pytestmark = pytest.mark.skipif(not parse_eval_result_entries, reason="this huggingface_hub has no such records yet")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = write_repository(tmp_path_factory.mktemp("records") / "results", methods=METHODS, pictures=False)
    write_repository(folder, methods=METHODS[:2], round_name="spring", seed=1, pictures=False)
    key = make_key(tmp_path_factory.mktemp("keys"))
    trust(folder, key)
    give_verdict(folder / "lime" / f"tiny@{VERSION}", key, received="2026-03-04")
    return folder


def test_each_method_has_a_record_per_suite_and_metric(repository, tmp_path):
    files, left_out = export_hub_records(repository, tmp_path, "ann/results")
    assert left_out == []
    names = {file.relative_to(tmp_path).as_posix() for file in files}
    assert f"lime/.eval_results/tiny@{VERSION}.yaml" in names
    assert f"lime/.eval_results/tiny@{VERSION}+spring.yaml" in names
    benchmark = yaml.safe_load((tmp_path / "eval.yaml").read_text())
    tasks = {task["id"]: task for task in benchmark["tasks"]}
    assert set(tasks) == {f"tiny.{VERSION[:8]}{end}" for end in (
        ".emd_perf", ".topk_precision", ".spring.emd_perf", ".spring.topk_precision"
    )}  # fmt: skip
    assert benchmark["evaluation_framework"] == "xaibench"
    for file in files[1:]:
        for entry in parse_eval_result_entries(yaml.safe_load(file.read_text())):
            assert entry.task_id in tasks
            assert entry.dataset_id == "ann/results"


def test_the_value_is_the_mean_over_cells_and_the_notes_say_how_sure_it_is(repository, tmp_path):
    export_hub_records(repository, tmp_path, "ann/results")
    content = yaml.safe_load((tmp_path / "lime" / ".eval_results" / f"tiny@{VERSION}.yaml").read_text())
    (entry,) = [one for one in parse_eval_result_entries(content) if one.task_id.endswith("emd_perf")]
    scores = pd.read_parquet(repository / "lime" / f"tiny@{VERSION}" / "scores.parquet")
    scores = scores[scores["correct"] & (scores["metric"] == "emd_perf")]
    cells = scores.groupby(["subset", "variant", "model"], observed=True)["value"].mean()
    assert entry.value == pytest.approx(cells.mean(), abs=1e-6)
    assert entry.date == "2026-03-04", "the day on which the keeper received it"
    assert entry.source_url == f"https://huggingface.co/datasets/ann/results/tree/main/lime/tiny@{VERSION}"
    assert (
        f"higher is better; mean of {scores['value'].notna().sum()} scores in 4 of 4 cells; 95 % interval 0."
        in entry.notes
    )
    assert entry.notes.endswith("verified: bit-equal")
    control = yaml.safe_load((tmp_path / "sobel" / ".eval_results" / f"tiny@{VERSION}.yaml").read_text())
    assert control[0]["notes"].endswith("not verified; control")


def test_the_command_exports_and_refuses_other_names(typed, repository):
    said = typed(["results", "export", str(repository), "--dataset", "ann/results", "--format", "hf"])
    assert (said.exit_code, said.output) == (0, "records: 9 records and eval.yaml\n")
    said = typed(["results", "export", str(repository), "--dataset", "ann"])
    assert said.exit_code == 2
    assert "expected OWNER/NAME" in said.output
    with pytest.raises(ResultError, match="contains no results"):
        export_hub_records(repository / "lime" / "nowhere", "out", "ann/results")
