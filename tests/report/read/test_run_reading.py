import pandas as pd
import pytest

from xaibench.report import RunFolderError, write_report
from xaibench.report.read.run_reading import read_run


def test_a_folder_without_scores_is_named(tmp_path):
    with pytest.raises(RunFolderError, match=r"nowhere is not a folder; expected a folder that `xaibench run` wrote"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"has no scores\.parquet"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scores.parquet", "PAR1 and then nonsense"),
        ("parts.json", '{"title": '),
        ("environment.json", "[1, 2]"),
        ("accuracy.csv", 'scenario,background\n"never closed'),
        ("examples.safetensors", "nonsense"),
    ],
)
def test_a_damaged_file_is_named(small_run, name, content):
    (small_run / name).write_text(content)
    with pytest.raises(RunFolderError, match=rf"{name} cannot be read .*Run the suite again"):
        write_report(small_run)
    assert not (small_run / "report.html").exists()


def test_a_missing_column_is_named(small_run):
    scores = pd.read_parquet(small_run / "scores.parquet")
    scores.drop(columns=["correct", "reason"]).to_parquet(small_run / "scores.parquet")
    with pytest.raises(RunFolderError, match=r"lacks the columns reason, correct; it has dataset, scenario"):
        read_run(small_run)


def test_order_of_the_parts_is_that_of_the_description(small_run):
    run = read_run(small_run)
    assert list(run.explainers)[:3] == ["pfi", "integrated_gradients", "saliency"]
    assert list(run.models) == ["llr", "mlp", "cnn"]
    assert run.scores["explainer"].cat.categories.tolist() == list(run.explainers)


def test_examples_are_two_dimensional_arrays(small_run):
    examples = read_run(small_run).examples
    assert examples["lin/white/mask"].shape == (8, 8)
    assert "rigid/corr/cnn/lime/global" not in examples
