import base64
import io
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report.conftest import FEW_CELLS, make_scores, write_run
from report.pictures import make_gallery
from safetensors.numpy import load_file, save_file

from xaibench.report import RunFolderError, write_report
from xaibench.report.page import page_writing as page
from xaibench.report.page import sample_browser as gallery
from xaibench.report.page.sample_browser import browser
from xaibench.report.read.run_reading import read_run

PLENTY = 10**7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("gallery") / "run", samples=20, cells=FEW_CELLS)


def opened(uri):
    kind, data = uri.split(";base64,")
    assert kind in ("data:image/png", "data:image/webp")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_small_pictures_are_kept_to_the_bit_and_the_maps_stand_side_by_side(folder):
    run = read_run(folder)
    found = browser(run, PLENTY)
    assert [cell["name"] for cell in found.cells] == [
        "lin/white/llr",
        "lin/white/mlp",
        "lin/corr/cnn",
        "rigid/corr/cnn",
    ]
    assert found.cells[3]["label"] == "RIGID · CORR · CNN"
    assert (found.shown, found.reduced) == (6, 0)
    arrays = load_file(folder / "gallery.safetensors")
    for number, cell in enumerate(found.cells):
        assert len(cell["images"]) == len(cell["masks"]) == len(cell["maps"]) == 6
        for i in range(6):
            assert np.array_equal(opened(cell["images"][i]), arrays[f"{number}/images"][i, ..., 0])
            assert np.array_equal(opened(cell["masks"][i]) > 0, arrays[f"{number}/masks"][i] > 0)
            tiles = np.split(opened(cell["maps"][i]), len(cell["explainers"]), axis=1)
            assert np.array_equal(tiles, arrays[f"{number}/maps"][i])


def test_scores_ranks_and_how_many_of_the_worst_are_here(folder):
    scores = pd.read_parquet(folder / "scores.parquet")
    run = read_run(folder)
    cell = browser(run, PLENTY).cells[2]
    counted = scores[(scores["background"] == "corr") & (scores["scenario"] == "lin") & scores["correct"]]
    assert cell["of"] == counted["sample"].nunique()
    some_undefined = False
    for k, metric in enumerate(run.metrics):
        for e, explainer in enumerate(cell["explainers"]):
            mine = counted[(counted["metric"] == metric) & (counted["explainer"] == explainer)]
            mine = mine.set_index("sample")["value"]
            assert cell["valid"][k][e] == mine.notna().sum()
            here, ranks = mine[cell["samples"]], cell["ranks"][k][e]
            for value, score, rank in zip(here, cell["scores"][k][e], ranks, strict=True):
                some_undefined |= np.isnan(value)
                assert (score, rank) == (None, None) if np.isnan(value) else score == pytest.approx(value, abs=1e-5)
                assert np.isnan(value) or rank == (mine < value).sum() + 1
            hidden = mine.drop(cell["samples"])
            literal = sum(value <= hidden.min() for value in here) if hidden.notna().any() else here.notna().sum()
            assert cell["worst"][k][e] == literal
    assert some_undefined


def test_where_lower_is_better_the_highest_is_the_worst(folder, tmp_path):
    run_dir = write_run(tmp_path / "run", samples=20, cells=FEW_CELLS[:1])
    scores = pd.read_parquet(run_dir / "scores.parquet").assign(higher_is_better=False)
    scores.to_parquet(run_dir / "scores.parquet")
    (cell,) = browser(read_run(run_dir), PLENTY).cells
    mine = scores[scores["correct"] & (scores["metric"] == "emd_perf") & (scores["explainer"] == "lrp")]
    mine = mine.set_index("sample")["value"]
    ranks = cell["ranks"][0][cell["explainers"].index("lrp")]
    assert ranks == [(mine > mine[sample]).sum() + 1 for sample in cell["samples"]]


def test_what_has_no_room_is_left_out_sample_by_sample(folder):
    run = read_run(folder)
    sizes = [
        sum(len(text) for cell in browser(run, PLENTY).cells for text in cell[kind])
        for kind in ("images", "masks", "maps")
    ]
    whole = sum(sizes) + 6 * 400
    for room in (whole, whole - 1, whole // 2, whole // 6):
        found = browser(run, room)
        used = sum(len(text) for cell in found.cells for kind in ("images", "masks", "maps") for text in cell[kind])
        assert used <= room
        assert {len(cell["samples"]) for cell in found.cells} == {found.shown}
        assert found.shown == {whole: 6, whole - 1: 5}.get(room, found.shown)
    assert browser(run, 100).cells == []
    assert 1 <= browser(run, whole // 3).shown <= 2


def test_large_maps_are_reduced_only_where_too_few_would_fit(folder, tmp_path):
    run_dir = write_run(tmp_path / "run", samples=20, cells=FEW_CELLS[:1])
    arrays, about = make_gallery(make_scores(20, FEW_CELLS[:1]), count=14, side=64)
    arrays["0/images"][..., 1] //= 2  # a photograph
    save_file(arrays, run_dir / "gallery.safetensors", metadata=about)
    run = read_run(run_dir)
    (cell,) = browser(run, PLENTY).cells
    count = len(cell["explainers"])
    assert browser(run, PLENTY).reduced == 0
    assert opened(cell["maps"][0]).shape[:2] == (64, 64 * count)
    assert np.abs(opened(cell["images"][0]).mean((0, 1)) - arrays["0/images"][0].mean((0, 1))).max() < 8
    room = sum(len(text) for text in cell["maps"]) // 2
    small = browser(run, room)
    assert small.reduced == gallery.SMALL
    assert small.shown > 7
    assert opened(small.cells[0]["maps"][0]).shape[:2] == (32, 32 * count)


def test_samples_of_another_run_are_not_shown(folder, tmp_path):
    run_dir = write_run(tmp_path / "run", samples=20, cells=FEW_CELLS)
    scores = pd.read_parquet(run_dir / "scores.parquet")
    scores[scores["model"] != "mlp"].assign(seed=2).to_parquet(run_dir / "scores.parquet")
    assert browser(read_run(run_dir), PLENTY).cells == []


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_a_damaged_gallery_is_named(small_run, content):
    (small_run / "gallery.safetensors").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"gallery\.safetensors cannot be read .*Run the suite again"):
        write_report(small_run)


def test_a_gallery_that_does_not_say_what_it_holds_is_named(small_run):
    arrays = load_file(small_run / "gallery.safetensors")
    save_file(arrays, small_run / "gallery.safetensors", metadata={"cells": json.dumps([{"scenario": "lin"}])})
    with pytest.raises(RunFolderError, match=r"gallery\.safetensors cannot be read"):
        _ = read_run(small_run).gallery


def test_the_page_takes_as_many_samples_as_fit_and_says_how_many(small_run, monkeypatch):
    full = write_report(small_run).read_text()
    assert "6 of the samples of each cell are here" in full
    assert len(full.encode()) < page.MOST
    monkeypatch.setattr(page, "MOST", len(full.encode()) - 20_000)
    less = write_report(small_run).read_text()
    assert len(less.encode()) < len(full.encode()) - 15_000
    assert "6 of the samples of each cell are here" not in less
    (small_run / "gallery.safetensors").unlink()
    assert 'id="samples"' not in write_report(small_run).read_text()
