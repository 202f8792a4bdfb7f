"""Volumes in the sample browser: three slices through the ground truth, which sliders move."""

import numpy as np
import pytest
from report.browser import axe, visiting
from report.conftest import FEW_CELLS, draw_svg_only, write_run
from report.pictures import change_samples, make_volumes

from xaibench.report import write_report
from xaibench.runfolder.sample_file import read_samples

#: The levels of gray, scaled to one pixel per voxel, that a canvas of the first tile shows.
PIXELS = """([number, width, height]) => {
  const from = document.querySelectorAll("#samples-tiles canvas")[number];
  const small = Object.assign(document.createElement("canvas"), { width, height });
  const context = small.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(from, 0, 0, width, height);
  return [...context.getImageData(0, 0, width, height).data].filter((_, place) => place % 4 === 0 || place % 4 === 3);
}"""


@pytest.fixture(scope="module")
def volume_run(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("volumes") / "run", samples=12, cells=FEW_CELLS[:1])
    change_samples(folder, make_volumes)
    with pytest.MonkeyPatch.context() as patch:
        draw_svg_only(patch)
        write_report(folder)
    return folder


@pytest.fixture
def visit(tab, volume_run):
    yield from visiting(tab, (volume_run / "report.html").as_uri(), "#examples?outline=no")


def mask_tile(tab, sides):
    """The ground truth as shown, ``[H + 1 + D, W + 1 + D]``; nan where nothing is drawn."""
    d, h, w = sides
    found = np.array(tab.evaluate(PIXELS, [1, w + 1 + d, h + 1 + d]), dtype=float).reshape(h + 1 + d, w + 1 + d, 2)
    return np.where(found[..., 1] > 0, found[..., 0], np.nan)


def assert_shows(tab, mask, slices):
    d, h, w = slices
    shown = mask_tile(tab, mask.shape)
    high, wide = mask.shape[1:]
    assert np.array_equal(shown[:high, :wide], 255.0 * mask[d])
    assert np.array_equal(shown[:high, wide + 1 :], 255.0 * mask[:, :, w].T)
    assert np.array_equal(shown[high + 1 :, :wide], 255.0 * mask[:, h])
    assert np.isnan(shown[high]).all()
    assert np.isnan(shown[high + 1 :, wide:]).all()


def test_sliders_move_the_slices(visit, volume_run):
    tab = visit()
    tab.wait_for_selector("#samples-slices input")
    voxels = read_samples(volume_run)[0].voxels
    sample = int(tab.get_attribute('#samples-list [aria-selected="true"]', "data-sample"))
    place = read_samples(volume_run)[0].samples.index(sample)
    slices = [one // 2 for one in voxels.slices[place]]
    assert_shows(tab, voxels.masks[place], slices)
    names = ["slice d", "row h", "column w"]
    said = tab.locator("#samples-slices output").all_inner_texts()
    assert said == [f"{name} = {2 * one + 1}" for name, one in zip(names, slices, strict=True)]
    for axis, wanted in enumerate((3, 0, 7)):
        tab.locator("#samples-slices input").nth(axis).fill(str(wanted))
        slices[axis] = wanted
        assert_shows(tab, voxels.masks[place], slices)
    assert tab.locator("#samples-slices output").all_inner_texts() == ["slice d = 7", "row h = 1", "column w = 15"]
    tab.click("#samples-next")
    other = int(tab.get_attribute('#samples-list [aria-selected="true"]', "data-sample"))
    tab.wait_for_timeout(100)
    place = read_samples(volume_run)[0].samples.index(other)
    assert_shows(tab, voxels.masks[place], [one // 2 for one in voxels.slices[place]])


@pytest.mark.parametrize("width", [390, 1280])
def test_the_sliders_have_names_and_fit_the_screen(visit, width):
    tab = visit()
    tab.set_viewport_size({"width": width, "height": 900})
    tab.wait_for_selector("#samples-slices input")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert axe(tab) == []
