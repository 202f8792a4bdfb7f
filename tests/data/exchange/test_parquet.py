"""Sets as Parquet files: the same bits back, and clear words where a file is not what it should be."""

import dataclasses
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from generators import folder as own_folder
from PIL import Image

import xaibench as xb
from xaibench.component.info import DatasetInfo
from xaibench.data import Dataset, Split, read_parquet, write_parquet
from xaibench.data.annotated import DataFileError, MissingDataError

PARTS = ("train", "val", "test")


def make(images, masks=None, **parameters):
    """A set of three splits from images ``[N,C,H,W]``: all but the last two, and these."""
    masks = torch.rand(len(images), *images.shape[2:], generator=torch.Generator().manual_seed(1)) > 0.5
    targets = torch.arange(len(images)) % 3
    parts = [slice(0, -2), slice(-2, -1), slice(-1, None)]
    info = DatasetInfo("made", ("one", "two", "três <b>"), tuple(images.shape[1:]), published=(("one", 7),), revision=4)
    splits = [Split(images[part], masks[part], targets[part]) for part in parts]
    return Dataset(*splits, info=info, parameters={"seed": 5, "sizes": (1, (2.5, None)), **parameters}, batch_size=17)


def bits(dataset):
    for part in PARTS:
        split = getattr(dataset, part)
        yield part, split.images.contiguous().view(torch.int32), split.masks, split.targets


