import shutil

import numpy as np
import pytest
from generators.common import by_id
from generators.sixray import HEADER, NEGATIVES, POSITIVES, annotation, row, union, write, write_list
from part_cases import DatasetCase
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.scans.sixray_luggage import sixray

PARTS = ("train", "val", "test")
CASES = {"sixray": DatasetCase(write=write)}


@pytest.fixture
def folder(root):
    return root / "SIXray"


def opened(folder, *classes, **own):
    return sixray.open(folder, classes=classes or ("negative", "positive"), seed=0, **{"balance": False} | own)


def test_a_positive_without_boxes_is_not_annotated_and_not_negative(folder):
    source = opened(folder)
    numbers = by_id(source)
    for name in ("P00005", "P00006"):
        assert source.classes[source.targets[numbers[name]]] == "positive"
        assert not source.annotated[numbers[name]]
        assert source.mask(numbers[name]) is None
        assert source.meta(numbers[name])["annotated"] is False
    assert len(source) == len(POSITIVES) + len(NEGATIVES)
    assert source.annotated.sum() == len(source) - 2


def test_a_hammer_is_positive_though_its_row_says_nothing(folder):
    source = opened(folder)
    number = by_id(source)["P00004"]
    assert source.classes[source.targets[number]] == "positive"
    assert np.array_equal(source.mask(number), union(POSITIVES["P00004"][1]))


@pytest.mark.parametrize(
    ("name", "pixels"), [("P00001", 20 * 20), ("P00002", 10 * 10 + 16 * 16 - 6 * 6), ("P00007", 21 * 21)]
)
def test_masks_are_unions_of_boxes_within_the_image(folder, name, pixels):
    """One box; two that overlap; one that is cut off at the edge."""
    source = opened(folder)
    assert source.mask(by_id(source)[name]).sum() == pixels


def test_single_items_on_request(folder):
    source = opened(folder, "negative", "knife", "gun", "hammer")
    numbers = by_id(source)
    gun, knife = numbers["P00003/gun"], numbers["P00003/knife"]
    assert np.array_equal(source.mask(gun), union(POSITIVES["P00003"][1][:1]))
    assert np.array_equal(source.mask(knife), union(POSITIVES["P00003"][1][1:]))
    assert source.groups[gun] == source.groups[knife]
    assert [source.classes[source.targets[one]] for one in (gun, knife)] == ["gun", "knife"]
    assert "P00004/hammer" in numbers
    assert source.meta(gun)["listed_items"] == ["gun", "knife"]
    assert np.array_equal(source.mask(numbers["P00008/gun"]), union(POSITIVES["P00008"][1]))  # 'Gun ' with a space
    assert not any(name.endswith("wrench") for name in numbers)
    wrench = opened(folder, "wrench")
    assert (len(wrench), wrench.annotated.tolist()) == (1, [False])


def test_a_listed_item_without_a_box_of_it_is_not_annotated(folder):
    (folder / "Annotation" / "P00001.xml").write_text(annotation("P00001", [("Knife", 1, 1, 9, 9)]))
    source = opened(folder, "gun", "knife")
    numbers = by_id(source)
    assert not source.annotated[numbers["P00001/gun"]]
    assert source.mask(numbers["P00001/gun"]) is None
    assert source.mask(numbers["P00001/knife"]).sum() == 81


@pytest.mark.parametrize("number", ["9" * 30, "1e308", "inf", "nan"])
def test_a_number_that_no_image_has_is_a_malformed_object(folder, caplog, number):
    file = folder / "Annotation" / "P00001.xml"
    text = annotation("P00001", [("Gun", 1, 1, 9, 9), ("Gun", 2, 2, 5, 7777)])
    file.write_text(text.replace("7777", number))
    source = opened(folder, "gun")
    assert source.mask(by_id(source)["P00001/gun"]).sum() == 81
    assert f"{file}, object 2" in caplog.text


def test_official_splits_are_those_of_a_subset(root):
    dataset = load("sixray", root=root, subset=10, splits="official", include_unannotated=True)
    train, val, test = ({note["id"] for note in getattr(dataset, part).meta} for part in PARTS)
    assert train | val == {*list(POSITIVES)[:10], *NEGATIVES[:8]}
    assert test == {*list(POSITIVES)[10:], *NEGATIVES[8:12]}
    assert not train & val


def test_a_subset_is_its_lists_and_the_whole_is_all_of_them(folder):
    ids = set(by_id(opened(folder, subset="1000")))
    assert ids == {*list(POSITIVES)[:5], *NEGATIVES}
    assert set(by_id(opened(folder))) == {*POSITIVES, *NEGATIVES}
    refused(ValueError, "subset=", lambda: opened(folder, subset=100))


