"""Sheets of maps of volumes: their pictures are three slices, the same for all methods."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from PIL import Image
from report.conftest import FEW_CELLS, make_scores
from report.pictures import make_samples, make_volumes

from xaibench.core.pictures import levels
from xaibench.leaderboard.scores import (
    SAMPLE_SHEET,
    decode_sheet,
    draw_map_sheet,
    parse_layout,
    sheet_layout,
    write_sample_sheet,
)


def test_the_tiles_of_volumes_are_their_slices(tmp_path):
    images = make_samples(make_scores(samples=4, cells=FEW_CELLS[:2]))
    cells = [replace(cell, **make_volumes(cell, (6, 6, 6))) for cell in images]
    layout = sheet_layout(cells)
    assert layout.side == 12
    write_sample_sheet(tmp_path, cells, layout)
    assert parse_layout(json.loads(json.dumps(asdict(layout))), tmp_path) == layout
    maps = decode_sheet(draw_map_sheet(cells, cells[0].explainers[1], layout), "the sheet", layout.size)
    first = min(cells[0].samples)
    place = cells[0].samples.index(first)
    shown = np.asarray(Image.open(tmp_path / SAMPLE_SHEET))
    assert np.array_equal(shown[:12, :12], cells[0].images[place])
    assert np.array_equal(maps[:12, :12], levels(cells[0].maps[place, 1]))


@pytest.mark.parametrize(("sides", "shape", "place"), [((4, 6, 8), (10, 12), (1, 0)), ((2, 3, 70), (5, 72), (30, 0))])
def test_tiles_that_are_not_square_keep_their_proportions(tmp_path, sides, shape, place):
    images = make_samples(make_scores(samples=4, cells=FEW_CELLS[:1]))
    (cell,) = (replace(one, **make_volumes(one, sides)) for one in images[:1])
    layout = sheet_layout([cell])
    assert (cell.images.shape[1:3], layout.side) == (shape, min(max(shape), 64))
    write_sample_sheet(tmp_path, [cell], layout)
    shown = np.asarray(Image.open(tmp_path / SAMPLE_SHEET))[: layout.side, : layout.side]
    outside = (shown == 128).all(axis=(1, 2)).nonzero()[0]
    height = round(shape[0] * layout.side / max(shape))
    assert set(outside) >= {*range(place[0]), *range(place[0] + height, layout.side)}
    assert not set(outside) & set(range(place[0], place[0] + height))
