import shutil

import numpy as np
import pytest
from generators.common import photograph
from generators.folder import PATIENTS, write
from generators.photographs import COLORS, EACH, colored
from generators.photographs import write as write_photographs
from generators.tables import write_table
from PIL import Image
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.photographs.image_folder import OwnFolder, class_of, ordered_classes

PARTS = ("train", "val", "test")


@pytest.fixture
def mine(tmp_path):
    write(tmp_path)
    return tmp_path


def opened(directory, *classes, **own):
    part = OwnFolder(directory)
    return part.open(part.find(), classes=classes or part.info.classes, seed=0, **own)


def number_of(source, file):
    return next(n for n in range(len(source)) if source.meta(n)["file"] == file)


def photo(file, *, size=(60, 80), seed=0):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(photograph(np.random.default_rng(seed), *size)).save(file)


def test_without_groups_every_image_is_its_own(mine):
    (mine / "groups.csv").unlink()
    assert len(np.unique(opened(mine, "ill").groups)) == 2 * PATIENTS + 1


def test_an_image_without_a_mask_is_not_annotated_and_an_empty_mask_is_a_negative(mine):
    source = opened(mine)
    assert (~source.annotated).sum() == 2
    number = number_of(source, "image/ill/unmarked.jpg")
    assert source.mask(number) is None
    assert source.meta(number)["annotated"] is False
    healthy = number_of(source, "image/healthy/healthy.v0.png")
    assert source.annotated[healthy]
    assert not source.mask(healthy).any()


def test_classes_in_which_nothing_is_to_be_found(mine):
    shutil.rmtree(mine / "mask" / "healthy")
    refused(MissingDataError, "negatives=", lambda: load(f"folder:{mine}"))
    dataset = load(f"folder:{mine}", negatives="healthy")
    assert sum((getattr(dataset, part).targets == 0).sum() for part in PARTS) == 2 * PATIENTS + 1
    assert not dataset.test.masks[dataset.test.targets == 0].any()


@pytest.mark.parametrize("name", ["unmarked.png", "unmarked.BMP", "unmarked.tif", "unmarked.gif", "unmarked.webp"])
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_masks_of_any_kind(mine, name, mode):
    wanted = np.zeros((60, 80), bool)
    wanted[10:20, 30:50] = True
    if mode == "P":
        image = Image.fromarray(wanted.astype(np.uint8) * 3, mode="P")
        image.putpalette([0, 0, 0, 9, 9, 9, 0, 0, 0, 200, 30, 30])
    else:
        image = Image.fromarray(wanted.astype(np.uint8) * 255).convert(mode)
    keywords = {"lossless": True} if name.endswith("webp") else {}
    image.save(mine / "mask" / "ill" / name, **keywords)
    source = opened(mine)
    assert np.array_equal(source.mask(number_of(source, "image/ill/unmarked.jpg")), wanted)


def test_a_jpeg_mask_counts_from_half(mine):
    wanted = np.zeros((60, 80), np.uint8)
    wanted[13:21, 30:51] = 255
    Image.fromarray(wanted).save(mine / "mask" / "ill" / "unmarked.jpg", quality=80)
    values = np.asarray(Image.open(mine / "mask" / "ill" / "unmarked.jpg"))
    assert ((values > 0) != (wanted > 0)).any()  # what JPEG does
    source = opened(mine)
    assert np.array_equal(source.mask(number_of(source, "image/ill/unmarked.jpg")), wanted > 0)


@pytest.mark.parametrize("turned", ["image", "mask", "both"])
def test_image_and_mask_lie_as_they_are_seen(mine, turned):
    """Both show a bright left edge; each may be stored lying on its side, as cameras do."""
    exif = Image.Exif()
    exif[0x0112] = 6  # its first row is seen on the right
    upright = np.zeros((60, 80), np.uint8)
    upright[:, :20] = 255
    for place in ("image", "mask"):
        (mine / place / "ill").mkdir(exist_ok=True)
        path = mine / place / "ill" / ("turned.jpg" if place == "image" else "turned.png")
        if turned in (place, "both"):
            Image.fromarray(np.ascontiguousarray(upright.T[::-1])).save(path, exif=exif)
        else:
            Image.fromarray(upright).save(path)
    source = opened(mine)
    number = number_of(source, "image/ill/turned.jpg")
    assert np.array_equal(source.mask(number), upright > 0)
    assert np.array_equal(np.asarray(source.image(number, 60))[..., 0] > 127, upright > 0)


