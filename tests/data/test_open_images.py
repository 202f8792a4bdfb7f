"""Folders, files, tables and arrays as people have them, opened for an audit."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from generators.medical import pydicom, write_slice
from generators.tumor import write_nifti
from PIL import Image
from refusals import refused

from xaibench.data import Dataset, Split, from_datasets, load, open_images, write_parquet
from xaibench.data.annotated import DataFileError, MissingDataError


def save(path, value=100, *, size=(12, 10), mode="L"):
    """A plain picture of this gray level, width × height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)
    return path


def save_mask(path, *, size=(12, 10)):
    values = np.zeros(size[::-1], np.uint8)
    values[2:6, 3:9] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return values > 0


def test_images_directly_inside_are_one_unlabeled_set(tmp_path):
    for number in range(3):
        save(tmp_path / f"cat_{number}.png", 50 * number)
    found = open_images(tmp_path)
    assert (len(found), found.classes) == (3, None)
    assert found.image_shape == (3, 10, 12)
    assert list(found.ids) == ["cat_0.png", "cat_1.png", "cat_2.png"]
    assert not found.has_mask.any()
    assert found.images.amax((1, 2, 3)).tolist() == pytest.approx([0, 50 / 255, 100 / 255])
    assert not found.masks.any()
    assert open_images(found) is found


def test_pages_of_a_tiff_file_are_images(tmp_path):
    pages = [Image.fromarray(np.full((4, 6), value, np.uint16)) for value in (0, 13107, 65535)]
    pages.append(Image.fromarray(np.full((2, 3), 9, np.uint16)))  # a preview
    pages[0].save(tmp_path / "stack.tif", save_all=True, append_images=pages[1:])
    save(tmp_path / "one.png", 51, size=(6, 4))
    found = open_images(tmp_path)
    assert list(found.ids) == ["one.png", "stack.tif#0", "stack.tif#1", "stack.tif#2"]
    np.testing.assert_allclose(found[:4][0][:, 0, 0, 0], [0.2, 0, 0.2, 1], atol=1e-6)
    assert list(open_images(tmp_path, slices=[1]).ids) == ["one.png", "stack.tif#1"]
    refused(DataFileError, "slices='7'", lambda: open_images(tmp_path, slices="7"))


def test_photographs_are_labeled_by_their_file_names(tmp_path):
    for name in ("cat_0", "cat_1", "dog_0"):
        save(tmp_path / f"{name}.png")
    found = open_images(f"photographs:{tmp_path}")
    assert (found.classes, found.targets.tolist()) == (("cat", "dog"), [0, 0, 1])
    save(tmp_path / "net" / "n02123045_7.png")
    found = open_images(f"photographs:{tmp_path / 'net'}")  # its number in the outputs of networks for ImageNet
    assert (len(found.classes), found.targets.tolist()) == (1000, [281])


@pytest.mark.parametrize("below", ["", "image", "images"])
def test_class_folders_with_masks_for_some(tmp_path, below):
    for label in ("cat", "dog", "none"):
        for number in range(2):
            save(tmp_path / below / label / f"{number}.png")
    mask = save_mask(tmp_path / "masks" / "dog" / "1.png")
    found = open_images(tmp_path, negatives="none")
    assert found.classes == ("cat", "dog", "none")
    assert found.targets.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.has_mask.tolist() == [False, False, False, True, True, True]
    masks = found.masks
    assert np.array_equal(masks[3].numpy(), mask)
    assert not masks[4].any()
    assert not masks[0].any()
    only = open_images(tmp_path, classes="dog,cat", size=(5, 6), channels=1)
    assert (only.classes, only.image_shape) == (("dog", "cat"), (1, 5, 6))
    assert only.has_mask.tolist() == [False, False, False, True]


def test_masks_of_another_folder(tmp_path):
    for number in range(2):
        save(tmp_path / "here" / f"{number}.jpg")
    mask = save_mask(tmp_path / "there" / "0.png")
    found = open_images(tmp_path / "here", masks=tmp_path / "there")
    assert found.has_mask.tolist() == [True, False]
    assert np.array_equal(found[[0]][1][0].numpy(), mask)


