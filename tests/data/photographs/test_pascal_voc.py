import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from generators.common import photograph
from generators.pascal import HEIGHT, SHOWN, WIDTH, save_labels, write
from part_cases import DatasetCase
from PIL import Image
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.photographs.pascal_voc import CLASSES, pascal

REAL = Path(__file__).parents[3].parent / "shared" / "data"
PARTS = ("train", "val", "test")
CASES = {"pascal": DatasetCase(write=write)}


@pytest.fixture
def folder(root):
    return root / "VOCdevkit" / "VOC2012"


def opened(folder, *classes):
    return pascal.open(folder, classes=classes or CLASSES, seed=0)


def mask_of(folder, name="2007_000000"):
    return folder / "SegmentationClass" / f"{name}.png"


def test_the_mask_is_of_palette_indices_and_void_is_outside(root, folder):
    source = opened(folder)
    for number in range(len(source)):
        labels = np.array(Image.open(mask_of(folder, source.meta(number)["id"].partition("/")[0])))
        assert 255 in labels
        assert np.array_equal(source.mask(number), labels == source.targets[number] + 1)


def test_an_image_with_two_wanted_classes_is_two_samples_of_one_split(root):
    data = load("pascal", root=root, size=16, seed=5)
    images = {part: {note["file"] for note in getattr(data, part).meta} for part in PARTS}
    assert sum(map(len, images.values())) == len(SHOWN)
    assert sum(len(getattr(data, part)) for part in PARTS) == sum(map(len, SHOWN))


def test_official_splits_are_those_of_the_lists(root, folder):
    data = load("pascal", root=root, size=16, splits="official")
    listed = (folder / "ImageSets" / "Segmentation" / "val.txt").read_text().split()
    assert {Path(note["file"]).stem for note in data.test.meta} == set(listed)
    for part in (data.train, data.val):
        assert len(part)
        assert not {Path(note["file"]).stem for note in part.meta} & set(listed)


def test_label_maps_are_read_once(folder, caplog):
    def read():
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="xaibench"):
            source = opened(folder)
        return source, [record.message for record in caplog.records]

    first, said = read()
    assert len(said) == 1
    assert f"Reading {len(SHOWN)} label maps" in said[0]
    again, said = read()
    assert said == []
    assert all(np.array_equal(first.mask(i), again.mask(i)) for i in range(len(first)))


def test_a_changed_mask_is_seen(folder):
    opened(folder)
    save_labels(np.full((HEIGHT, WIDTH), CLASSES.index("sofa") + 1), mask_of(folder))
    source = opened(folder, "sofa")
    number = next(i for i in range(len(source)) if source.meta(i)["id"] == "2007_000000/sofa")
    assert source.mask(number).all()


def labels_by_id(source):
    return {source.meta(number)["id"]: source.targets[number] for number in range(len(source))}


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda mask: Image.open(mask).convert("RGB").save(mask), r"2007_000000\.png is a mask with mode 'RGB'"),
        (
            lambda mask: save_labels(np.zeros((HEIGHT, WIDTH + 1)), mask),
            r"2007_000000\.png is 60×81, but its image 2007_000000\.jpg is 60×80",
        ),
        (lambda mask: save_labels(np.full((HEIGHT, WIDTH), 37), mask), r"2007_000000\.png has the label\(s\) \[37\]"),
        (lambda mask: mask.write_bytes(mask.read_bytes()[:100]), r"2007_000000\.png (cannot be read|is not an image)"),
        (Path.unlink, r"2007_000000\.png is missing"),
    ],
)
def test_a_mask_that_cannot_be_used_is_named_and_left_out(folder, spoil, match, caplog):
    expected = labels_by_id(opened(folder))
    spoil(mask_of(folder))
    for _ in range(2):  # built, and from the cache
        caplog.clear()
        source = opened(folder)
        assert labels_by_id(source) == {name: label for name, label in expected.items() if "2007_000000" not in name}
        assert re.search("left out: 1: .*" + match, caplog.text)
        assert all(source.mask(number).any() for number in range(len(source)))


def test_a_set_of_broken_masks_is_refused(folder):
    for mask in (folder / "SegmentationClass").iterdir():
        mask.write_bytes(b"hello")
    refused(DataFileError, "2007_000000.png", lambda: opened(folder))


def test_a_missing_list_is_named(folder):
    (folder / "ImageSets" / "Segmentation" / "val.txt").unlink()
    refused(MissingDataError, "val.txt", lambda: opened(folder))


@pytest.mark.parametrize("lent", [True, False], ids=["pixels lent by Pillow", "pixels copied"])
@pytest.mark.parametrize("shape", [(90, 130), (50, 70), (300, 300), (200, 40)])
def test_photographs_are_scaled_as_pillow_does(folder, root, shape, lent, monkeypatch):
    """To within one step of 256, where a JPEG is not decoded at a fraction of its size."""
    if not lent:
        monkeypatch.delattr(Image.Image, "__arrow_c_array__", raising=False)
    rng = np.random.default_rng(0)
    for file in (folder / "JPEGImages").glob("2*.jpg"):
        Image.fromarray(photograph(rng, *shape)).save(file, quality=95)
        labels = np.array(Image.open(mask_of(folder, file.stem))) if mask_of(folder, file.stem).exists() else None
        if labels is not None:
            save_labels(np.asarray(Image.fromarray(labels).resize(shape[::-1], 0)), mask_of(folder, file.stem))
    size = max(min(shape) // 2 + 1, 48)
    split = load("pascal", root=root, size=size, classes="aeroplane,bicycle").test
    for note, (image, _, _) in zip(split.meta, (split[i] for i in range(len(split))), strict=True):
        pillow = Image.open(folder / note["file"]).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        right = torch.from_numpy(np.array(pillow)).permute(2, 0, 1) / 255
        assert (image - right).abs().max() <= 1.001 / 255


@pytest.mark.skipif(not (REAL / "VOCdevkit").exists(), reason="the real samples are not here")
def test_real_samples():
    source = opened(REAL / "VOCdevkit" / "VOC2012", "dog", "sheep", "cat", "cow")
    found = {source.meta(i)["id"]: int(source.mask(i).sum()) for i in range(len(source))}
    assert found == {"2007_004189/dog": 12154, "2008_002536/dog": 7321, "2008_002536/sheep": 13891}
    assert {part: len(indices) for part, indices in source.official.items()} == {"train": 0, "val": 3}