def assert_same(one, other):
    assert one.info == other.info
    assert dict(one.parameters) == dict(other.parameters)
    assert list(one.parameters) == list(other.parameters)
    assert one.batch_size == other.batch_size
    for (part, *mine), (_, *theirs) in zip(bits(one), bits(other), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype == b.dtype, part
            assert torch.equal(a, b), part


@pytest.mark.parametrize(
    "name", ["xai-tris/rigid-corr-8x8", "xai-tris/xor-white-64x64", "xai-tris/rigid-white-16x16x16"]
)
def test_generated_sets_come_back_to_the_bit(tmp_path, name):
    dataset = xb.load(name, seed=3, n_samples=100)
    write_parquet(dataset, tmp_path)
    assert_same(read_parquet(tmp_path), dataset)
    assert_same(xb.load(f"parquet:{tmp_path}"), dataset)
    assert repr(xb.load(f"parquet:{tmp_path}/data", seed=3)) == repr(dataset)
    assert xb.data.DATASETS.resolve(f"parquet:{tmp_path}").info == dataset.info
    train, _, _ = xb.loading(f"parquet:{tmp_path}", batch_size=7, verbose=False)
    assert next(iter(train))[0].shape == (7, *dataset.info.image_shape)


def test_every_float_comes_back(tmp_path):
    values = [0.0, -0.0, 1e-45, -1e-38, 3.4e38, float("inf"), float("-inf"), float("nan"), 1 / 3, 0.1, 1.0, -1.0]
    dataset = make(torch.tensor(values * 10).reshape(10, 2, 2, 3))
    write_parquet(dataset, tmp_path)
    assert_same(read_parquet(tmp_path), dataset)


@pytest.mark.parametrize("channels", [1, 3])
def test_eight_bit_images_are_pictures_and_come_back_to_the_bit(tmp_path, channels):
    every = torch.arange(256, dtype=torch.uint8).repeat(channels * 2).reshape(2, channels, 16, 16)
    dataset = make(torch.cat([every, every.flip(3), every.flip(2)]).to(torch.float32) / 255)
    files = write_parquet(dataset, tmp_path)
    table = pq.read_table(files[0])
    assert table.column_names == ["image", "mask", "target"]
    with Image.open(io.BytesIO(table["image"][0]["bytes"].as_py())) as picture:
        assert (picture.format, picture.mode, picture.size) == ("PNG", "L" if channels == 1 else "RGB", (16, 16))
    assert_same(read_parquet(tmp_path), dataset)


@pytest.mark.parametrize("odd", [-0.0, 0.5, 1.001, -1 / 255, float("nan")])
def test_one_pixel_that_is_no_byte_keeps_all_as_floats(tmp_path, odd):
    images = torch.zeros(6, 3, 4, 4)
    images[-1, -1, -1, -1] = odd  # in the last file that is written
    dataset = make(images)
    files = write_parquet(dataset, tmp_path)
    assert all(pq.read_schema(file).names == ["image", "mask", "target", "preview"] for file in files)
    assert_same(read_parquet(tmp_path), dataset)


def test_a_split_is_shared_out_over_files_and_older_files_go(tmp_path):
    dataset = make(torch.randn(30, 1, 4, 4))
    many = write_parquet(dataset, tmp_path, max_file_bytes=64 * 10)
    assert [file.name for file in many[:3]] == [f"train-0000{n}-of-00003.parquet" for n in range(3)]
    assert_same(read_parquet(tmp_path), dataset)
    files = write_parquet(dataset, tmp_path)
    assert sorted((tmp_path / "data").iterdir()) == sorted(files)
    assert len(files) == 3
    assert_same(read_parquet(tmp_path), dataset)


def test_an_empty_split_comes_back(tmp_path):
    dataset = make(torch.randn(5, 1, 4, 4))
    dataset = dataclasses.replace(dataset, val=Split(*dataset.val[[]]))
    write_parquet(dataset, tmp_path)
    assert_same(read_parquet(tmp_path), dataset)


def test_ones_own_photographs_come_back_to_the_bit(tmp_path):
    own_folder.write(tmp_path / "mine")
    dataset = xb.load(f"folder:{tmp_path / 'mine'}", size=20, splits=(0.4, 0.3, 0.3))
    files = write_parquet(dataset, tmp_path / "out")
    assert "preview" not in pq.read_schema(files[0]).names
    back = read_parquet(tmp_path / "out")
    assert back.parameters["splits"] == (0.4, 0.3, 0.3)
    assert_same(back, dataset)


def test_previews_show_zero_in_middle_gray_and_are_large_enough_to_see(tmp_path):
    images = torch.zeros(3, 1, 8, 8)
    images[0, 0, 0, 0], images[0, 0, 7, 7], images[1] = -0.5, 0.25, -2.0
    write_parquet(make(torch.cat([images, images])), tmp_path)
    table = pq.read_table(tmp_path / "data" / "train-00000-of-00001.parquet")
    seen = []
    for one in table["preview"]:
        with Image.open(io.BytesIO(one["bytes"].as_py())) as picture:
            seen.append(np.asarray(picture))
    assert seen[0].shape == (64, 64)
    assert (seen[0][0, 0], seen[0][-1, -1], seen[0][0, -1]) == (0, 191, 128)
    assert (seen[1] == 0).all()
    assert (seen[2] == 128).all()


def test_masks_are_pictures_of_black_and_white(tmp_path):
    dataset = make(torch.randn(5, 1, 4, 6))
    write_parquet(dataset, tmp_path)
    table = pq.read_table(tmp_path / "data" / "train-00000-of-00001.parquet")
    for one, mask in zip(table["mask"], dataset.train.masks, strict=True):
        with Image.open(io.BytesIO(one["bytes"].as_py())) as picture:
            assert np.array_equal(np.asarray(picture), 255 * mask.numpy())


def test_other_seeds_than_the_sets_own_are_refused(tmp_path):
    write_parquet(make(torch.randn(4, 1, 4, 4)), tmp_path)
    assert xb.load(f"parquet:{tmp_path}", seed=5).parameters["seed"] == 5
    with pytest.raises(ValueError, match=r"seed=2: parquet:.* only has the samples of seed 5; leave seed"):
        xb.load(f"parquet:{tmp_path}", seed=2)
    with pytest.raises(TypeError, match="has no parameter 'alpha'"):
        xb.load(f"parquet:{tmp_path}", alpha=0.1)


def test_parameters_must_be_plain(tmp_path):
    with pytest.raises(
        TypeError, match=r"made: its parameters cannot be written .*Tensor.*; expected numbers, strings"
    ):
        write_parquet(make(torch.randn(4, 1, 4, 4), odd=torch.ones(2)), tmp_path)


@pytest.fixture
def written(tmp_path):
    """A folder, and its file of the test split."""
    write_parquet(make(torch.randn(6, 1, 4, 4)), tmp_path)
    return tmp_path, tmp_path / "data" / "test-00000-of-00001.parquet"


def rewrite(file, change=lambda table: table, **notes):
    """Write a file anew, changed; ``notes`` are entries of what its footer says."""
    table = change(pq.read_table(file))
    said = json.loads(table.schema.metadata[b"xaibench"]) | notes
    pq.write_table(table.replace_schema_metadata({b"xaibench": json.dumps(said)}), file)


def test_a_folder_without_a_set(tmp_path):
    with pytest.raises(
        MissingDataError,
        match=r"has no data set written by xaibench: expected files such as data/train-00000-of-00001.parquet",
    ):
        xb.load(f"parquet:{tmp_path}")
    with pytest.raises(MissingDataError, match="nowhere has no data set"):
        xb.load("parquet:nowhere")


def test_a_missing_file(written):
    folder, file = written
    file.unlink()
    with pytest.raises(MissingDataError, match=r"test-00000-of-00001.parquet is missing; get the folder again"):
        read_parquet(folder)


def test_files_of_two_sets(written):
    folder, file = written
    file.rename(file.with_name("test-00000-of-00002.parquet"))
    with pytest.raises(MissingDataError, match=r"test-00001-of-00002.parquet is missing"):
        read_parquet(folder)
    write_parquet(make(torch.randn(6, 1, 4, 4), other=1), folder / "other")
    (folder / "other" / "data" / file.name).rename(file)
    with pytest.raises(DataFileError, match="has test twice, in 00001 and in 00002 files; remove one"):
        read_parquet(folder)
    file.with_name("test-00000-of-00002.parquet").unlink()
    with pytest.raises(DataFileError, match=r"belongs to another data set than test-00000-of-00001.parquet"):
        read_parquet(folder)


def test_lost_rows(written):
    folder, file = written
    rewrite(file, lambda table: table.slice(0, 0))
    with pytest.raises(DataFileError, match="has 0 samples of test, expected 1; get the folder again"):
        read_parquet(folder)


@pytest.mark.parametrize("column", [0, 1, 3, None])
def test_damage(written, column):
    """In the pages of image, mask or target, or in the footer."""
    folder, _ = written
    file = folder / "data" / "train-00000-of-00001.parquet"
    raw = bytearray(file.read_bytes())
    place = len(raw) - 4
    if column is not None:
        pages = pq.read_metadata(file).row_group(0).column(column)
        start = pages.dictionary_page_offset if pages.has_dictionary_page else pages.data_page_offset
        place = start + pages.total_compressed_size - 4
    raw[place : place + 3] = bytes(byte ^ 0x55 for byte in raw[place : place + 3])
    file.write_bytes(raw)
    with pytest.raises(DataFileError, match=r"train-00000-of-00001.parquet"):
        read_parquet(folder)


def test_files_of_others(written):
    folder, file = written
    for part in ("train", "validation", "test"):
        pq.write_table(pa.table({"image": [1]}), file.with_name(f"{part}-00000-of-00001.parquet"))
    with pytest.raises(DataFileError, match="was not written by xaibench: its footer has no metadata of a data set"):
        read_parquet(folder)


def picture(**size):
    stream = io.BytesIO()
    Image.new("L", **size).save(stream, "PNG")
    return pa.array(
        [{"bytes": stream.getvalue(), "path": None}], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    )


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("target", pa.array([3]), r"targets such as \[3\]; expected 0 to 2"),
        ("target", pa.array([-1]), r"targets such as \[-1\]"),
        ("target", pa.array([None], pa.int64()), "without missing values"),
        ("target", pa.array(["a"]), "other columns than xaibench writes"),
        ("image", pa.array([[[[1.0] * 4] * 3]], pa.list_(pa.list_(pa.list_(pa.float32())))), r"shape \[1, 4, 4\]"),
        ("image", pa.array([None], pa.list_(pa.list_(pa.list_(pa.float32())))), "without missing values"),
        ("image", pa.array([b"x"]), "other columns"),
        ("mask", picture(size=(4, 5)), "a picture is 5×4, expected 4×4"),
        ("mask", picture(size=(4, 4)).take(pa.array([None], pa.int64())), "a picture is missing"),
        (
            "mask",
            pa.array([{"bytes": b"no", "path": None}], picture(size=(1, 1)).type),
            "not an image that Pillow reads",
        ),
    ],
)
def test_values_that_cannot_be(written, column, values, message):
    folder, file = written
    rewrite(file, lambda table: table.set_column(table.column_names.index(column), column, values))
    with pytest.raises(DataFileError, match=message):
        read_parquet(folder)


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"format": 2, "version": "9.1"}, r"has format 2 of xaibench 9.1, .* Install a newer version"),
        ({"info": {"name": "x"}}, "has invalid metadata of its data set"),
        ({"info": {"name": "x", "classes": ["a"], "image_shape": [1, -4, 4]}}, "expected .C, H, W."),
        ({"info": []}, "has invalid metadata of its data set"),
    ],
)
def test_footers_that_cannot_be(written, notes, message):
    folder, file = written
    for other in sorted(file.parent.iterdir()):
        rewrite(other, **notes)
    with pytest.raises(DataFileError, match=message):
        read_parquet(folder)


