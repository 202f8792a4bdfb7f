"""Watermarks on photographs of two classes."""

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused

import xaibench as xb
from xaibench.benchmarks.watermarks.regimes import banner_mask
from xaibench.runner.parts import DatasetPart


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(10):
            pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    return tmp_path


def load(folder, **parameters):
    return xb.load(f"watermarks:{folder}", size=32, **parameters)


def test_the_regime_decides_which_photographs_have_the_watermark(folder):
    never, told = load(folder, regime="none").train, load(folder, regime="confounder").train
    marked = (never.images != told.images).flatten(1).any(1)
    counts = [int((told.targets == kind).sum()) for kind in (0, 1)]
    assert [int(marked[told.targets == kind].sum()) for kind in (0, 1)] == [
        round(0.2 * counts[0]),
        round(0.8 * counts[1]),
    ]
    assert load(folder).parameters["regime"] == "confounder"


def test_test_images_come_in_pairs_and_color(folder):
    data = load(folder, inverted=True)
    assert data.classes == ("cat", "dog")
    assert data.test.images.shape[1:] == (3, 32, 32)
    changed = (data.test.watermarked != data.test.plain).any(0).any(0)
    assert torch.equal(changed, torch.from_numpy(banner_mask(32)))
    assert (data.test.watermarked <= data.test.plain).all()  # the inverted watermark is dark


def test_the_sizes_are_known_before_an_image_is_read(folder):
    data = load(folder)
    counted = DatasetPart.of(f"watermarks:{folder}").split_sizes(0)
    assert counted == (len(data.train), len(data.val), len(data.test))


def test_a_damaged_photograph_is_left_out_by_name(folder, caplog):
    (folder / "cat" / "4.png").write_bytes(b"no picture")
    data = load(folder)
    assert len(data.train) + len(data.val) + len(data.test) // 2 == 19
    assert data.note == "1 of 20 images cannot be read and are left out."
    assert str(folder / "cat" / "4.png") in caplog.text


def test_other_than_two_classes_and_an_unknown_regime_are_refused(folder):
    refused(ValueError, "regime", lambda: load(folder, regime="confonder"))
    (folder / "bird").mkdir()
    Image.new("RGB", (40, 40)).save(folder / "bird" / "0.png")
    refused(ValueError, "3 classes", lambda: load(folder))