def test_the_whole_set_has_no_official_split_and_positive_stands_alone_and_is_needed(root, folder):
    """The official archives are reported to hold negatives alone."""
    refused(ValueError, "'positive'", lambda: load("sixray", root=root, classes="negative,positive,gun"))
    refused(ValueError, "official", lambda: load("sixray", root=root, splits="official"))
    for name in POSITIVES:
        (folder / "JPEGImage" / f"{name}.jpg").unlink()
    refused(MissingDataError, "'positive'", lambda: load("sixray", root=root))


def test_an_image_in_both_lists_is_tested_on(folder, caplog):
    write_list(folder / "ImageSet" / "10" / "test.csv", [*list(POSITIVES)[9:], *NEGATIVES[8:12]])
    source = opened(folder, subset="10")
    number = by_id(source)[list(POSITIVES)[9]]
    assert number in source.official["test"]
    assert number not in source.official["train"]
    assert f"both lists of subset 10, used as test images: 1: {list(POSITIVES)[9]}" in caplog.text


@pytest.mark.parametrize(
    "line",
    ["P00001,1,x,-1,-1,-1", "P00001,1,-1", "P00001", ",1,-1,-1,-1,-1", "../P00001,1,-1,-1,-1,-1", "N1,7,1,1,1,1"],
)
def test_a_broken_row_is_named_and_the_others_are_kept(folder, caplog, line):
    file = folder / "ImageSet" / "10" / "train.csv"
    file.write_text("\n".join([HEADER, row("N0000001"), line, row("N0000002"), ""]))
    for _ in range(2):  # built, and from the cache
        caplog.clear()
        names = set(by_id(opened(folder, subset="10")))
        assert {"N0000001", "N0000002"} <= names
        assert f"ImageSet/10/train.csv:3 ({line})" in caplog.text


def test_a_name_that_is_no_text_is_a_broken_row(folder, caplog):
    file = folder / "ImageSet" / "10" / "train.csv"
    lines = [HEADER.encode(), row("N0000001").encode(), row("N00\xdf1").encode("latin-1")]
    file.write_bytes(b"\n".join(lines))
    source = opened(folder, subset="10")
    assert "N0000001" in by_id(source)
    assert "ImageSet/10/train.csv:3 (N00\N{REPLACEMENT CHARACTER}1" in caplog.text


def test_spelling_of_lists_does_not_matter(folder):
    file = folder / "ImageSet" / "10" / "train.csv"
    file.write_bytes(
        b"\xef\xbb\xbfName, gun,KNIFE,Wrench,Pliers,Scissors\r\n"
        b'"P00001.jpg",1,-1.0,0,-1,-1\r\nN0000001.JPG,-1,-1,-1,-1,-1'
    )
    source = opened(folder, subset="10")
    assert {"P00001", "N0000001"} <= set(by_id(source))


def test_other_columns_and_no_lists_are_refused(folder):
    (folder / "ImageSet" / "10" / "train.csv").write_text("image;label\n1;2\n")
    refused(DataFileError, "train.csv", lambda: opened(folder))
    shutil.rmtree(folder / "ImageSet")
    (folder / "ImageSet").mkdir()
    refused(MissingDataError, "ImageSet", lambda: opened(folder))


@pytest.mark.parametrize(
    ("text", "reason", "boxes"),
    [
        ("<annotation><object>", r"P00001.xml cannot be read", []),
        ('<!DOCTYPE a [<!ENTITY e "x">]><annotation>&e;</annotation>', "P00001.xml declares a document type", []),
        ("<annotation><object/></annotation>", "P00001.xml, object 1 (no xmin, ymin, xmax and ymax)", []),
        (
            annotation("P00001", [("Gun", 1, 1, 2, 2)]).replace("</annotation>", "<object/></annotation>"),
            "P00001.xml, object 2 (no xmin",
            [("Gun", 1, 1, 2, 2)],
        ),
        (annotation("P00001", [("Gun", "a", 1, 2, 2)]), "P00001.xml, object 1 (could not convert", []),
        (annotation("P00001", [("Gun", 9, 1, 2, 2)]), "P00001.xml, object 1 (a box from (9, 1) to (2, 2))", []),
    ],
    ids=["cut off", "entities", "empty object", "one empty object of two", "no number", "inside out"],
)
def test_what_is_odd_in_one_annotation_is_left_out_and_named(folder, caplog, text, reason, boxes):
    (folder / "Annotation" / "P00001.xml").write_text(text)
    for _ in range(2):  # built, and from the cache
        caplog.clear()
        source = opened(folder)
        assert reason in caplog.text
        number = by_id(source)["P00001"]
        assert source.annotated[number] == bool(boxes)
        if boxes:
            assert np.array_equal(source.mask(number), union(boxes))
    assert source.annotated[by_id(source)["P00002"]]