def test_masks_next_to_loose_images_are_no_class(tmp_path):
    save(tmp_path / "a.png")
    mask = save_mask(tmp_path / "mask" / "a.png")
    found = open_images(str(tmp_path))
    assert (found.classes, list(found.ids)) == (None, ["a.png"])
    assert np.array_equal(found[[0]][1][0].numpy(), mask)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("a.png", np.full((4, 4), 51, np.uint8), 0.2),
        ("a.tif", np.full((4, 4), 51, np.uint8), 0.2),
        ("a.png", np.full((4, 4), 13107, np.uint16), 0.2),
        ("a.tif", np.full((4, 4), 13107, np.uint16), 0.2),
        ("a.tif", np.full((4, 4), 0.2, np.float32), 0.2),
    ],
)
def test_every_depth_is_between_0_and_1(tmp_path, name, values, expected):
    Image.fromarray(values).save(tmp_path / name)
    found = open_images(tmp_path, channels=1)[[0]][0]
    assert found.shape == (1, 1, 4, 4)
    assert found.numpy() == pytest.approx(np.full((1, 1, 4, 4), expected), abs=1e-6)


def test_a_window_is_also_for_pictures_with_more_than_8_bits(tmp_path):
    Image.fromarray(np.array([[-1000, 40, 240]], np.float32)).save(tmp_path / "hounsfield.tif")
    refused(DataFileError, "window=", lambda: open_images(tmp_path)[:])
    assert open_images(tmp_path, window="40,400")[[0]][0][0, 0].tolist() == [[0, 0.5, 1]]
    refused(ValueError, "window=", lambda: open_images(tmp_path, window=(40, 0)))


def test_gray_and_color(tmp_path):
    save(tmp_path / "a.png", (255, 0, 51), mode="RGB")
    save(tmp_path / "b.png", 51)
    assert open_images(tmp_path).images[:, :, 0, 0].numpy() == pytest.approx(np.array([[1, 0, 0.2], [0.2, 0.2, 0.2]]))
    gray = open_images(tmp_path, channels=1).images[:, 0, 0, 0].tolist()
    assert gray == pytest.approx([0.299 + 0.114 * 0.2, 0.2], abs=1e-6)
    assert load(f"photographs:{tmp_path}", size=8, channels=1, splits=(0, 0, 1)).test.images.shape == (2, 1, 8, 8)
    refused(ValueError, "channels=", lambda: open_images(tmp_path, channels=2))


def scans(tmp_path):
    """Two patients in DICOM, in folders as exported, and a volume."""
    values = np.full((10, 12), 40, np.int16)
    for patient in ("p1", "p2"):
        for number in range(2):
            place = tmp_path / patient / "study" / "series" / f"IM{number}"  # without suffix
            write_slice(place, values + number, image=f"1.{patient[1]}.{number}", series="1", z=0, PatientID=patient)
    (tmp_path / "p1" / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    (tmp_path / "p1" / "readme.txt").write_text("no image")
    return values


def test_dicom_files_as_a_scanner_exports_them(tmp_path):
    scans(tmp_path)
    found = open_images(tmp_path, window=(40, 400), channels=1)
    assert len(found) == 4
    assert found.ids[0] == "p1/study/series/IM0"
    assert found.groups.tolist() == [0, 0, 1, 1]
    assert found.groups_by == "patients"
    assert found.images[:, 0, 0, 0].tolist() == pytest.approx([0.5, 0.5025, 0.5, 0.5025])


def test_slices_of_a_volume_and_their_masks(tmp_path):
    body = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5)
    marks = (body == 27).astype(np.uint8)
    for label in ("ill", "well"):
        write_nifti(tmp_path / "image" / label / "scan.nii.gz", body + (label == "ill"))
    write_nifti(tmp_path / "mask" / "ill" / "scan.nii.gz", marks)
    found = open_images(tmp_path, negatives="well", channels=1)
    assert list(found.ids) == [
        f"image/{label}/scan.nii.gz#{number}" for label in ("ill", "well") for number in range(3)
    ]
    assert [int(mask.sum()) for mask in found.masks] == [0, 1, 0, 0, 0, 0]
    assert found.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.groups_by == "identical images and files"
    assert found[[4]][0][0, 0].numpy() == pytest.approx(body[1] / 59)
    assert list(open_images(tmp_path, slices=[1], negatives="well").ids) == [one for one in found.ids if "#1" in one]
    refused(DataFileError, "slices=[3]", lambda: open_images(tmp_path, slices=[3]))
    test = load(f"folder:{tmp_path}", size=4, splits=(0, 0, 1), negatives="well", slices="0,1", window=(30, 60)).test
    assert len(test) == 4
    assert test.masks.flatten(1).any(1).tolist() == [False, True, False, False]


def test_one_file_is_a_source(tmp_path):
    path = write_nifti(tmp_path / "scan.nii.gz", np.zeros((3, 4, 5), np.int16))
    save(tmp_path / "other.png")
    assert list(open_images(path).ids) == [f"scan.nii.gz#{number}" for number in range(3)]


