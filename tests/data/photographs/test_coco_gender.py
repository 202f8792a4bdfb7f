import shutil
from pathlib import Path

import numpy as np
import pytest
from generators.gender import write, write_coco
from generators.tables import blob, write_table
from part_cases import DatasetCase
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.photographs.coco_gender import gender, gender_of

PARTS = ("train", "val", "test")
REAL = Path(__file__).parents[3].parent / "shared" / "data"
CASES = {"gender": DatasetCase(write=write)}


def opened(folder, **own):
    return gender.open(folder, classes=("men", "women"), seed=0, **own)


def labels(source):
    return {source.meta(n)["file"]: source.classes[source.targets[n]] for n in range(len(source))}


def test_counterfactual_masks_come_alone_and_on_request(tmp_path):
    expected = {sample.id: sample.mask for sample in write(tmp_path)}
    factual, counterfactual = opened(tmp_path / "gender_data"), opened(tmp_path / "gender_data", counterfactual=True)
    for number in np.flatnonzero(factual.annotated):
        note = factual.meta(number)
        assert np.array_equal(factual.mask(number), expected[note["id"]])
        assert note["counterfactual"] is False
    assert counterfactual.annotated.sum() == len(expected)
    for number in np.flatnonzero(counterfactual.annotated):
        note = counterfactual.meta(number)
        assert np.array_equal(counterfactual.mask(number), ~expected[note["id"]])
        assert note["counterfactual"] is True


def test_without_counterfactual_tables_the_factual_are_not_taken_for_them(tmp_path):
    write(tmp_path)
    (tmp_path / "gender_data" / "attention_label" / "Counterfactual.csv").unlink()
    refused(MissingDataError, "'counterfactual'", lambda: load("gender", root=tmp_path, counterfactual=True))


def test_images_without_a_good_mask_are_kept_on_request(tmp_path):
    expected = write(tmp_path)
    dataset = load("gender", root=tmp_path, include_unannotated=True, size=16)
    notes = [note for part in PARTS for note in getattr(dataset, part).meta]
    assert len(notes) == len(expected) + 2 * 2 * 3
    assert {note["id"] for note in notes if note["annotated"]} == {sample.id for sample in expected}
    assert all("unmarked" in note["id"] or "bad" in note["id"] for note in notes if not note["annotated"])


def test_official_splits_are_the_folders(tmp_path):
    write(tmp_path)
    dataset = load("gender", root=tmp_path, splits="official")
    for part in PARTS:
        assert {note["id"].split("/")[0] for note in getattr(dataset, part).meta} == {part}


def test_the_processed_layout_is_read_too(tmp_path):
    expected = write(tmp_path)
    folder = tmp_path / "gender_data"
    for part in PARTS:
        for label in ("men", "women"):
            (folder / "image" / label).mkdir(parents=True, exist_ok=True)
            for file in (folder / part / label).glob("*.jpg"):
                file.rename(folder / "image" / label / file.name)
        shutil.rmtree(folder / part)
    folder.rename(tmp_path / "gender")
    dataset = load("gender", root=tmp_path)
    found = {note["id"].split("/")[-1] for part in PARTS for note in getattr(dataset, part).meta}
    assert found == {sample.id.split("/")[-1] for sample in expected}


@pytest.mark.parametrize("part", ["val2017", "train2014"])
def test_coco_alone_is_listed_by_its_captions(tmp_path, caplog, part):
    found = write_coco(tmp_path, part)
    source = opened(tmp_path / "coco")
    assert labels(source) == found
    assert not source.annotated.any()
    assert source.mask(0) is None
    assert source.meta(0)["annotated"] is False
    assert "no image is annotated" in caplog.text
    assert "xaidataset.github.io" in caplog.text


def test_coco_alone_is_no_set_with_masks(tmp_path):
    write_coco(tmp_path)
    assert gender.find(tmp_path) == tmp_path / "coco"
    assert [found for _, found in gender.list_contents(tmp_path)] == [False]  # the masks; the photographs are there
    refused(MissingDataError, "'men'", lambda: load("gender", root=tmp_path))
    refused(MissingDataError, "by hand", lambda: load("gender", root=tmp_path / "none", download=True))


def test_masks_beside_coco_are_used(tmp_path):
    found = write_coco(tmp_path, "train2014")
    mask = blob(np.random.default_rng(0))
    (first, *_) = sorted(found)
    write_table(tmp_path / "coco" / "attention_label" / "factual.csv", [(Path(first).stem, mask)])
    source = opened(tmp_path / "coco")
    assert source.annotated.tolist() == [True] + [False] * (len(found) - 1)
    assert np.array_equal(source.mask(0), mask)


def test_both_releases_of_coco_hold_the_same_images(tmp_path):
    write_coco(tmp_path, "val2014")
    found = write_coco(tmp_path, "train2017")
    assert labels(opened(tmp_path / "coco")) == found


def test_a_release_without_images_hides_no_other(tmp_path):
    found = write_coco(tmp_path, "val2014")
    write_coco(tmp_path, "train2017")
    shutil.rmtree(tmp_path / "coco" / "train2017")
    assert labels(opened(tmp_path / "coco")) == found


def test_without_outlines_the_captions_count_the_people(tmp_path):
    write_coco(tmp_path, persons=False)
    found = {Path(file).stem.lstrip("0"): label for file, label in labels(opened(tmp_path / "coco")).items()}
    assert found == {"1": "men", "2": "women", "10": "men"}


@pytest.mark.parametrize(
    ("captions", "persons", "label"),
    [
        (["A MAN's hat"], None, "men"),
        (["A woman and her dog"], None, "women"),
        (["A man and her dog"], None, None),
        (["A boy runs."], None, None),  # not a term of the paper
        (["A man with a group"], None, None),
        (["A man with a group"], 1, "men"),
        (["A man"], 0, None),
        (["A man"], 2, None),
        ([], 1, None),
    ],
)
def test_the_rule_of_words(captions, persons, label):
    assert gender_of(captions, persons=persons) == label


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "captions_val2017.json"),
        ("[]", "captions_val2017.json"),
        ('{"images": []}', "'annotations'"),
        ('{"images": [{}], "annotations": []}', "'file_name'"),
    ],
)
def test_a_broken_list_is_named(tmp_path, text, message):
    write_coco(tmp_path)
    (tmp_path / "coco" / "annotations" / "captions_val2017.json").write_text(text)
    refused(DataFileError, message, lambda: opened(tmp_path / "coco"))


@pytest.mark.skipif(not (REAL / "coco").is_dir(), reason="no sample files")
def test_the_real_sample_is_a_woman_alone():
    source = opened(REAL / "coco")
    assert gender.find(REAL) == REAL / "coco"
    assert labels(source) == {"val2017/000000000785.jpg": "women"}
    assert source.image(0, 224).size == (640, 425)
    assert not source.annotated[0]
