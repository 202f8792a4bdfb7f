import json
import re
import xml.dom.minidom

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from report.conftest import draw_svg_only
from report.pictures import change_samples, make_samples
from report.reader import Reader, assert_is_sound, assert_loads_nothing

from xaibench.report import write_report
from xaibench.report.page import write
from xaibench.runfolder.sample_file import SAMPLES_FILE, to_safetensors
from xaibench.runfolder.schema import COMPARISONS, DESCRIBED, INFERRED
from xaibench.scores.results import read_run
from xaibench.scores.summary import accuracy_margins


@pytest.fixture(scope="module")
def page(shared_page):
    return shared_page


@pytest.fixture(scope="module")
def reader(page):
    return Reader(page)


def test_files_of_the_report(shared_run, page):
    figures = sorted(path.name for path in (shared_run / "figures").iterdir())
    names = [
        "box-emd_perf",
        "box-topk_precision",
        "forest",
        "maps-example",
        "maps-global",
        "ranks-emd_perf",
        "ranks-topk_precision",
    ]
    assert figures == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    for path in (shared_run / "figures").iterdir():
        start = path.read_bytes()[:5]
        assert start == (b"\x89PNG\r" if path.suffix == ".png" else b"<?xml")
    assert list(pd.read_csv(shared_run / "summary.csv").columns) == [*DESCRIBED, *INFERRED]
    assert list(pd.read_csv(shared_run / "comparisons.csv").columns) == list(COMPARISONS.columns)
    assert not list(shared_run.rglob("*.tmp"))


def test_the_page_loads_nothing(page):
    assert_loads_nothing(page)


def test_the_page_is_sound(page, reader):
    assert page.startswith("<!doctype html>")
    assert_is_sound(page)
    drawings = [attrs for attrs in reader.all("svg") if attrs.get("role") == "img"]
    assert len(drawings) == 5  # the forest plot, and of each metric boxes and significant differences
    for tag in ("h1", "main", "nav", "header", "footer"):
        assert len(reader.all(tag)) == 1


def test_the_page_has_the_sections_of_a_report_and_its_results_first(page, reader):
    heads = re.findall(r'<section aria-labelledby="(\w+)"[^>]*>\s*<h2 id="(\w+)">([^<]+)</h2>', page)
    assert all(label == name for label, name, _ in heads)
    assert [title for *_, title in heads] == [
        *("Results", "By condition", "Pairwise comparison", "Reproducibility", "Claims of the paper"),
        *("Examples", "Methods and settings", "Data and training", "Downloads"),
    ]
    links = [attrs["href"] for attrs in reader.all("a") if "download" not in attrs]
    assert links[1:10] == [f"#{name}" for _, name, _ in heads]
    # Verdicts, forest plot, maps of one sample and the leaderboard, in this order, before everything large.
    order = [page.index(text) for text in ('class="verdict"', 'class="forest', 'class="strip-of-maps', 'id="board"')]
    assert order == sorted(order)
    assert len(page[: page.index('id="conditions"')].encode()) < 200_000


def test_accuracy_below_and_above_the_paper_is_marked(small_run):
    accuracy = pd.read_csv(small_run / "accuracy.csv")
    accuracy = pd.concat([accuracy, accuracy.iloc[:2]], ignore_index=True)
    run = read_run(small_run)
    margin = accuracy[["subset", "variant", "model"]].apply(tuple, axis=1).map(accuracy_margins(run))
    accuracy["difference"] = margin * [-1.01, -0.99, -0.001, 0.99, 1.01, np.nan]
    accuracy.loc[5, "paper"] = np.nan
    accuracy.to_csv(small_run / "accuracy.csv", index=False)
    page = write_report(small_run).read_text()
    table = re.search(r'<table class="accuracy".*?</table>', page, re.S).group()
    marks = [re.findall(r"badge (bad|good)", row) for row in re.findall(r"<tr>.*?</tr>", table, re.S)]
    assert marks == [["bad"], [], [], [], ["good"], []]  # by one rule on both sides
    for difference, by_chance in zip(accuracy["difference"][:5], margin, strict=False):
        shown = f"{difference:.1f}".replace("-0.0", "0.0").replace("-", "−")
        assert f'{shown}<span class="faint"> ± {by_chance:.1f}' in table
    assert "−0.0" not in table
    accuracy.assign(paper=np.nan, difference=np.nan).to_csv(small_run / "accuracy.csv", index=False)
    page = write_report(small_run).read_text()
    section = re.search(r'<section aria-labelledby="data">.*?</section>', page, re.S).group()
    assert "the paper" not in Reader(section).words


