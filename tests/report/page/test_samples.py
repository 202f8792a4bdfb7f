"""Sheets of maps follow the cells of a run; the sample browser has as many samples as fit, with all maps and scores."""

import base64
import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report.conftest import FEW_CELLS, make_scores, write_run
from report.pictures import change_samples, make_samples, make_volumes

from xaibench.core.pictures import name_slices
from xaibench.report import write_report
from xaibench.report.page import samples
from xaibench.report.page import write as page
from xaibench.report.page.samples import SMALL, browser, sheet_tables
from xaibench.runfolder.sample_file import SAMPLES_FILE, to_safetensors
from xaibench.scores.results import read_run


def test_sheets_of_generated_sets_follow_the_cells(shared_run):
    run = read_run(shared_run)
    example, mean = sheet_tables(run)
    assert [label for label, _ in example["rows"]][:4] == [
        *("LIN · WHITE · LLR", "LIN · WHITE · MLP", "LIN · WHITE · CNN", "LIN · CORR · LLR")
    ]
    tiles = dict(zip(example["sheet"].columns, example["rows"][0][1], strict=True))
    assert tiles["image"].alt == "Image, LIN · WHITE · LLR"
    assert [name for name, tile in tiles.items() if tile is None] == ["guided_gradcam"]
    assert all("RIGID" not in label for label, _ in mean["rows"])


def test_sheets_of_photographs_state_what_is_seen_and_stay_small(annotated_run, monkeypatch):
    run = read_run(annotated_run)
    (table, _) = sheet_tables(run)
    label, (image, cam, *_) = table["rows"][0]
    assert (label, image.alt) == ("pet_0.jpg: dog", "Image, pet_0.jpg: dog")
    assert cam.alt.startswith("CAM, pet_0.jpg: dog: ")
    assert cam.alt.endswith("% of its magnitude inside the ground truth")
    data = base64.b64decode(cam.uri.removeprefix("data:image/webp;base64,"))
    assert Image.open(io.BytesIO(data)).size == (96, 96)
    assert len(data) < 6000
    monkeypatch.setattr(samples, "MOST_TILES", 30)
    assert [(len(one["rows"]), one["left_out"]) for one in sheet_tables(run)] == [(1, 2), (1, 2)]


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
    for cell in found.cells:
        samples = run.pictures[cell["subset"], cell["variant"], cell["model"]]
        assert len(cell["images"]) == len(cell["masks"]) == len(cell["maps"]) == 6
        for i in range(6):
            assert np.array_equal(opened(cell["images"][i]), samples.images[i, ..., 0])
            assert np.array_equal(opened(cell["masks"][i]) > 0, samples.masks[i] > 0)
            tiles = np.split(opened(cell["maps"][i]), len(cell["explainers"]), axis=1)
            assert np.array_equal(tiles, np.rint(255 * samples.maps[i].astype(float)))


def test_scores_ranks_and_how_many_of_the_worst_are_here(folder):
    scores = pd.read_parquet(folder / "scores.parquet")
    run = read_run(folder)
    cell = browser(run, PLENTY).cells[2]
    counted = scores[(scores["variant"] == "corr") & (scores["subset"] == "lin") & scores["correct"]]
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
    (made,) = make_samples(make_scores(20, FEW_CELLS[:1]), count=14, side=64)
    made.images[..., 1] //= 2  # a photograph
    (run_dir / SAMPLES_FILE).write_bytes(to_safetensors([made]))
    run = read_run(run_dir)
    (cell,) = browser(run, PLENTY).cells
    count = len(cell["explainers"])
    assert browser(run, PLENTY).reduced == 0
    assert opened(cell["maps"][0]).shape[:2] == (64, 64 * count)
    assert np.abs(opened(cell["images"][0]).mean((0, 1)) - made.images[0].mean((0, 1))).max() < 8
    room = sum(len(text) for text in cell["maps"]) // 2
    small = browser(run, room)
    assert small.reduced == SMALL
    assert small.shown > 7
    assert opened(small.cells[0]["maps"][0]).shape[:2] == (32, 32 * count)


def test_samples_of_another_run_are_not_shown(folder, tmp_path):
    run_dir = write_run(tmp_path / "run", samples=20, cells=FEW_CELLS)
    scores = pd.read_parquet(run_dir / "scores.parquet")
    scores[scores["model"] != "mlp"].assign(seed=2).to_parquet(run_dir / "scores.parquet")
    assert browser(read_run(run_dir), PLENTY).cells == []


def test_large_pictures_are_reduced_for_the_page(tmp_path):
    run_dir = write_run(tmp_path / "run", samples=20, cells=FEW_CELLS[:1])
    (made,) = make_samples(make_scores(20, FEW_CELLS[:1]), count=2, side=150)
    (run_dir / SAMPLES_FILE).write_bytes(to_safetensors([made]))
    (cell,) = browser(read_run(run_dir), PLENTY).cells
    assert opened(cell["images"][0]).shape[:2] == opened(cell["masks"][0]).shape == (112, 112)
    assert opened(cell["maps"][0]).shape[:2] == (64, 64 * len(cell["explainers"]))


def test_what_is_only_for_the_figures_is_not_browsed(small_run):
    change_samples(small_run, lambda cell: {"browsed": 4, "samples": (*cell.samples[:4], 98, 99)})
    for cell in browser(read_run(small_run), PLENTY).cells:
        assert len(cell["samples"]) == len(cell["images"]) == 4
    change_samples(small_run, lambda cell: {"browsed": 0})
    assert browser(read_run(small_run), PLENTY).cells == []


def test_the_page_takes_as_many_samples_as_fit_and_says_how_many(small_run, monkeypatch):
    full = write_report(small_run).read_text()
    assert "6 samples per cell are shown" in full
    assert len(full.encode()) < page.MAX_PAGE_BYTES
    monkeypatch.setattr(page, "MAX_PAGE_BYTES", len(full.encode()) - 60_000)
    less = write_report(small_run).read_text()
    assert len(less.encode()) < len(full.encode()) - 15_000
    assert "6 samples per cell are shown" not in less
    (small_run / SAMPLES_FILE).unlink()
    assert 'id="samples-view"' not in write_report(small_run).read_text()


def test_volumes_are_there_with_all_their_slices_below_each_other(tmp_path, no_figures):
    run_dir = write_run(tmp_path / "run", samples=20, cells=FEW_CELLS[:1])
    change_samples(run_dir, make_volumes)
    run = read_run(run_dir)
    (cell,) = browser(run, PLENTY).cells
    (samples,) = run.pictures.values()
    voxels = samples.voxels
    assert cell["overlay"]
    assert cell["volume"]["shape"] == [8, 12, 16]
    assert cell["volume"]["sides"] == [4, 6, 8]
    assert cell["volume"]["slices"] == [[place // 2 for place in one] for one in voxels.slices]
    for i in range(6):
        assert np.array_equal(opened(cell["masks"][i]).reshape(4, 6, 8) > 0, voxels.masks[i] > 0)
        sprite = opened(cell["maps"][i])
        assert sprite.shape[:2] == (4 * 6, 8 * len(cell["explainers"]))
        assert (
            np.abs(opened(cell["images"][i]).reshape(24, 8, -1)[..., 0].astype(float).mean() - voxels.images[i].mean())
            < 9
        )
    view = write_report(run_dir).read_text()
    assert "A volume is shown as slice d, to its right column w, and below row h" in view
    assert "at most 22,500 voxels" in view
    first = ", ".join(name_slices(voxels.slices[samples.example]))
    assert f"{samples.labels[samples.example]}, {first} of" in view
    assert "inside the ground truth, in three slices of the volume" in view
