import json
from dataclasses import fields, replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from xaibench.core.pictures import cut_slices
from xaibench.runfolder.sample_file import (
    SAMPLES_FILE,
    SampleCell,
    Voxels,
    place_slices,
    read_samples,
    to_safetensors,
)
from xaibench.runfolder.schema import RunFolderError

RNG = np.random.default_rng(0)
CELL = SampleCell(
    **{"subset": "lin", "variant": "white", "model": "mlp", "dataset": "set", "data_seed": 1, "seed": 2},
    samples=(5, 3, 9),
    labels=("a", "ü", '"c"'),
    browsed=2,
    sheet=(2, 0),
    example=1,
    explainers=("lime", "rise"),
    photographs=False,
    images=RNG.integers(0, 256, (3, 4, 6, 3), dtype=np.uint8),
    masks=RNG.integers(0, 2, (3, 4, 6), dtype=np.uint8),
    maps=RNG.random((3, 2, 4, 6)).astype(np.float16),
    means=RNG.random((2, 4, 6)).astype(np.float32),
)
PHOTOGRAPHS = replace(CELL, photographs=True, example=None, means=np.zeros((0, 4, 6), np.float32))


def test_what_is_written_is_read_back(tmp_path):
    (tmp_path / SAMPLES_FILE).write_bytes(to_safetensors([CELL, PHOTOGRAPHS]))
    for found, cell in zip(read_samples(tmp_path), (CELL, PHOTOGRAPHS), strict=True):
        for each in fields(SampleCell):
            got, expected = getattr(found, each.name), getattr(cell, each.name)
            if isinstance(expected, np.ndarray):
                assert got.dtype == expected.dtype
                assert np.array_equal(got, expected)
            else:
                assert got == expected
        assert found.cell == ("lin", "white", "mlp")


def test_the_first_samples_of_the_test_split_are_a_whole_cell(tmp_path):
    words = {"classes": ("0", "1", "2"), "predicted": ("0", "0", "1"), "probabilities": (0.9, 0.8, 0.7)}
    cut = replace(CELL, **words).lowest(2)
    assert (cut.samples, cut.labels, cut.browsed, cut.sheet, cut.example) == ((5, 3), ("a", "ü"), 2, (0,), 1)
    assert (cut.classes, cut.predicted, cut.probabilities) == (("0", "1"), ("0", "0"), (0.9, 0.8))
    one = CELL.lowest(1)
    assert (one.samples, one.browsed, one.sheet, one.example, one.classes) == ((3,), 1, (), 0, ())
    assert np.array_equal(one.maps, CELL.maps[1:2])
    assert np.array_equal(one.means, CELL.means)
    (tmp_path / SAMPLES_FILE).write_bytes(to_safetensors([one]))
    assert read_samples(tmp_path)[0].samples == (3,)
    assert CELL.lowest(9).samples == CELL.samples
    late = replace(CELL, samples=(3, 9, 5)).lowest(2)
    assert (late.samples, late.browsed, late.sheet, late.example) == ((3, 5), 1, (1, 0), None)


def test_images_without_colors_take_a_third_of_the_room(tmp_path):
    gray = replace(CELL, images=np.repeat(CELL.images[..., :1], 3, axis=-1))
    content = to_safetensors([gray, CELL])
    assert len(to_safetensors([CELL, CELL])) - len(content) == pytest.approx(2 * CELL.images.size / 3, abs=16)
    (tmp_path / SAMPLES_FILE).write_bytes(content)
    for found, cell in zip(read_samples(tmp_path), (gray, CELL), strict=True):
        assert np.array_equal(found.images, cell.images)
    (tmp_path / SAMPLES_FILE).write_bytes(to_safetensors([gray.lowest(0)]))
    assert read_samples(tmp_path)[0].images.shape == (0, 4, 6, 3)


def test_no_cell_and_no_file_are_no_samples(tmp_path):
    assert read_samples(tmp_path) == []
    (tmp_path / SAMPLES_FILE).write_bytes(to_safetensors([]))
    assert read_samples(tmp_path) == []


VOXELS = Voxels(
    (8, 4, 6),
    ((7, 0, 1), (2, 3, 4), (0, 0, 5)),
    RNG.integers(0, 256, (3, 4, 2, 3), dtype=np.uint8),
    RNG.integers(0, 2, (3, 4, 2, 3), dtype=np.uint8),
    RNG.integers(0, 256, (3, 2, 4, 2, 3), dtype=np.uint8),
)


def test_volumes_are_read_back_and_cut_with_their_cell(tmp_path):
    (tmp_path / SAMPLES_FILE).write_bytes(to_safetensors([CELL, replace(CELL, voxels=VOXELS)]))
    images, volumes = read_samples(tmp_path)
    assert images.voxels is None
    one = volumes.lowest(1).voxels
    assert (one.shape, one.slices) == ((8, 4, 6), ((2, 3, 4),))
    for name in ("images", "masks", "maps"):
        assert np.array_equal(getattr(volumes.voxels, name), getattr(VOXELS, name))
        assert np.array_equal(getattr(one, name), getattr(VOXELS, name)[1:2])
    assert volumes.voxels.sides == (4, 2, 3)


@pytest.mark.parametrize(
    "cell",
    [
        *(replace(CELL, maps=CELL.maps[:, :1]), replace(CELL, masks=CELL.masks[:2])),
        *(replace(CELL, images=CELL.images[..., :2]), replace(CELL, means=CELL.means[:1])),
        replace(CELL, voxels=replace(VOXELS, masks=VOXELS.masks[:, 1:])),
        replace(CELL, voxels=replace(VOXELS, slices=VOXELS.slices[:2])),
        *(b"", b"nonsense", to_safetensors([CELL])[:-1], {"cells": json.dumps([{"subset": "lin"}])}, {}),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, cell):
    content = to_safetensors([cell if isinstance(cell, SampleCell) else CELL])
    (tmp_path / SAMPLES_FILE).write_bytes(cell if isinstance(cell, bytes) else content)
    if isinstance(cell, dict):
        save_file(load_file(tmp_path / SAMPLES_FILE), tmp_path / SAMPLES_FILE, metadata=cell)
    with pytest.raises(RunFolderError, match="samples"):
        read_samples(tmp_path)


def test_the_slices_of_a_volume_share_their_axes():
    volume = RNG.random((3, 4, 5))
    flat = place_slices(cut_slices(volume, (1, 2, 3)))
    assert flat.shape == (4 + 3, 5 + 3)
    assert np.array_equal(flat[:4, :5], volume[1])
    assert np.array_equal(flat[:4, 5:], volume[:, :, 3].T)
    assert np.array_equal(flat[4:, :5], volume[:, 2])
    assert not flat[4:, 5:].any()
