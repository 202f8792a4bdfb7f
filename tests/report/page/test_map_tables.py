import base64
import io

from PIL import Image

from xaibench.report.page import maps
from xaibench.report.page.maps import map_table, sheet_tables
from xaibench.scores.results import read_run


def test_tables_of_maps_follow_the_cells(shared_run):
    run = read_run(shared_run)
    groups = map_table(run, "example")
    assert [(group["subset"], group["variant"]) for group in groups][:3] == [
        ("LIN", "WHITE"),
        ("LIN", "CORR"),
        ("MULT", "WHITE"),
    ]
    assert [row["model"] for row in groups[0]["rows"]] == ["LLR", "MLP", "CNN"]
    assert groups[0]["image"].alt == "Sample of LIN WHITE"
    blind = [name for name, tile in zip(run.explainers, groups[0]["rows"][0]["tiles"], strict=True) if tile is None]
    assert blind == ["guided_gradcam"]
    assert {group["image"] for group in map_table(run, "global")} != {None}
    assert all(group["subset"] != "RIGID" for group in map_table(run, "global"))


def test_sheets_say_what_is_seen_and_stay_small(annotated_run, monkeypatch):
    run = read_run(annotated_run)
    (table, _) = sheet_tables(run)
    label, image, tiles = table["rows"][0]
    assert (label, image.alt) == ("pet_0.jpg: dog", "pet_0.jpg: dog, its ground truth outlined")
    assert tiles[0].alt.startswith("CAM, pet_0.jpg: dog: ")
    assert tiles[0].alt.endswith("% of its magnitude inside the ground truth")
    data = base64.b64decode(tiles[0].uri.removeprefix("data:image/jpeg;base64,"))
    assert Image.open(io.BytesIO(data)).size == (96, 96)
    assert len(data) < 6000
    monkeypatch.setattr(maps, "MOST_TILES", 30)
    assert [(len(one["rows"]), one["left_out"]) for one in sheet_tables(run)] == [(1, 2), (1, 2)]


def test_generated_sets_have_no_sheet(shared_run):
    assert sheet_tables(read_run(shared_run)) == []
