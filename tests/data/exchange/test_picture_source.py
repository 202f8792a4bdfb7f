"""Small Parquet files that unpack to much, and files that unpack to what they seem."""

import base64
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from refusals import refused

import xaibench as xb
from xaibench.data.annotated import DataFileError
from xaibench.data.exchange.picture_source import read_columns

VALUE = bytes(range(250)) * 8  # two kilobytes

#: Columns of 1,000 rows that take more than a megabyte, in files of less than twenty kilobytes.
INFLATED = {
    "one value in all rows": [VALUE] * 1000,
    "one value many times in a row": [[VALUE] * 1000] + [[]] * 999,
    "a structure": [{"bytes": VALUE, "path": None}] * 1000,
    "a list of equal numbers": [[7] * 200_000] + [[]] * 999,
    "lists of equal numbers": [[7] * 200] * 1000,
}


def write(folder, column):
    file = folder / "test.parquet"
    pq.write_table(pa.table({"image": column, "label": [0] * len(column), "other": column}), file)
    return file


@pytest.mark.parametrize("kind", INFLATED)
def test_content_that_inflates_is_refused(tmp_path, monkeypatch, kind):
    file = write(tmp_path, INFLATED[kind])
    assert file.stat().st_size < 20_000
    monkeypatch.setenv("XAIBENCH_MAX_GB", "1e-3")
    refused(DataFileError, "XAIBENCH_MAX_GB", read_columns, [file], ["image"])
    refused(DataFileError, "test.parquet", lambda: xb.load(f"parquet:{tmp_path}", splits=(0.0, 0.0, 1.0)))
    assert len(read_columns([file], ["label"])) == 1000, "columns that are not read do not count"


@pytest.mark.parametrize("kind", ["one value many times in a row", "a list of equal numbers"])
def test_a_row_that_inflates_is_not_read(tmp_path, monkeypatch, kind):
    file = write(tmp_path, INFLATED[kind])
    monkeypatch.setenv("XAIBENCH_MAX_GB", "1e-3")
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was read"))
    refused(DataFileError, "values in 1,000 rows", read_columns, [file], ["image"])


@pytest.mark.parametrize("kind", INFLATED)
def test_what_is_within_the_limit_is_read(tmp_path, monkeypatch, kind):
    file = write(tmp_path, INFLATED[kind])
    if "many times" in kind:  # any of its values could be as long as all of them together
        monkeypatch.setenv("XAIBENCH_MAX_GB", "100")
    assert read_columns([file], ["image"])["image"].to_pylist() == INFLATED[kind]


def test_files_that_are_large_together_are_refused(tmp_path, monkeypatch):
    file = write(tmp_path, [VALUE] * 300)
    monkeypatch.setenv("XAIBENCH_MAX_GB", "1e-3")
    assert len(read_columns([file], ["image"])) == 300
    refused(DataFileError, "600 rows or more", read_columns, [file, file], ["image"])


def test_many_rows_and_a_limit_that_is_no_number_are_refused_before_they_are_read(tmp_path, monkeypatch):
    file = write(tmp_path, [None] * 1000)
    monkeypatch.setenv("XAIBENCH_MAX_GB", "99e-6")
    refused(DataFileError, "1,000 rows", read_columns, [file], ["label"])
    monkeypatch.setenv("XAIBENCH_MAX_GB", "much")
    refused(ValueError, "XAIBENCH_MAX_GB='much'", read_columns, [file], ["image"])


def test_pictures_are_read_a_few_rows_at_a_time_if_one_may_be_large(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda self, rows, columns: read.append(rows) or iter(()))
    read_columns([write(tmp_path, [VALUE] * 10)], ["image"])
    monkeypatch.setenv("XAIBENCH_MAX_GB", "1e-4")
    read_columns([tmp_path / "test.parquet"], ["image"])
    assert read[0] == 1000
    assert 5 < read[1] < 100


def test_a_label_as_large_as_a_damaged_one_makes_no_classes(tmp_path):
    pq.write_table(pa.table({"image": [VALUE] * 2, "label": [0, 2**31]}), tmp_path / "test.parquet")
    refused(DataFileError, "2147483648", lambda: xb.load(f"parquet:{tmp_path}", splits=(0.0, 0.0, 1.0)))
    images = np.zeros((2, 1, 4, 4), dtype=np.float32)
    refused(ValueError, "2147483648", lambda: xb.data.open_images(images, targets=[0, 2**31]))


def test_an_encrypted_column_is_an_error_instead_of_the_end_of_the_process(tmp_path):
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):
        def __init__(self, config):
            encryption.KmsClient.__init__(self)

        def wrap_key(self, key, name):
            return base64.b64encode(key)

    how = encryption.EncryptionConfiguration("footer", column_keys={"key": ["image"]}, plaintext_footer=True)
    made = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), how)
    table = pa.table({"image": [VALUE] * 4, "label": [0, 1, 0, 1]})
    with pq.ParquetWriter(tmp_path / "test.parquet", table.schema, encryption_properties=made) as file:
        file.write_table(table)
    refused(DataFileError, "test.parquet", lambda: xb.load(f"parquet:{tmp_path}", splits=(0.0, 0.0, 1.0)))


def png(side):
    content = io.BytesIO()
    Image.new("1", (side, side)).save(content, "png")
    return {"bytes": content.getvalue(), "path": None}


def test_a_picture_of_too_many_pixels_is_refused(tmp_path, monkeypatch):
    pq.write_table(pa.table({"image": [png(30)] * 2, "label": [0, 1]}), tmp_path / "test.parquet")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    refused(DataFileError, "row 0, image", lambda: xb.load(f"parquet:{tmp_path}", splits=(0.0, 0.0, 1.0)).test[0])


def test_metadata_nested_deeply_are_no_class_names(tmp_path):
    table = pa.table({"image": [png(8)] * 2, "label": [0, 1]}).replace_schema_metadata({"huggingface": "[" * 100_000})
    pq.write_table(table, tmp_path / "test.parquet")
    assert xb.load(f"parquet:{tmp_path}", size=8, splits=(0.0, 0.0, 1.0)).classes == ("0", "1")
