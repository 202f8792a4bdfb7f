import json
import math

import pytest

from xaibench.runfolder.descriptions import (
    ENVIRONMENT,
    PARTS,
    PartDescription,
    RunParts,
    order_parts,
    read_environment,
    read_parts,
    read_suite,
)
from xaibench.runfolder.schema import RunFolderError

RISE = PartDescription("rise", "RISE", citation="Petsiuk et al. (2018)")
SOBEL = PartDescription("sobel", "Sobel", control=True)
DROP = PartDescription("drop", "Drop", higher_is_better=False, meaning="How far it falls.", range=(-1.0, 1.0))
FAR = PartDescription("far", "Far", range=(0.0, math.inf))


def test_parts_are_read_back_and_what_is_as_usual_is_not_written(tmp_path):
    parts = RunParts("s", "Title é", "Paper", {"rise": RISE, "sobel": SOBEL}, {}, {"drop": DROP, "far": FAR})
    (tmp_path / PARTS).write_bytes(parts.to_json())
    assert read_parts(tmp_path) == parts
    written = json.loads((tmp_path / PARTS).read_text())
    assert written["explainers"]["sobel"] == {"label": "Sobel", "control": True}
    assert list(written["explainers"]) == ["rise", "sobel"]
    assert written["metrics"]["far"]["range"] == [0, None]  # JSON has no infinity
    (tmp_path / PARTS).rename(tmp_path / "parts.json")  # its name in folders of older versions
    assert read_parts(tmp_path) == parts


def test_parts_of_earlier_versions_are_read(tmp_path):
    old = {"label": "Drop", "higher_is_better": False, "kind": "model", "range": "wide", "citation": ""}
    (tmp_path / PARTS).write_text(json.dumps({"title": "T", "metrics": {"drop": old, "hit": {}}}))
    parts = read_parts(tmp_path)
    assert parts.metrics == {
        "drop": PartDescription("drop", "Drop", higher_is_better=False),
        "hit": PartDescription("hit", "hit"),
    }
    assert parts.explainers == {}


def test_parts_of_the_run_come_first_and_the_unknown_by_name():
    assert order_parts({"sobel": SOBEL, "rise": RISE}, ["lime", "rise", "lime"]) == {
        "rise": RISE,
        "lime": PartDescription("lime", "lime"),
    }


def test_a_folder_without_the_files_has_nothing_to_say(tmp_path):
    assert read_parts(tmp_path) == RunParts()
    assert read_environment(tmp_path) == {}
    assert read_suite(tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "content"), [(PARTS, "{"), (PARTS, "[]"), (PARTS, '{"metrics": {"iou": 3}}'), (ENVIRONMENT, "[1]")]
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    read = read_parts if name == PARTS else read_environment
    with pytest.raises(RunFolderError, match=rf"{name} cannot be read .*Run the suite again"):
        read(tmp_path)
