import numpy as np
import pytest
from generators.photographs import COLORS, EACH, colored, write
from PIL import Image
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import MissingDataError
from xaibench.data.photographs.labeled_photographs import class_of, ordered_classes

WHOLE = {"size": 16, "splits": (0.0, 0.0, 1.0)}


def save(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in names:
        Image.fromarray(colored(rng, (90, 120, 30))).save(folder / name)


def test_folders_are_classes_and_a_name_in_two_of_them_is_two_photographs(tmp_path):
    write(tmp_path)
    test = load(f"photographs:{tmp_path}", **WHOLE).test
    assert len(test) == EACH * len(COLORS)
    assert len(set(test.groups.tolist())) == len(test)
    assert not test.masks.any()
    assert {one["annotated"] for one in test.meta} == {False}
    names = list(COLORS)
    for image, target, known in zip(test.images, test.targets, test.meta, strict=True):
        assert known["file"].partition("/")[0] == names[target]
        assert (image.mean((1, 2)) * 255).numpy() == pytest.approx(COLORS[names[target]], abs=6)


def test_groups_are_those_of_the_file_and_identical_images(tmp_path):
    write(tmp_path)
    first, second = list(COLORS)[:2]
    files = sorted(file for file in (tmp_path / first).iterdir())
    (tmp_path / second / "copy.jpg").write_bytes(files[0].read_bytes())
    test = load(f"photographs:{tmp_path}", **WHOLE).test
    assert len(set(test.groups.tolist())) == len(test) - 1
    assert test.groups_by == "identical images"
    (tmp_path / "groups.csv").write_text(f"file,group\n{first}/{files[1].name},ann\n{first}/{files[2].name},ann\n")
    test = load(f"photographs:{tmp_path}", **WHOLE).test
    assert len(set(test.groups.tolist())) == len(test) - 2


def test_without_folders_the_names_say_the_class(tmp_path):
    save(tmp_path, "cat_1.png", "cat.2.png", "great_dane_10.png")
    (tmp_path / "notes.txt").write_text("no image")
    data = load(f"photographs:{tmp_path}", **WHOLE)
    assert data.classes == ("cat", "great_dane")
    assert sorted(data.test.targets.tolist()) == [0, 0, 1]
    assert class_of("n01440764.jpg") == "n01440764"
    assert class_of("ILSVRC2012_val_00000293.JPEG") == "ILSVRC2012_val"


def test_photographs_of_some_of_imagenets_classes_have_the_numbers_of_all(tmp_path):
    save(tmp_path, "n02123045_1.png", "n15075141.png", "n01440764_tench.png")
    data = load(f"photographs:{tmp_path}", **WHOLE)
    assert len(data.classes) == len(set(data.classes)) == 1000
    assert sorted(data.test.targets.tolist()) == [0, 281, 999]
    assert ordered_classes({"n02123045", "cat"}) == ("cat", "n02123045")


def test_a_folder_without_photographs_is_refused(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        refused(MissingDataError, "photographs:", load, f"photographs:{folder}")