def test_a_picture_is_no_mask_of_several_slices(tmp_path):
    write_nifti(tmp_path / "image" / "scan.nii.gz", np.zeros((3, 10, 12), np.int16))
    save_mask(tmp_path / "mask" / "scan.png")
    refused(DataFileError, "scan.png", lambda: open_images(tmp_path)[:])


def test_a_picture_is_a_mask_of_a_dicom_file(tmp_path):
    write_slice(tmp_path / "image" / "1.dcm", np.zeros((10, 12), np.int16), image="1.2", series="1", z=0)
    mask = save_mask(tmp_path / "mask" / "1.png")
    assert np.array_equal(open_images(tmp_path)[[0]][1][0].numpy(), mask)
    save_mask(tmp_path / "mask" / "1.png", size=(13, 10))
    refused(DataFileError, "1.png", lambda: open_images(tmp_path)[0])


def test_sizes_that_differ_need_a_size(tmp_path):
    save(tmp_path / "a.png")
    save(tmp_path / "b.png", size=(20, 30))
    refused(ValueError, "10×12, 30×20", lambda: open_images(tmp_path))
    assert open_images(tmp_path, size=7).images.shape == (2, 3, 7, 7)


def test_what_is_no_source_is_named(tmp_path):
    refused(MissingDataError, "no images", lambda: open_images(tmp_path))
    refused(MissingDataError, "nowhere", lambda: open_images(tmp_path / "nowhere"))
    refused(TypeError, "int", lambda: open_images(3))
    refused(ValueError, "window:", lambda: open_images(torch.rand(2, 1, 4, 4), window=(0, 1)))


def test_arrays(tmp_path):
    images, masks = np.random.default_rng(0).random((4, 1, 6, 6)), np.eye(6)[None].repeat(4, 0)
    found = open_images(images, masks=masks, targets=[0, 1, 1, 0], classes="cat,dog", channels=3)
    assert (found.classes, found.image_shape) == (("cat", "dog"), (3, 6, 6))
    assert found[[2]][0][0, 1].numpy() == pytest.approx(images[2, 0], abs=1e-6)
    assert torch.equal(found[[2]][1][0], torch.eye(6, dtype=torch.bool))
    eight = open_images(torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)).images
    assert eight.unique().tolist() == pytest.approx([0.2])
    assert open_images(images, size=(3, 12)).images.shape == (4, 1, 3, 12)
    refused(ValueError, "[0, 1]", open_images, images * 2)
    refused(ValueError, "[N, C, H, W]", open_images, images[0])
    refused(ValueError, "masks:", lambda: open_images(images, masks=masks[:2]))
    refused(ValueError, "targets:", lambda: open_images(images, targets=[0]))
    refused(ValueError, "1 names", lambda: open_images(images, targets=[0, 1, 2, 0], classes=["a"]))


def test_data_sets_and_their_parquet_files(tmp_path):
    data = load("xai-tris/lin-white-8x8", n_samples=100)
    split = Split((data.test.images + 3) / 6, data.test.masks, data.test.targets)
    data = Dataset(split, split, split, data.info)
    write_parquet(data, tmp_path)
    file = tmp_path / "data" / "test.parquet"
    for source in (data, data.test, tmp_path, f"parquet:{tmp_path}", file):
        found = open_images(source)
        assert found.classes == (("0", "1") if source is data.test else ("T", "L"))
        assert found.has_mask.all()
        assert torch.equal(found.images, split.images)
        assert torch.equal(found.masks, split.masks)


@pytest.fixture
def table():
    """A ``datasets.Dataset`` as on the Hub: pictures, masks for some, named classes."""
    datasets = pytest.importorskip("datasets")
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (10, 12, 3), dtype=np.uint8)) for _ in range(20)]
    marks = np.zeros((10, 12), np.uint8)
    marks[2:6, 3:9] = 255
    masks = [Image.fromarray(marks) if number % 4 else None for number in range(20)]
    features = datasets.Features(
        image=datasets.Image(), mask=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"])
    )
    columns = {"image": pictures, "mask": masks, "label": [number % 2 for number in range(20)]}
    return datasets.Dataset.from_dict(columns, features=features), pictures, marks > 0


