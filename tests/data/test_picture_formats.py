"""Files with the name of a picture are opened as pixels only: no reader starts another program for them."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import EpsImagePlugin, Image

import xaibench as xb
from xaibench.benchmarks.xai_tris.photo_backgrounds import image_backgrounds
from xaibench.data.annotated import DataFileError
from xaibench.data.disk.image_files import image_size, open_image, read_indices

CONTENTS = {
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\n%%EOF\n",
    "pdf": b"%PDF-1.4\n%%EOF\n",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"/>',
}


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """A program in the place of Ghostscript; the file that it writes when it is started."""
    started = tmp_path / "started"
    (tmp_path / "bin").mkdir()
    for name in ("gs", "gswin64c"):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n: > '{started}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow looks for it once
    return started


def read_split(name):
    test = xb.load(name, size=8, splits=(0.0, 0.0, 1.0)).test
    return [test[number] for number in range(len(test))]


def read_table(folder):
    rows = [{"bytes": file.read_bytes(), "path": None} for file in sorted(folder.rglob("*.png"))]
    pq.write_table(pa.table({"image": rows, "label": [0] * len(rows)}), folder / "test.parquet")
    return read_split(f"parquet:{folder}")


READERS = {
    "image": lambda folder: open_image(folder / "cat" / "0.png", 8),
    "mask": lambda folder: read_indices(folder / "cat" / "0.png"),
    "size": lambda folder: image_size(folder / "cat" / "0.png"),
    "photographs": lambda folder: read_split(f"photographs:{folder}"),
    "audit": lambda folder: xb.data.open_images(folder, size=8)[:],
    "backgrounds": lambda folder: image_backgrounds(folder, 4, 8, seed=0, cache_dir=folder / "cache"),
    "parquet": read_table,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", CONTENTS)
def test_what_is_no_pixel_format_starts_no_program(tmp_path, ghostscript, kind, reader):
    folder = tmp_path / "photographs"
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        Image.fromarray(np.zeros((40, 40, 3), dtype=np.uint8)).save(folder / label / "1.png")
    (folder / "cat" / "0.png").write_bytes(CONTENTS[kind])
    with pytest.raises(DataFileError, match=r"not an image|cannot identify|parquet"):
        READERS[reader](folder)
    assert not ghostscript.exists()


def test_the_program_would_be_started_by_pillow(tmp_path, ghostscript):
    """Without the list of formats: otherwise the test above could not fail."""
    (tmp_path / "a.png").write_bytes(CONTENTS["eps"])
    with pytest.raises(OSError), Image.open(tmp_path / "a.png") as image:  # noqa: PT011  # the stand-in draws nothing
        image.load()
    assert ghostscript.exists()
