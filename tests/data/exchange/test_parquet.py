"""Sets as Parquet files: the same bits back, and clear words where a file is not what it should be."""

import dataclasses
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from generators import folder as own_folder
from refusals import refused

import xaibench as xb
from xaibench.data import Dataset, Split, read_parquet, write_parquet
from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.registry.info import DatasetInfo

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


def test_an_empty_split_comes_back(tmp_path):
    dataset = make(torch.randn(5, 1, 4, 4))
    dataset = dataclasses.replace(dataset, val=Split(*dataset.val[[]]))
    write_parquet(dataset, tmp_path)
    assert_same(read_parquet(tmp_path), dataset)


def test_ones_own_photographs_come_back_to_the_bit(tmp_path):
    own_folder.write(tmp_path / "mine")
    dataset = xb.load(f"folder:{tmp_path / 'mine'}", size=20, splits=(0.4, 0.3, 0.3))
    write_parquet(dataset, tmp_path / "out")
    back = read_parquet(tmp_path / "out")
    assert back.parameters["splits"] == (0.4, 0.3, 0.3)
    assert_same(back, dataset)


def test_seeds_are_the_sets_own_and_parameters_plain(tmp_path):
    write_parquet(make(torch.randn(4, 1, 4, 4)), tmp_path)
    assert xb.load(f"parquet:{tmp_path}", seed=5).parameters["seed"] == 5
    refused(ValueError, "seed=2", lambda: xb.load(f"parquet:{tmp_path}", seed=2))
    refused(TypeError, "alpha", lambda: xb.load(f"parquet:{tmp_path}", alpha=0.1))
    refused(TypeError, "made", lambda: write_parquet(make(torch.randn(4, 1, 4, 4), odd=torch.ones(2)), tmp_path))


@pytest.fixture
def written(tmp_path):
    """A folder, and its file of the test split."""
    write_parquet(make(torch.randn(6, 1, 4, 4)), tmp_path)
    return tmp_path, tmp_path / "data" / "test.parquet"


def rewrite(file, change=lambda table: table, **notes):
    """Write a file anew, changed; ``notes`` are entries of what its footer says."""
    table = change(pq.read_table(file))
    said = json.loads(table.schema.metadata[b"xaibench"]) | notes
    pq.write_table(table.replace_schema_metadata({b"xaibench": json.dumps(said)}), file)


@pytest.mark.parametrize("column", [0, 1, 2, None])
def test_damage(written, column):
    """In the pages of image, mask or target, or in the footer."""
    folder, _ = written
    file = folder / "data" / "train.parquet"
    raw = bytearray(file.read_bytes())
    place = len(raw) - 4
    if column is not None:
        pages = pq.read_metadata(file).row_group(0).column(column)
        start = pages.dictionary_page_offset if pages.has_dictionary_page else pages.data_page_offset
        place = start + pages.total_compressed_size - 4
    raw[place : place + 3] = bytes(byte ^ 0x55 for byte in raw[place : place + 3])
    file.write_bytes(raw)
    refused(DataFileError, "train.parquet", lambda: read_parquet(folder))


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
    refused(TypeError, "data", lambda: xb.data.to_datasets([dataset.val]))


def test_to_datasets_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    dataset = xb.load("xai-tris/rigid-corr-8x8", n_samples=100)
    refused(ImportError, "xaibench[hub]", xb.data.to_datasets, dataset)


def test_datasets_reads_the_files(tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = xb.load("xai-tris/rigid-corr-8x8", n_samples=100)
    write_parquet(dataset, tmp_path / "set")
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].features["target"].names == ["T", "L"]
    for name, split in (("train", dataset.train), ("validation", dataset.val), ("test", dataset.test)):
        rows = loaded[name].with_format("torch")[:]
        for column, expected in zip(("image", "mask", "target"), split[:], strict=True):
            assert torch.equal(rows[column], expected)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("target", pa.array([3])),
        ("target", pa.array([-1])),
        ("target", pa.array([None], pa.int64())),
        ("target", pa.array(["a"])),
        ("image", pa.array([[[[1.0] * 4] * 3]], pa.list_(pa.list_(pa.list_(pa.float32()))))),
        ("image", pa.array([None], pa.list_(pa.list_(pa.list_(pa.float32()))))),
        ("image", pa.array([b"x"])),
        ("mask", pa.array([[[True] * 4] * 5])),
    ],
)
def test_bad_values(written, column, values):
    folder, file = written
    rewrite(file, lambda table: table.set_column(table.column_names.index(column), column, values))
    refused(DataFileError, "test.parquet", lambda: read_parquet(folder))


@pytest.mark.parametrize(
    "notes",
    [
        {"format": 1},
        {"batch_size": 3},
        {"info": {"name": "x"}},
        {"info": {"name": "x", "classes": ["a"], "image_shape": [1, -4, 4]}},
        {"info": []},
    ],
)
def test_bad_footers(written, notes):
    folder, file = written
    for other in (file,) if "batch_size" in notes else sorted(file.parent.iterdir()):  # one, or all of them
        rewrite(other, **notes)
    refused(DataFileError, ".parquet", lambda: read_parquet(folder))


def test_lost_rows_and_missing_files(written):
    folder, file = written
    rewrite(file, lambda table: table.slice(0, 0))
    refused(DataFileError, "test.parquet", read_parquet, folder)
    file.unlink()
    for path in (folder, "nowhere"):
        refused(MissingDataError, "test.parquet", xb.load, f"parquet:{path}")
