import base64
import io

from PIL import Image

from xaibench.report.page import maps
from xaibench.report.page.maps import sheet_tables
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
    monkeypatch.setattr(maps, "MOST_TILES", 30)
    assert [(len(one["rows"]), one["left_out"]) for one in sheet_tables(run)] == [(1, 2), (1, 2)]
