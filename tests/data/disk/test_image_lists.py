import numpy as np
import pytest

from xaibench.data.disk.image_lists import ImageEntry, MaskRow, image_stem, match_masks, official_folders


def images(*files):
    return [ImageEntry(file, file.split("/")[-2]) for file in files]


@pytest.mark.parametrize(
    ("files", "row", "found"),
    [
        (["cat/a.jpg", "cat/b.jpg"], ("b.jpg", None), [-1, 0]),
        (["cat/a.jpg", "cat/b.jpg"], ("b", None), [-1, 0]),
        (["cat/a.jpg", "cat/b.png"], ("b.jpg", None), [-1, 0]),
        (["cat/a.jpg", "cat/a.png"], ("a.png", None), [-1, 0]),  # the same stem: the whole name decides
        (["cat/a.jpg", "cat/a.png"], ("a", None), [-1, -1]),  # and where it cannot, nothing is guessed
        (["cat/a.jpg", "dog/a.jpg"], ("a.jpg", None), [-1, -1]),
        (["cat/a.jpg", "dog/a.jpg"], ("a.jpg", "dog"), [-1, 0]),
        (["cat/a.jpg", "dog/b.jpg"], ("b.jpg", "cat"), [-1, -1]),  # never of another class
        (["cat/a.v1.jpg", "cat/a.jpg"], ("a.v1", None), [0, -1]),
        (["cat/ab.jpg"], ("a", None), [-1]),
    ],
)
def test_a_row_finds_the_one_image_that_it_can_mean(files, row, found):
    assert match_masks("set", images(*files), [MaskRow(*row, "t.csv:2")]).tolist() == found


def test_rows_that_are_not_used_are_named(caplog):
    rows = [MaskRow("a", None, "t.csv:2"), MaskRow("z", None, "t.csv:3"), MaskRow("b", None, "t.csv:4")]
    found = match_masks(
        "set", images("cat/a.jpg", "cat/a.png", "cat/b.jpg"), [*rows, MaskRow("b.jpg", None, "t.csv:5")]
    )
    assert found.tolist() == [-1, -1, 2]  # of two rows of one image the first counts
    assert "set: masks that match several images, not used: 1: t.csv:2 (a)" in caplog.text
    assert "set: masks without an image: 1: t.csv:3 (z)" in caplog.text
    assert "set: further masks of an image, of which only the first is used: 1: t.csv:5 (b.jpg)" in caplog.text


def test_names_with_accents_match_however_they_are_spelled():
    found = match_masks(
        "set", images("caf\u00e9/\u00e9.jpg", "x/z.jpg"), [MaskRow("e\u0301.png", "cafe\u0301", "t.csv:2")]
    )
    assert found.tolist() == [0, -1]


def test_many_cases_make_one_warning(caplog):
    match_masks("set", [], [MaskRow(str(number), None, "t.csv") for number in range(40)])
    assert len(caplog.records) == 1
    assert "40: t.csv (0); " in caplog.text
    assert "and 35 more" in caplog.text


def test_an_image_in_two_official_splits_stays_in_the_last(tmp_path, caplog):
    for file in ("train/a/1.jpg", "val/a/1.png", "train/a/2.jpg", "test/b/2.jpg", "train/b/3.jpg", "extra/b/4.jpg"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = official_folders("set", tmp_path, ["a", "b"])
    assert [(one.file, one.label, one.split) for one in found] == [
        ("test/b/2.jpg", "b", "test"),
        ("train/b/3.jpg", "b", "train"),
        ("val/a/1.png", "a", "val"),
    ]
    assert "in a later split as well, left out: 2: train/a/1.jpg; train/a/2.jpg" in caplog.text


def test_stems():
    assert np.array_equal([image_stem(name) for name in ("a.jpg", "a.b.PNG", "a", "a.b")], ["a", "a.b", "a", "a.b"])
