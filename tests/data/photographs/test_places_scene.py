from pathlib import Path

import numpy as np
import pytest
from generators.scene import write, write_places
from part_cases import DatasetCase
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.photographs.places_scene import CATEGORIES, scene

REAL = Path(__file__).parents[3].parent / "shared" / "data"
CASES = {"scene": DatasetCase(write=write)}


def opened(folder, **own):
    return scene.open(folder, classes=("nature", "urban"), seed=0, **own)


def labels(source):
    return {source.meta(n)["file"]: source.classes[source.targets[n]] for n in range(len(source))}


def test_places_alone_is_listed_by_its_categories(tmp_path, caplog):
    found = write_places(tmp_path)
    source = opened(tmp_path / "places365")
    assert labels(source) == found
    assert not source.annotated.any()
    assert source.mask(0) is None
    assert "no image is annotated" in caplog.text


def test_equal_names_in_two_categories_are_two_photographs(tmp_path):
    found = write_places(tmp_path)
    assert len(np.unique(opened(tmp_path / "places365").groups)) == len(found)


def test_places_alone_keeps_its_own_parts(tmp_path):
    write_places(tmp_path)
    dataset = load("scene", root=tmp_path, splits="official", include_unannotated=True)
    assert {note["id"].split("/")[0] for note in dataset.test.meta} == {"val_256"}
    assert len(dataset.test) == 4


def test_another_list_of_categories_is_named(tmp_path):
    write_places(tmp_path)
    file = tmp_path / "places365" / "categories_places365.txt"
    file.write_text(file.read_text().replace("/r/rainforest", "/r/rain_forest"))
    refused(DataFileError, "categories_places365.txt", lambda: opened(tmp_path / "places365"))


@pytest.mark.skipif(not (REAL / "places365").is_dir(), reason="no sample files")
def test_the_real_list_has_the_categories():
    lines = dict(line.split() for line in (REAL / "places365" / "categories_places365.txt").read_text().splitlines())
    assert [lines[category] for category in CATEGORIES["nature"]] == ["232", "271", "355", "141", "150", "279"]
    assert [lines[category] for category in CATEGORIES["urban"]] == ["183", "66", "77", "334", "319", "127"]
    refused(MissingDataError, "images", lambda: load("scene", root=REAL, include_unannotated=True))