def test_images_that_are_not_there_are_counted_and_left_out(root, folder, caplog):
    gone = [*NEGATIVES[:20], "P00001"]
    for name in gone:
        (folder / "JPEGImage" / f"{name}.jpg").unlink()
    data = load("sixray", root=root, balance=False, size=16)
    found = {name for part in PARTS for name in getattr(data, part).ids}
    assert found == {*POSITIVES, *NEGATIVES} - {*gone, "P00005", "P00006"}
    assert "20 of 24 negative (N0000001, N0000002, N0000003, N0000004, N0000005, ...)" in caplog.text
    assert "1 of 20 positive (P00001); they are left out" in caplog.text
    assert sixray.counts(folder)["positive"] == (17, 19)


def test_other_layouts_of_the_download(folder):
    plain = opened(folder)
    for number, name in enumerate([*POSITIVES, *NEGATIVES]):
        place = folder / "JPEGImage" / str(number % 3) if number % 2 else folder / "JPEGImage2"
        place.mkdir(exist_ok=True)
        (folder / "JPEGImage" / f"{name}.jpg").rename(place / f"{name}.jpg")
    (folder / "positive-Annotation").mkdir()
    (folder / "Annotation").rename(folder / "positive-Annotation" / "Annotation")
    moved = opened(folder)
    assert not moved.missing.any()
    assert np.array_equal(moved.annotated, plain.annotated)
    for number in range(len(moved)):
        assert (folder / moved.meta(number)["file"]).is_file()
    assert np.array_equal(moved.mask(by_id(moved)["P00001"]), union(POSITIVES["P00001"][1]))


def test_negatives_are_drawn_by_seed_as_many_as_there_are_boxes(folder):
    def negatives(seed):
        source = sixray.open(folder, classes=("positive", "negative"), seed=seed)
        assert source.annotated[source.targets == 0].sum() == 18
        return {source.meta(int(number))["id"] for number in np.flatnonzero(source.targets == 1)}

    assert len(negatives(0)) == 18
    assert negatives(0) == negatives(0) != negatives(1)
    assert len(sixray.open(folder, classes=("negative",), seed=0)) == len(NEGATIVES)


@pytest.mark.parametrize(
    ("boxes", "size", "message"),
    [([("Gun", 1, 1, 5, 5)], (100, 60), "60×100"), ([("Gun", 90, 1, 95, 5)], (80, 60), "P00001.xml")],
)
def test_boxes_of_another_image_are_named(folder, boxes, size, message):
    (folder / "Annotation" / "P00001.xml").write_text(annotation("P00001", boxes, size=size))
    source = opened(folder)
    refused(DataFileError, message, lambda: source.mask(by_id(source)["P00001"]))


def test_an_annotation_need_not_say_the_size(folder):
    (folder / "Annotation" / "P00001.xml").write_text(annotation("P00001", [("Gun", 1, 1, 5, 5)], size=None))
    source = opened(folder)
    assert source.mask(by_id(source)["P00001"]).sum() == 25


def test_an_unknown_item_counts_as_prohibited_and_is_named(folder, caplog):
    (folder / "Annotation" / "P00001.xml").write_text(annotation("P00001", [("Sword", 1, 1, 5, 5)]))
    source = opened(folder)
    assert source.mask(by_id(source)["P00001"]).sum() == 25
    assert "P00001.xml (sword)" in caplog.text


def test_what_one_list_names_counts_though_another_does_not(folder):
    first, other = folder / "ImageSet" / "10" / "train.csv", folder / "ImageSet" / "1000" / "train.csv"
    for one, rows in ((first, ["N0000001,-1,-1,-1,-1,-1"]), (other, ["N0000001,-1,1,-1,-1,-1"])):
        one.write_text("\n".join([HEADER, *rows, ""]))
        (one.parent / "test.csv").write_text("\n".join([HEADER, row("P00001"), row("N0000002"), ""]))
    source = opened(folder)
    number = by_id(source)["N0000001"]
    assert source.classes[source.targets[number]] == "positive"
    assert not source.annotated[number]
    assert source.meta(number)["listed_items"] == ["knife"]
