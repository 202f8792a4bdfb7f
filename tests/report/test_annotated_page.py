import json
import re

import pandas as pd
import pytest
from matplotlib.figure import Figure
from report.conftest import add_page, draw_svg_only
from report.pictures import change_samples
from report.reader import Reader, assert_is_sound, assert_loads_nothing

from xaibench.report import write_report
from xaibench.report.page import figure_files


@pytest.fixture(scope="module")
def annotated_page(annotated_run, tmp_path_factory):
    def change(patch):
        draw_svg_only(patch)
        patch.setattr(figure_files, "score_figure", lambda *_: Figure())  # on the page of shared_run

    return add_page(annotated_run, tmp_path_factory, "annotated_page", change)


def keep_metrics(folder, *metrics):
    """Fewer of them, for a page that is quick to write."""
    scores = pd.read_parquet(folder / "scores.parquet")
    scores[scores["metric"].isin(metrics)].to_parquet(folder / "scores.parquet")
    parts = json.loads((folder / "descriptions.json").read_text())
    parts["metrics"] = {name: parts["metrics"][name] for name in metrics}
    (folder / "descriptions.json").write_text(json.dumps(parts))


def test_the_page_of_annotated_sets_is_sound_and_loads_nothing(annotated_run, annotated_page):
    assert_loads_nothing(annotated_page)
    assert_is_sound(annotated_page)
    drawn = {path.name for path in (annotated_run / "figures").iterdir()}
    expected = {"agreement-rise.svg", "curves-pet-resnet18-insertion.svg", "ranks-iou.svg", "sheet-pet-resnet18.jpg"}
    assert expected <= drawn
    assert "sheet-pet-resnet18.svg" not in drawn


def test_the_page_of_annotated_sets_has_the_papers_tables_beside(annotated_page):
    words = Reader(annotated_page).words
    for text in (
        "Claims of the paper",
        "Classification in percent (Table 2)",
        "Cat and Dog · ResNet-18",
        "stretched to [0, 1], smallest to largest value, and cut above 0.5",
        "Agreement between metrics",
        "Insertion & Pointing game",
        "Insertion and deletion curves",
        "pet_0.jpg: dog",
        "Significant differences",
        "a cell is one data set and one model",
        "or of one group of samples such as a patient,",
    ):
        assert text in words, text
    assert "Background" not in words
    row = re.search(r'<th scope="row">RISE</th>\s*<td class="n first strong".*?</tr>', annotated_page, re.S).group()
    numbers = re.findall(r"<td class=\"n\">([−+\d.]+)</td>", row)
    assert numbers[::2] == ["0.543", "0.868", "0.667", "0.362", "0.923", "0.109"]  # the paper's row of the scenes


def test_names_of_annotated_runs_are_escaped(fresh_annotated_run):
    hostile = "<img src=x onerror=alert(1)>\"'{{ 7*7 }}"
    keep_metrics(fresh_annotated_run, "iou", "insertion", "deletion")
    labels = (hostile, *("plain",) * 2)
    names = {"pet": {"labels": labels}, "scene": {"subset": hostile, "dataset": hostile}}
    change_samples(fresh_annotated_run, lambda cell: names[cell.subset])
    for name in ("scores.parquet", "curves.parquet"):
        table = pd.read_parquet(fresh_annotated_run / name).replace({"scene": hostile, "deletion": hostile})
        table.to_parquet(fresh_annotated_run / name)
    parts = json.loads((fresh_annotated_run / "descriptions.json").read_text())
    for kind in ("explainers", "models", "metrics"):
        for entry in parts[kind].values():
            entry["label"] = hostile
    (fresh_annotated_run / "descriptions.json").write_text(json.dumps(parts))
    reader = Reader(write_report(fresh_annotated_run).read_text())
    assert not any("onerror" in attrs for _, attrs in reader.elements)
    assert {image["src"][:5] for image in reader.all("img")} == {"data:"}
    assert hostile in reader.words
