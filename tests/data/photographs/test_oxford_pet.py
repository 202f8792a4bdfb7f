import logging
from pathlib import Path

import numpy as np
import pytest
from generators.common import by_id
from generators.pet import BACKGROUND, BORDER, CHOSEN, FOREGROUND, KINDS, write
from part_cases import DatasetCase
from PIL import Image
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.photographs.oxford_pet import SPECIES, pet

REAL = Path(__file__).parents[3].parent / "shared" / "data" / "oxford-iiit-pet"
PARTS = ("train", "val", "test")
CASES = {"pet": DatasetCase(write=write)}


@pytest.fixture
def folder(root):
    return root / "oxford-iiit-pet"


def opened(folder, *classes, **own):
    return pet.open(folder, classes=classes or SPECIES, seed=0, **own)


def trimap_of(folder, name):
    return folder / "annotations" / "trimaps" / f"{name}.png"


def test_breeds_when_they_are_named(folder):
    source = opened(folder, "beagle", "Maine_Coon")
    assert np.bincount(source.targets).tolist() == [CHOSEN["beagle"], CHOSEN["Maine_Coon"]]
    for number in range(len(source)):
        assert source.meta(number)["breed"] == source.classes[source.targets[number]]
        assert source.meta(number)["id"].startswith(source.classes[source.targets[number]])


def test_species_and_breeds_do_not_mix(root):
    refused(ValueError, "beagle", lambda: load("pet", root=root, classes="cat,beagle"))


@pytest.mark.parametrize(("border", "important"), [(False, [FOREGROUND]), (True, [FOREGROUND, BORDER])])
def test_border_in_or_out(root, folder, border, important):
    source = opened(folder, border=border)
    for name, number in by_id(source).items():
        labels = np.array(Image.open(trimap_of(folder, name)))
        assert np.array_equal(source.mask(number), np.isin(labels, important))
    assert load("pet", root=root, size=16, border=border).parameters["border"] is border


def test_files_that_are_no_rgb_jpeg_are_read(folder):
    source = opened(folder)
    numbers = by_id(source)
    for name in KINDS:
        pixels = np.asarray(source.image(numbers[name], 64))
        assert pixels.shape == (60, 80, 3)
        assert np.array_equal(pixels, np.asarray(Image.open(folder / "images" / f"{name}.jpg").convert("RGB")))
        assert pixels.std() > 5


def test_official_splits(root, folder):
    data = load("pet", root=root, size=16, splits="official")
    names = {part: {note["id"] for note in getattr(data, part).meta} for part in PARTS}
    test, trainval = (
        {line.split()[0] for line in (folder / "annotations" / f"{part}.txt").read_text().splitlines()}
        for part in ("test", "trainval")
    )
    assert names["test"] == test
    assert names["train"] | names["val"] == trainval


def test_a_missing_trimap_is_not_annotated(root, folder, caplog):
    trimap_of(folder, "beagle_2").unlink()
    source = opened(folder)
    number = by_id(source)["beagle_2"]
    assert not source.annotated[number]
    assert source.mask(number) is None
    assert source.meta(number)["annotated"] is False
    with caplog.at_level(logging.INFO, logger="xaibench"):
        load("pet", root=root, size=16)
    assert "1 of 28 samples have no annotation" in caplog.text


def test_a_broken_line_is_named_and_the_others_are_kept(folder, caplog):
    file = folder / "annotations" / "list.txt"
    lines = file.read_text().splitlines()
    lines[4:4] = ["Abyssinian_777 1", "Abyssinian_778 99 1 1", "Abyssinian_779 1 x 1"]
    file.write_text("\n".join(lines))
    assert len(opened(folder)) == sum(CHOSEN.values())
    for number in (777, 778, 779):
        assert f"Abyssinian_{number}" in caplog.text


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda file: Image.fromarray(np.full((60, 80), 7, dtype=np.uint8)).save(file), "[7]"),
        (lambda file: Image.fromarray(np.full((60, 81), BACKGROUND, dtype=np.uint8)).save(file), "60×81"),
        (lambda file: file.write_bytes(file.read_bytes()[:60]), "beagle_2.png"),
    ],
)
def test_a_trimap_that_cannot_be_used_is_named(folder, spoil, match):
    spoil(trimap_of(folder, "beagle_2"))
    source = opened(folder)
    refused(DataFileError, match, lambda: source.mask(by_id(source)["beagle_2"]))


def test_a_folder_without_trimaps_is_named(folder):
    for file in (folder / "annotations" / "trimaps").iterdir():
        file.unlink()
    (folder / "annotations" / "trimaps").rmdir()
    refused(MissingDataError, "trimaps", lambda: opened(folder))


@pytest.mark.skipif(not REAL.exists(), reason="the real samples are not here")
def test_real_samples():
    source = opened(REAL)
    numbers = by_id(source)
    assert np.bincount(source.targets).tolist() == [8, 4]
    assert {part: len(indices) for part, indices in source.official.items()} == {"train": 7, "test": 5}
    assert source.mask(numbers["Abyssinian_1"]).sum() == 22938
    assert opened(REAL, border=True).mask(numbers["Abyssinian_1"]).sum() == 22938 + 18296
    assert opened(REAL, "great_pyrenees").image(0, 224).size == (500, 375)