def test_methods_that_do_not_beat_the_controls_are_marked(shared_run, page):
    summary = pd.read_csv(shared_run / "summary.csv")
    losing = int((summary["above_controls"] == False).sum())  # noqa: E712
    assert losing > 0
    assert page.count('aria-label="mean not better than the best control’s"') == losing


def test_names_from_the_run_are_escaped(drawn_run):
    hostile = "<script>alert('x')</script><b>&amp;\"{{ 7*7 }}"
    parts = json.loads((drawn_run / "descriptions.json").read_text())
    parts["title"] = parts["suite"] = parts["citation"] = hostile
    for kind in ("explainers", "models", "metrics"):
        for entry in parts[kind].values():
            entry["label"] = hostile
            entry["citation"] = entry["meaning"] = hostile
    (drawn_run / "descriptions.json").write_text(json.dumps(parts))
    noted = {"lin": "each is repeated 40 times", hostile: hostile}
    about = {"machine": {hostile: hostile}, "commit": hostile, "notes": noted}
    (drawn_run / "environment.json").write_text(json.dumps(about))
    (drawn_run / "suite.toml").write_text(hostile)
    pd.DataFrame([{"job": hostile, "stage": "train", "error": hostile}]).to_csv(drawn_run / "failures.csv", index=False)
    scores = pd.read_parquet(drawn_run / "scores.parquet")
    scores["reason"] = scores["reason"].where(scores["reason"] == "", hostile)
    scores["subset"] = scores["subset"].replace({"lin": hostile})
    scores.to_parquet(drawn_run / "scores.parquet")
    page = write_report(drawn_run).read_text()
    reader = Reader(page)
    # The page's own script, and what it works with; none of it is code of a user's.
    assert [attrs.get("type", "") for attrs in reader.all("script")] == ["application/json"] * 4 + [""]
    assert reader.all("b") == []
    assert "{{ 7*7 }}" in reader.words
    assert "lin: each is repeated 40 times" in reader.words
    assert "alert('x')" not in re.search(r"<script>(.*?)</script>", page, re.S).group(1)
    assert not re.search(r"<script(?! type=\"application/json\")[^>]+>", page)


def test_the_page_says_what_each_metric_means_as_the_run_folder_has_it(shared_run, page):
    told = [
        entry["meaning"] for entry in json.loads((shared_run / "descriptions.json").read_text())["metrics"].values()
    ]
    assert len(told) > 1
    assert all(f"<dd>{meaning}</dd>" in page for meaning in told)


def test_failures_are_listed_and_announced(small_run):
    rows = [{"job": f"job {i}", "stage": "explain", "error": "ValueError: no\nsecond line"} for i in range(2)]
    pd.DataFrame(rows).to_csv(small_run / "failures.csv", index=False)
    words = Reader(write_report(small_run).read_text()).words
    assert "2 jobs failed." in words
    assert "ValueError: no second line" in words


def test_a_folder_with_scores_alone_is_reported(small_run):
    for path in small_run.iterdir():
        if path.name != "scores.parquet":
            path.unlink()
    words = Reader(write_report(small_run).read_text()).words
    for text in (
        "No accuracies were recorded.",
        "No example maps were stored.",
        "No mean maps were stored.",
        "No job failed.",
        "No environment was recorded.",
        "integrated_gradients",
    ):
        assert text in words
    assert sorted(path.stem for path in (small_run / "figures").glob("*.svg"))[0] == "box-emd_perf"


@pytest.mark.parametrize("how", ["no rows", "none correct", "all undefined"])
def test_a_run_without_a_usable_score_is_reported_plainly(drawn_run, how):
    scores = pd.read_parquet(drawn_run / "scores.parquet")
    if how == "no rows":
        scores = scores.iloc[:0]
    elif how == "none correct":
        scores["correct"] = False
    else:
        scores["value"] = np.nan
    scores.to_parquet(drawn_run / "scores.parquet")
    (drawn_run / "samples.safetensors").unlink()
    words = Reader(write_report(drawn_run).read_text()).words
    assert "There is no score to rank" in words
    assert "11 min 30 s" in words
    assert len(pd.read_csv(drawn_run / "summary.csv")) == (0 if how == "no rows" else 132)


def test_maps_scored_as_chance_are_counted_below_the_leaderboard(small_run):
    scores = pd.read_parquet(small_run / "scores.parquet").astype({"reason": object})
    scores["value"], scores["reason"] = scores["value"].fillna(0.5), ""
    scores.to_parquet(small_run / "scores.parquet")
    words = Reader(write_report(small_run).read_text()).words
    assert "Maps scored as chance" not in words
    assert "Undefined scores, which enter no mean" not in words
    chance = (scores["explainer"] == "lime") & (scores["sample"] == 0)
    scores.loc[chance, "reason"] = "map is all zero: scored as chance"
    scores.to_parquet(small_run / "scores.parquet")
    report = write.make_report(small_run)
    own = scores[(scores["explainer"] == "lime") & scores["correct"]]
    maps = own.drop_duplicates(["dataset", "model", "data_seed", "seed", "sample"])
    sentence = (
        "Maps scored as chance, because they are constant or no pixel is above the threshold: "
        f"LIME {(maps['sample'] == 0).sum()} of {len(maps)}."
    )
    assert report.notes[-1] == sentence
    assert sentence in Reader(report.page.read_text()).words
    table = (small_run / "tables" / "undefined.csv").read_text()
    assert "map is all zero: scored as chance" in table