def test_a_table_of_the_datasets_library(table):
    rows, pictures, mask = table
    found = open_images(rows.select([3, 4, 5]))
    assert (found.classes, found.image_shape) == (("cat", "dog"), (3, 10, 12))
    assert found.has_mask.tolist() == [True, False, True]
    assert found.targets.tolist() == [1, 0, 1]
    assert found.images[1].numpy() == pytest.approx(np.asarray(pictures[4]).transpose(2, 0, 1) / 255, abs=1e-6)
    assert np.array_equal(found.masks[0].numpy(), mask)


def test_a_table_as_a_data_set(table):
    rows, _, _ = table
    data = from_datasets(rows, size=12)
    assert data.classes == ("cat", "dog")
    assert sum(len(split) for split in (data.train, data.val, data.test)) == 15  # with a mask
    assert data.test.masks.flatten(1).any(1).all()
    whole = from_datasets(rows, size=12, splits=(0, 0, 1), include_unannotated=True, channels=1)
    assert whole.test.images.shape == (20, 1, 12, 12)
    plain = from_datasets(rows.remove_columns(["mask", "label"]), size=12, splits=(0, 0, 1))
    assert plain.classes == ("unlabeled",)
    assert len(plain.test) == 20
    named = from_datasets(rows.rename_columns({"image": "photo", "mask": "where"}), image="photo", mask="where")
    assert len(named.test) == len(data.test)
    refused(ValueError, "label=", lambda: from_datasets(rows, label="kind"))
    refused(DataFileError, "image=", lambda: from_datasets(rows.select_columns(["label"])))
    refused(TypeError, "streaming=", lambda: from_datasets(rows.to_iterable_dataset()))


def test_official_splits_of_a_table(table):
    import datasets

    rows, _, _ = table
    parts = {"train": rows.select(range(12)), "validation": rows.select([13, 14]), "test": rows.select([15, 17, 18])}
    data = from_datasets(datasets.DatasetDict(parts), size=8)
    assert (len(data.train), len(data.val), len(data.test)) == (9, 2, 3)
    assert data.test.ids[:] == ["14", "15", "16"]
    assert torch.equal(open_images(datasets.DatasetDict(parts), size=8).images, data.test.images)
    assert len(from_datasets(datasets.DatasetDict(parts), splits=(0, 0, 1)).test) == 14


def test_parquet_files_of_the_hub(table, tmp_path):
    rows, pictures, mask = table
    (tmp_path / "data").mkdir()
    rows.select(range(12)).to_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
    rows.select(range(12, 20)).to_parquet(tmp_path / "data" / "test.parquet")
    data = load(f"parquet:{tmp_path}", size=12, splits="official")
    assert data.classes == ("cat", "dog")
    assert (len(data.train) + len(data.val), len(data.test)) == (9, 6)
    found = open_images(tmp_path)
    assert len(found) == 8  # the test split
    assert found[[1]][0][0].numpy() == pytest.approx(np.asarray(pictures[13]).transpose(2, 0, 1) / 255, abs=1e-6)
    assert np.array_equal(found[[1]][1][0].numpy(), mask)
    assert found.has_mask.tolist() == [number % 4 > 0 for number in range(12, 20)]
    shutil.rmtree(tmp_path / "data")
    rows.to_parquet(tmp_path / "all.parquet")
    for source in (tmp_path, tmp_path / "all.parquet"):
        assert len(open_images(source)) == 20
    assert len(load(f"parquet:{tmp_path}", size=8).train) == 9
    refused(ValueError, "label=", lambda: load(f"parquet:{tmp_path}", label="kind"))
    refused(TypeError, "'alpha'", lambda: load(f"parquet:{tmp_path}", alpha=8))


def test_a_parquet_file_without_pictures_is_named(tmp_path):
    file = tmp_path / "a.parquet"
    for column, named in (("image", "a.parquet"), ("text", "image=")):
        pq.write_table(pa.table({column: ["text"]}), file)
        refused(DataFileError, named, open_images, file)
    file.write_bytes(b"nothing")
    refused(DataFileError, "a.parquet", lambda: open_images(file))


def test_dicom_files_without_an_image_are_left_out_and_named(tmp_path, caplog):
    path = write_slice(tmp_path / "1.dcm", np.zeros((4, 4), np.int16), image="1.2", series="1", z=0)
    report = pydicom.dcmread(path)
    for name in ("Rows", "Columns", "PixelData"):
        delattr(report, name)
    report.save_as(tmp_path / "report.dcm")
    found = open_images(tmp_path, window=(0, 10))
    assert list(found.ids) == ["1.dcm"]
    assert "files without an image, left out: 1: report.dcm" in caplog.text
    path.unlink()
    refused(MissingDataError, "none of 1", lambda: open_images(tmp_path))
