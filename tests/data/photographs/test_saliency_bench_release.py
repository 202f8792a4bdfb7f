import shutil

import numpy as np
import pytest
from generators.published import CLASSES, EACH, PLACE, write
from generators.tables import blob, write_table
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import MissingDataError
from xaibench.data.photographs.saliency_bench_release import SaliencyBenchRelease

PARTS = ("train", "val", "test")


def opened(directory, *classes, **own):
    part = SaliencyBenchRelease(directory)
    return part.open(part.find(), classes=classes or part.info.classes, seed=0, **own)


def masks(source):
    return {source.meta(n)["id"]: source.mask(n) for n in np.flatnonzero(source.annotated)}


@pytest.mark.parametrize("per_class", [True, False])
def test_one_table_or_one_for_each_class(tmp_path, per_class):
    expected = {sample.id: sample.mask for sample in write(tmp_path, per_class=per_class)}
    found = masks(opened(tmp_path / PLACE))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], mask) for name, mask in expected.items())


def test_a_class_is_not_its_namesake(tmp_path):
    """Names are the same in cat, cattle and wild_cat: each has its own masks, also when it is asked for alone."""
    expected = {sample.id: sample.mask for sample in write(tmp_path)}
    source = opened(tmp_path / PLACE, "cat")
    found = masks(source)
    assert len(found) == EACH
    assert all(name.startswith("image/cat/") and np.array_equal(mask, expected[name]) for name, mask in found.items())


@pytest.mark.parametrize("place", ["", "Benchmarks", PLACE])
def test_the_directory_may_be_above(tmp_path, place):
    write(tmp_path)
    dataset = load(f"published:{tmp_path / place}")
    assert dataset.info.name == f"published:{tmp_path / place}"
    assert dataset.classes == CLASSES
    assert sum(len(getattr(dataset, part)) for part in PARTS) == len(CLASSES) * EACH


def test_several_sets_are_named(tmp_path):
    write(tmp_path)
    (tmp_path / "Benchmarks" / "pet" / "image").mkdir(parents=True)
    refused(MissingDataError, "2 data sets", SaliencyBenchRelease, tmp_path)


def test_an_image_of_two_classes_stays_in_one_split(tmp_path):
    write(tmp_path)
    images = tmp_path / PLACE / "image"
    for file in (images / CLASSES[0]).iterdir():
        shutil.copy(file, images / CLASSES[1] / file.name)
    groups = {}
    for seed in range(3):
        dataset = load(f"published:{tmp_path}", seed=seed, classes=CLASSES[:2], include_unannotated=True)
        for part in PARTS:
            for note in getattr(dataset, part).meta:
                groups.setdefault((seed, note["file"].split("/")[-1]), set()).add(part)
    assert len(groups) == 3 * (EACH + 2)  # and an image of its own in each class
    assert all(len(parts) == 1 for parts in groups.values())


def test_a_row_that_several_classes_answer_to_is_used_for_none(tmp_path, caplog):
    write(tmp_path, per_class=False)
    folder = tmp_path / PLACE
    shutil.copy(folder / "image" / "cat" / "cat_00001.jpg", folder / "image" / "cattle" / "cat_00001.jpg")
    found = masks(opened(tmp_path))
    assert "image/cat/cat_00001.jpg" not in found
    assert "image/cattle/cat_00001.jpg" not in found
    assert len(found) == len(CLASSES) * EACH - 1
    assert "match several images" in caplog.text
    assert "(cat_00001.jpg)" in caplog.text


def test_counterfactual_tables_are_apart(tmp_path):
    write(tmp_path, per_class=False)
    mask = blob(np.random.default_rng(1))
    table = tmp_path / PLACE / "attention_label" / "counterfactual.csv"
    write_table(table, [("cat_00001.jpg", mask)], check=False)
    assert len(masks(opened(tmp_path))) == len(CLASSES) * EACH
    found = masks(opened(tmp_path, counterfactual=True))
    assert list(found) == ["image/cat/cat_00001.jpg"]
    assert np.array_equal(found["image/cat/cat_00001.jpg"], mask)


def test_an_empty_class_is_named_if_it_is_wanted(tmp_path):
    write(tmp_path)
    (tmp_path / PLACE / "image" / "dog").mkdir()
    assert len(opened(tmp_path, "cat")) == EACH + 1
    refused(MissingDataError, "image/dog", lambda: opened(tmp_path, "cat", "dog"))


def test_no_tables_are_missed(tmp_path):
    write(tmp_path)
    shutil.rmtree(tmp_path / PLACE / "attention_label")
    refused(MissingDataError, "attention_label", lambda: load(f"published:{tmp_path}"))


@pytest.mark.parametrize("marked", [1, 255])
def test_masks_of_other_sizes_and_of_255_are_taken_and_the_first_counts(tmp_path, caplog, marked):
    write(tmp_path, per_class=False)
    table = tmp_path / PLACE / "attention_label" / "attention.csv"
    rows = [f'cat_unmarked.jpg,"[[0, {marked}], [0, 0]]"', 'cat_unmarked.jpg,"[[1, 1], [1, 1]]"']
    table.write_text(table.read_text() + "\n".join(rows) + "\n")
    found = masks(opened(tmp_path))
    assert len(found) == len(CLASSES) * EACH + 1
    assert found["image/cat/cat_unmarked.jpg"].tolist() == [[False, True], [False, False]]
    assert "further masks of an image, of which only the first is used: 1" in caplog.text