def test_missing_maps_leave_gaps(small_run):
    def without_lime(cell):
        if cell.cell == ("lin", "white", "llr"):
            return None
        kept = [number for number, name in enumerate(cell.explainers) if name != "lime"]
        explainers = tuple(cell.explainers[number] for number in kept)
        means = {} if cell.subset == "rigid" else {"means": cell.means[kept]}
        return {"explainers": explainers, "maps": cell.maps[:, kept], "means": cell.means[:0], "example": None} | means

    change_samples(small_run, without_lime)
    reader = Reader(write_report(small_run).read_text())
    alts = [image["alt"] for image in reader.all("img")]
    assert not any(alt.startswith(("LIME", "Image, LIN")) or "LLR" in alt or "RIGID" in alt for alt in alts)
    assert any(alt.startswith("LRP, LIN · CORR · CNN") for alt in alts)
    assert "No example maps were stored." in reader.words


def test_alternative_text_says_how_much_lies_in_the_ground_truth(small_run):
    def half_inside(cell):
        maps, mask = cell.maps.copy(), cell.masks[0].astype(float)
        ring = mask + (1 - mask) * mask.sum() / (1 - mask).sum()
        maps[0, cell.explainers.index("lrp")] = ring
        maps[0, cell.explainers.index("pfi")] = 0
        return {"maps": maps}

    change_samples(small_run, half_inside)
    alts = [image["alt"] for image in Reader(write_report(small_run).read_text()).all("img")]
    assert "LRP, LIN · WHITE · MLP: 50% of its magnitude inside the ground truth" in alts
    assert "PFI, LIN · WHITE · MLP: zero everywhere" in alts


def test_a_report_is_replaced_whole_and_repeats(small_run):  # so do its figures: test_figure_files
    first = write_report(small_run).read_bytes()
    assert write_report(small_run).read_bytes() == first


def test_a_report_that_fails_leaves_the_earlier_one(small_run, monkeypatch):
    first = write_report(small_run).read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    refused(OSError, "No space left", write_report, small_run)
    assert (small_run / "report.html").read_bytes() == first
    assert not list(small_run.rglob("*.tmp"))


@pytest.mark.usefixtures("no_figures")
def test_large_maps_keep_the_page_small(fresh_run):
    scores = pd.read_parquet(fresh_run / "scores.parquet")
    (fresh_run / SAMPLES_FILE).write_bytes(to_safetensors(make_samples(scores, count=2, side=64)))
    assert write_report(fresh_run).stat().st_size < 5_000_000


STRANGE = ("../../out", "</script><b>", 'nul\0"onload=1', "$\\frac{" + 300 * "x", "../:out")


@pytest.mark.parametrize("kind", ["metric", "model"])
def test_no_name_leaves_the_folder_of_figures_or_breaks_the_page(tmp_path, monkeypatch, kind):
    draw_svg_only(monkeypatch)
    usual = {"dataset": "d", "subset": "s", "variant": "-", "model": "m", "explainer": "e", "metric": "k"}
    rows = [
        usual | {"explainer": f"e{i % 2}", kind: name, "sample": i // 2, "value": i / 8}
        for name in STRANGE
        for i in range(4)
    ]
    usual = {"seed": 0, "data_seed": 0, "correct": True, "higher_is_better": True, "reason": ""}
    folder = tmp_path / "home" / "run"
    folder.mkdir(parents=True)
    scores = pd.DataFrame(rows).assign(**usual).drop_duplicates(["subset", "model", "explainer", "metric", "sample"])
    scores.to_parquet(folder / "scores.parquet")
    page = write_report(folder).read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["run"]
    assert {path.parent for path in folder.rglob("*.svg")} == {folder / "figures"}
    for path in (folder / "figures").glob("*.svg"):
        xml.dom.minidom.parse(str(path))
    if kind == "metric":
        assert len(list((folder / "figures").glob("box-*.svg"))) == len(STRANGE), "and none is written over another"
    elements = Reader(page).elements
    assert not [name for name, attrs in elements if name == "b" or any(one.startswith("on") for one in attrs)]
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert "\0" not in page
