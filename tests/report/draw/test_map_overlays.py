import base64
import io

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from xaibench.report.draw import map_overlays as overlays
from xaibench.report.draw.map_overlays import SheetRow, overlay, overlay_figure, overlay_tables, sheet_rows
from xaibench.report.read.run_reading import read_run

GREY = np.full((8, 8, 3), 200, np.uint8)
CYAN = [0, 229, 255]


def row(array=None, mask=None, image=GREY):
    return SheetRow("a", image, mask, {} if array is None else {"rise": array})


def test_rows_are_the_samples_in_order_with_what_fits(annotated_run):
    sheets = sheet_rows(read_run(annotated_run))
    assert list(sheets) == [("pet", "resnet18"), ("scene", "resnet18")]
    rows = sheets["pet", "resnet18"]
    assert [one.label for one in rows] == ["pet_0.jpg: dog", "pet_1.jpg: cat", "pet_2.jpg: dog"]
    assert list(rows[0].maps)[:2] == ["cam", "gradcam"]
    assert rows[0].mask.dtype == bool


def test_names_with_slashes_numbers_above_nine_and_misfits(fresh_annotated_run):
    image, odd = np.zeros((4, 4, 3), np.uint8), np.zeros((5, 5), np.float32)
    arrays = {f"xai/tris/resnet18/{i}/image": image for i in (10, 9)} | {"xai/tris/resnet18/9/map/rise": odd}
    arrays |= {"pet/resnet18/0/image": np.zeros((4, 4), np.uint8), "xai/tris/resnet18/9/mask": odd.astype(np.uint8)}
    save_file(arrays, fresh_annotated_run / "sheet.safetensors")
    sheets = sheet_rows(read_run(fresh_annotated_run))
    assert list(sheets) == [("xai/tris", "resnet18")]
    first, second = sheets["xai/tris", "resnet18"]
    assert (first.label, second.label) == ("xai/tris/resnet18/9", "xai/tris/resnet18/10")
    assert first.maps == {}
    assert first.mask is None


def test_a_map_of_zeros_halves_the_image_and_its_maximum_is_the_brightest():
    black = overlay(row(np.zeros((8, 8), np.float32)), "rise", 8)
    assert np.abs(black.astype(int) - [100, 100, 101]).max() <= 1  # inferno's zero is nearly black
    peak = np.zeros((8, 8), np.float32)
    peak[2, 5] = -3.0  # by magnitude
    shown = overlay(row(peak), "rise", 8)
    assert shown[2, 5].sum() == shown.sum(axis=2).max() > black[2, 5].sum()
    assert np.array_equal(np.delete(shown.reshape(-1, 3), 21, axis=0), np.delete(black.reshape(-1, 3), 21, axis=0))


def test_what_all_pixels_share_is_not_shown():
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    assert np.array_equal(overlay(row(ramp), "rise", 8), overlay(row(ramp + 5), "rise", 8))
    nothing = overlay(row(np.zeros((8, 8), np.float32)), "rise", 8)
    assert np.array_equal(overlay(row(np.full((8, 8), 5, np.float32)), "rise", 8), nothing)


def test_what_is_not_finite_counts_as_zero():
    array = np.array([[np.nan, np.inf], [-np.inf, 1.0]], np.float32)
    shown = overlay(row(array, image=GREY[:2, :2]), "rise", 2)
    assert np.array_equal(shown[0, 0], shown[0, 1])
    assert shown[1, 1].sum() > shown[0, 0].sum()


def test_the_rim_of_the_mask_is_drawn_and_nothing_else():
    mask = np.zeros((8, 8), bool)
    mask[2:6, 2:6] = True
    shown = overlay(row(mask=mask), None, 8)
    outlined = (shown == CYAN).all(axis=2)
    expected = mask.copy()
    expected[3:5, 3:5] = False
    assert np.array_equal(outlined, expected)
    assert (shown[~outlined] == 200).all()
    assert (overlay(row(mask=np.ones((8, 8), bool)), None, 8) == 200).all()  # the edge of the image is no rim


def test_tiles_keep_the_shape_of_the_image():
    wide = SheetRow("w", np.zeros((10, 40, 3), np.uint8), None, {"rise": np.ones((10, 40), np.float32)})
    assert overlay(wide, None, 96).shape == (24, 96, 3)
    assert overlay(wide, "rise", 20).shape == (5, 20, 3)


def test_the_figure_has_a_tile_for_every_map(annotated_run):
    run = read_run(annotated_run)
    rows = sheet_rows(run)["pet", "resnet18"]
    del rows[1].maps["rise"]
    axes = overlay_figure(run, rows).axes[0]
    assert len(axes.images) == 3 * 14 - 1
    texts = [text.get_text() for text in axes.texts]
    assert texts[:3] == ["Image", "CAM", "GradCAM"]
    assert texts[-1] == "pet_2.jpg: dog"


def test_tables_say_what_is_seen_and_stay_small(annotated_run, monkeypatch):
    run = read_run(annotated_run)
    (table, _) = overlay_tables(run, sheet_rows(run))
    label, image, tiles = table.rows[0]
    assert (label, image.alt) == ("pet_0.jpg: dog", "pet_0.jpg: dog, its ground truth outlined")
    assert tiles[0].alt.startswith("CAM, pet_0.jpg: dog: ")
    assert tiles[0].alt.endswith("% of its magnitude inside the ground truth")
    data = base64.b64decode(tiles[0].uri.removeprefix("data:image/jpeg;base64,"))
    assert Image.open(io.BytesIO(data)).size == (96, 96)
    assert len(data) < 6000
    monkeypatch.setattr(overlays, "MOST_TILES", 30)
    assert [(len(one.rows), one.left_out) for one in overlay_tables(run, sheet_rows(run))] == [(1, 2), (1, 2)]


def test_without_the_file_there_is_no_sheet(shared_run):
    run = read_run(shared_run)
    assert sheet_rows(run) == {}
    assert overlay_tables(run, {}) == []


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_a_damaged_sheet_is_named(fresh_annotated_run, content):
    (fresh_annotated_run / "sheet.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"sheet\.safetensors cannot be read .*Run the suite again"):
        sheet_rows(read_run(fresh_annotated_run))