def test_depth_and_ground_are_stated(mine):
    values = np.zeros((60, 80), np.uint16)
    values[:, :40] = 4095
    Image.fromarray(values).save(mine / "image" / "ill" / "unmarked2.png")
    source = opened(mine, scale=4095)
    image = np.asarray(source.image(number_of(source, "image/ill/unmarked2.png"), 60))
    assert (image[:, :40] == 1).all()
    assert (image[:, 40:] == 0).all()
    refused(ValueError, "scale=", lambda: opened(mine, scale=0))
    refused(ValueError, "ground=", lambda: opened(mine, ground=2))


def test_a_mask_of_fractions_marks_all_but_0_and_no_nan(mine):
    values = np.zeros((60, 80), np.float32)
    values[5, 6] = 0.25
    Image.fromarray(values).save(mine / "mask" / "ill" / "unmarked.tif")
    source = opened(mine)
    number = number_of(source, "image/ill/unmarked.jpg")
    assert np.argwhere(source.mask(number)).tolist() == [[5, 6]]
    values[7, 8] = np.nan
    Image.fromarray(values).save(mine / "mask" / "ill" / "unmarked.tif")
    refused(DataFileError, "unmarked.tif", lambda: source.mask(number))


def test_transparent_pixels_do_not_count(mine):
    values = np.full((60, 80, 4), 255, np.uint8)
    values[:, :40, 3] = 0
    Image.fromarray(values).save(mine / "mask" / "ill" / "unmarked.png")
    source = opened(mine)
    mask = source.mask(number_of(source, "image/ill/unmarked.jpg"))
    assert not mask[:, :40].any()
    assert mask[:, 40:].all()


def test_sixteen_bit_labels(mine):
    values = np.zeros((60, 80), np.uint16)
    values[5, 6] = 256  # its low byte is 0
    Image.fromarray(values).save(mine / "mask" / "ill" / "unmarked.png")
    source = opened(mine)
    assert np.argwhere(source.mask(number_of(source, "image/ill/unmarked.jpg"))).tolist() == [[5, 6]]


def test_a_mask_of_another_size_names_both(mine):
    photo(mine / "mask" / "ill" / "unmarked.png", size=(30, 40))
    source = opened(mine)
    refused(DataFileError, "unmarked.png", lambda: source.mask(number_of(source, "image/ill/unmarked.jpg")))


def test_masks_that_are_not_used_are_named(mine, caplog):
    photo(mine / "mask" / "ill" / "nobody.png")
    photo(mine / "mask" / "il" / "ill.v0.png")
    photo(mine / "image" / "ill" / "ill.v0.bmp")
    (mine / "mask" / "ill" / "ill.v0.png").rename(mine / "mask" / "ill" / "ill.v0.tif")
    source = opened(mine)
    assert "masks without an image: 2: mask/il/ill.v0.png (ill.v0.png); mask/ill/nobody.png" in caplog.text
    assert "match several images, not used: 1: mask/ill/ill.v0.tif (ill.v0.tif)" in caplog.text
    assert not source.annotated[number_of(source, "image/ill/ill.v0.bmp")]


def test_tables_instead_of_images_of_any_size(mine):
    shutil.rmtree(mine / "mask")
    mask = np.eye(7, 9, dtype=bool)
    rows = [(f"{label}.v{number}", mask) for label in ("ill", "healthy") for number in range(2 * PATIENTS)]
    write_table(mine / "attention_label" / "mine.csv", rows, check=False)
    write_table(mine / "attention_label" / "mine-counterfactual.csv", [("ill.v3", ~mask)], check=False)
    source = opened(mine)
    assert source.annotated.sum() == len(rows)
    assert np.array_equal(source.mask(number_of(source, "image/ill/ill.v3.JPG")), mask)
    other = opened(mine, counterfactual=True)
    assert np.array_equal(other.mask(number_of(other, "image/ill/ill.v3.JPG")), ~mask)
    assert other.annotated.sum() == 1


def test_masks_come_from_one_place(mine):
    (mine / "attention_label").mkdir()
    refused(MissingDataError, "attention_label", lambda: opened(mine))
    shutil.rmtree(mine / "attention_label")
    refused(ValueError, "counterfactual=", lambda: opened(mine, counterfactual=True))
    shutil.rmtree(mine / "mask")
    refused(MissingDataError, f"photographs:{mine}/image", load, f"folder:{mine}")
    assert len(load(f"photographs:{mine}/image", splits=(0, 0, 1)).test) == 2 * (2 * PATIENTS + 1)
    assert len(load(f"folder:{mine}", include_unannotated=True, splits=(0, 0, 1)).test) == 2 * (2 * PATIENTS + 1)


def test_what_is_no_such_folder_says_the_layout(tmp_path):
    refused(MissingDataError, "image", lambda: OwnFolder(tmp_path))
    (tmp_path / "image").mkdir()
    refused(MissingDataError, "subfolder", lambda: OwnFolder(tmp_path))
    for folder in (tmp_path / "nowhere", tmp_path / "image"):
        refused(MissingDataError, "photographs:", load, f"photographs:{folder}")