def test_what_a_newer_version_adds_to_the_info_is_left_out(written):
    folder, file = written
    info = dataclasses.asdict(read_parquet(folder).info)
    for other in sorted(file.parent.iterdir()):
        rewrite(other, info={**info, "mood": "good"})
    assert read_parquet(folder).info == make(torch.randn(6, 1, 4, 4)).info


def test_to_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = xb.load("xai-tris/rigid-corr-8x8", n_samples=100)
    converted = xb.data.to_datasets(dataset)
    assert {name: len(split) for name, split in converted.items()} == {"train": 80, "validation": 10, "test": 10}
    features = converted["test"].features
    assert features["image"] == datasets.Array3D((1, 8, 8), "float32")
    assert features["mask"] == datasets.Array2D((8, 8), "bool")
    assert features["target"] == datasets.ClassLabel(names=["T", "L"])
    rows = converted["test"].with_format("torch")[:]
    for name, expected in zip(("image", "mask", "target"), dataset.test[:], strict=True):
        assert rows[name].dtype == expected.dtype
        assert torch.equal(rows[name], expected)
    alone = xb.data.to_datasets(dataset.val)
    assert alone.features["target"] == datasets.Value("int64")
    assert torch.equal(alone.with_format("torch")[3]["image"], dataset.val[3][0])
    with pytest.raises(TypeError, match=r"data: got list, expected a data set of xaibench.load or one of its splits"):
        xb.data.to_datasets([dataset.val])


def test_to_datasets_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ImportError, match=r'pip install "xaibench\[hub\]"'):
        xb.data.to_datasets(xb.load("xai-tris/rigid-corr-8x8", n_samples=100))


def test_datasets_reads_what_is_uploaded(tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = xb.load("xai-tris/rigid-corr-8x8", n_samples=100)
    xb.hub.prepare_dataset(dataset, tmp_path / "set")
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].features["image"] == datasets.Array3D((1, 8, 8), "float32")
    assert loaded["train"].features["target"].names == ["T", "L"]
    for part, split in (("train", dataset.train), ("validation", dataset.val), ("test", dataset.test)):
        rows = loaded[part].with_format("torch", columns=["image", "target"])[:]
        assert torch.equal(rows["image"], split.images)
        assert torch.equal(rows["target"], split.targets)
        assert all(
            np.array_equal(np.asarray(mask) > 0, expected.numpy())
            for mask, expected in zip(loaded[part]["mask"], split.masks, strict=True)
        )