def test_images_and_masks_without_class_folders_are_one_class(tmp_path):
    for number in range(3):
        photo(tmp_path / "images" / f"{number}.png", seed=number)
    photo(tmp_path / "masks" / "1.png", seed=1)
    part = OwnFolder(tmp_path)
    assert part.info.classes == ("unlabeled",)
    source = opened(tmp_path)
    assert source.annotated.tolist() == [False, True, False]
    assert source.mask(1).any()
    assert source.meta(1)["id"] == "images/1.png"


@pytest.mark.parametrize(
    "name",
    [
        "image/ill/ill.v0.png",  # as meta["file"] says it
        "./image/ill/ill.v0.png",
        "image\\ill\\ill.v0.png",
        "ill/ill.v0.png",
        "ill.v0.png",
        "image/ill/ill.v0",
        "ill/ill.v0",
        "ill.v0",
    ],
)
def test_groups_name_files_in_any_way(mine, name):
    (mine / "groups.csv").write_text(f"File,Group,more\n{name},a,x\nill/ill.v7.JPG,a,y\n")
    source = opened(mine)
    one, other = (number_of(source, f"image/ill/{file}") for file in ("ill.v0.png", "ill.v7.JPG"))
    assert source.groups[one] == source.groups[other]
    assert (source.groups == source.groups[one]).sum() == 2


def test_a_group_is_not_a_file_of_its_name(mine):
    (mine / "groups.csv").write_text("file,group\nill/ill.v0.png,ill.v1\n")
    source = opened(mine)
    one, other = (number_of(source, f"image/ill/{file}") for file in ("ill.v0.png", "ill.v1.JPG"))
    assert source.groups[one] != source.groups[other]


def test_what_is_wrong_with_groups_is_named(mine, caplog):
    (mine / "groups.csv").write_text("file,group\nill/ill.v0.png,\n\n")
    opened(mine)
    assert "groups.csv: rows without a file or a group, left out: 1: line 2" in caplog.text
    (mine / "groups.csv").write_text("file,group\nill/ill.v0.png,a\nnobody.png,a\n")
    refused(DataFileError, "nobody.png", lambda: opened(mine))
    (mine / "groups.csv").write_text("file,group\nill.v0.png,a\nill.v0.png,b\n")
    refused(DataFileError, "groups.csv", lambda: opened(mine))
    (mine / "groups.csv").write_text("name;patient\n")
    refused(DataFileError, "groups.csv", lambda: opened(mine))


def two_classes(folder, *, same):
    for label, shift in (("a", 0), ("b", 0 if same else 100)):
        for number in range(12):
            photo(folder / "image" / label / f"{number}.png", seed=number + shift)
            photo(folder / "mask" / label / f"{number}.png", seed=number)


def test_the_same_image_in_two_classes_is_a_group(tmp_path):
    two_classes(tmp_path, same=True)
    source = opened(tmp_path)
    assert np.array_equal(source.groups[source.targets == 0], source.groups[source.targets == 1])
    assert len(np.unique(source.groups)) == 12
    assert source.groups_by == "identical images"
    assert source.annotated.all()


def test_the_same_name_in_two_classes_is_two_images(tmp_path):
    two_classes(tmp_path, same=False)
    assert len(np.unique(opened(tmp_path).groups)) == 24


def test_an_unlisted_copy_belongs_to_the_group_of_its_original(tmp_path):
    two_classes(tmp_path, same=True)
    (tmp_path / "groups.csv").write_text("file,group\na/0.png,ann\na/1.png,ann\n")
    source = opened(tmp_path)
    assert len({source.groups[number_of(source, f"image/{file}.png")] for file in ("a/0", "a/1", "b/0", "b/1")}) == 1
    assert len(np.unique(source.groups)) == 11
    assert source.groups_by == "groups.csv and identical images"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_groups_in_the_encodings_of_excel_are_read(mine, encoding):
    photo(mine / "image" / "ill" / "größe.png")
    (mine / "groups.csv").write_bytes("file,group\nill/größe.png,a\nill/ill.v7.JPG,a\n".encode(encoding))
    source = opened(mine)
    one, other = (number_of(source, f"image/ill/{file}") for file in ("größe.png", "ill.v7.JPG"))
    assert source.groups[one] == source.groups[other]


WHOLE = {"size": 16, "splits": (0.0, 0.0, 1.0)}


def save(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in names:
        Image.fromarray(colored(rng, (90, 120, 30))).save(folder / name)


def test_folders_are_classes_and_a_name_in_two_of_them_is_two_photographs(tmp_path):
    write_photographs(tmp_path)
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
    write_photographs(tmp_path)
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
