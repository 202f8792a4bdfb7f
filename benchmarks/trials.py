"""Stress tests of `docs/reliability.md`: flipped bits, damaged files, killed runs. Each takes minutes; not in CI.

python benchmarks/trials.py flips            every bit of a stored score, of maps, of weights and of a merged cell
python benchmarks/trials.py files            mangled pickles, archives, scans, photographs, lists and maps, all read
python benchmarks/trials.py metrics          10,000 inputs for each metric (the profile `fuzz` of tests/metrics)
python benchmarks/trials.py kills            a run killed outright, time and again, at random moments
python benchmarks/trials.py ... --seed 7 --count 500

Each prints its seed, its tests and their results, and exits with 1 if one failed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image

from xaibench.benchmarks.xai_tris.released_pickles import read_released, write_released
from xaibench.data import load
from xaibench.data.annotated import DataFileError
from xaibench.data.disk.archives import unpack
from xaibench.data.disk.file_readers import read_xml
from xaibench.data.disk.image_files import open_image, read_indices
from xaibench.data.photographs.coco_captions import read_items
from xaibench.data.scans.ct_reading import read_header, read_slice
from xaibench.data.scans.nifti_volumes import read_volume
from xaibench.evaluation import MapFileError, read_maps
from xaibench.runner import run
from xaibench.runner.store.result_store import CorruptResultError, Store

ROOT = Path(__file__).resolve().parent.parent
_Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]

SUITE = """
name = "trial"
title = "Trial"

[data]
parameters = { n_samples = 200 }

[training]
seeds = [0, 1]
epochs = 2
batch_size = 64

[explaining]
samples = 5

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["llr", "mlp"]

[explainers]
saliency = {}
lime = { n_samples = 10 }
uniform = {}

[metrics]
emd_perf = {}
topk_precision = {}
"""
TABLES = ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv")


def flips(seed: int, count: int | None, folder: Path) -> bool:
    """Flip each bit (or ``count`` per file): the reader must return the stored values or reject the file."""
    done = run(_suite(folder), folder / "run", engine="serial").folder
    store = Store(done / "store")
    broken = False
    for stage in ("score", "explain", "train"):
        key = min(store.keys(stage))
        path = done / "store" / store.name(stage, key)
        read = (lambda s, k: store.load_table(s, k)) if stage == "score" else (lambda s, k: store.load_tensors(s, k))
        found = Counter(_flip(path, lambda s=stage, k=key, f=read: _plain(f(s, k)), seed, count))
        print(f"{stage} ({path.stat().st_size:,} bytes): {dict(found)}")
        broken |= bool(found["taken for another result"])
    merged = next((done / ".merged").iterdir())
    found = Counter(_rerun(merged, done, folder / "suite.toml", seed, min(count or 60, 200)))
    print(f"merged cell ({merged.stat().st_size:,} bytes), each by a whole run: {dict(found)}")
    return not (broken or found["another table"])


def _flip(path: Path, read: Callable[[], object], seed: int, count: int | None) -> Iterator[str]:
    sound = path.read_bytes()
    expected = read()
    for bit in _bits(len(sound), seed, count):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            yield "harmless" if read() == expected else "taken for another result"
        except CorruptResultError:
            yield "set aside"
            for aside in path.parent.glob("*.corrupt-*"):
                aside.unlink()
    path.write_bytes(sound)


def _rerun(merged: Path, folder: Path, suite: Path, seed: int, count: int) -> Iterator[str]:
    sound, table = merged.read_bytes(), (folder / "scores.parquet").read_bytes()
    for bit in _bits(len(sound), seed, count):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        merged.write_bytes(flipped)
        run(suite, folder, engine="serial")
        yield "the same table" if (folder / "scores.parquet").read_bytes() == table else "another table"


def _bits(size: int, seed: int, count: int | None) -> list[int]:
    bits = range(8 * size)
    return list(bits) if count is None else sorted(random.Random(seed).sample(bits, min(count, 8 * size)))


def _plain(found: object) -> str:
    """Return a text that differs for any two different results."""
    if isinstance(found, tuple):
        tensors, meta = found
        return repr([(n, t.dtype, tuple(t.shape), t.numpy().tobytes()) for n, t in tensors.items()]) + json.dumps(meta)
    return found.to_json(double_precision=15) + str(list(found.columns))  # type: ignore[attr-defined]


def files(seed: int, count: int | None, folder: Path) -> bool:
    """Damage files in several ways: they must be readable or raise the documented error."""
    rng = random.Random(seed)
    broken = False
    for name, (sound, read, error) in _readers(folder).items():
        found: Counter[str] = Counter()
        most = 0
        for _ in range(count or 3000):
            path = folder / f"mangled{Path(name).suffix}"
            path.write_bytes(_mangled(sound, rng))
            tracemalloc.start()
            try:
                read(path)
                found["read"] += 1
            except error:
                found["refused"] += 1
            except Exception as other:
                found[f"{type(other).__name__}: {str(other)[:60]}"] += 1
                broken = True
            most = max(most, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        print(f"{name} ({len(sound):,} bytes): {dict(found)}, at most {most / 1e6:.1f} MB")
    return not broken


def _readers(folder: Path) -> dict[str, tuple[bytes, Callable[[Path], object], _Errors]]:
    write_released(folder / "set.pkl", {"k": load("xai-tris/lin-white-8x8", n_samples=40)})
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", b"text" * 99)
    with tarfile.open(fileobj=tarred, mode="w:gz") as tar:
        entry = tarfile.TarInfo("a/b.txt")
        entry.size = 396
        tar.addfile(entry, io.BytesIO(b"text" * 99))
    maps = io.BytesIO()
    np.savez(maps, ids=np.array(["0", "1"]), maps=np.eye(4)[[0, 0]][..., None].repeat(4, -1))
    xml = b'<?xml version="1.0" encoding="utf-8"?><annotation><object><name>Gun</name></object></annotation>'
    legacy = pickle.dumps({"k": (np.arange(9.0), torch.zeros(3))}, 4)

    def out(path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as into:
            unpack(path, into)

    return (
        _scans(folder)
        | _photographs()
        | {
            "released.pkl": ((folder / "set.pkl").read_bytes(), read_released, ValueError),
            "other.pkl": (legacy, read_released, ValueError),
            "archive.zip": (zipped.getvalue(), out, DataFileError),
            "archive.tar.gz": (tarred.getvalue(), out, DataFileError),
            "annotation.xml": (xml, read_xml, DataFileError),
            "captions.json": (
                json.dumps({"images": [{"id": 1}] * 9, "annotations": [{"caption": "a man", "id": 1.5}] * 9}).encode(),
                lambda path: list(read_items(path, "images", "annotations")),
                (ValueError, KeyError),
            ),
            "maps.npz": (maps.getvalue(), lambda path: read_maps(path, ["0", "1"]), MapFileError),
        }
    )


def _photographs() -> dict[str, tuple[bytes, Callable[[Path], object], _Errors]]:
    values, found = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8), {}
    for kind in ("jpeg", "png", "tiff", "gif", "bmp", "webp"):
        stream = io.BytesIO()
        Image.fromarray(values).save(stream, kind)
        found[f"photograph.{kind}"] = (stream.getvalue(), lambda path: open_image(path, 8, upright=True), DataFileError)
    stream = io.BytesIO()
    Image.fromarray(values[..., 0]).save(stream, "png")
    return found | {"mask.png": (stream.getvalue(), read_indices, DataFileError)}


def _scans(folder: Path) -> dict[str, tuple[bytes, Callable[[Path], object], _Errors]]:
    """A slice of DICOM, plain and compressed, and a volume of NIfTI; nothing without the extra ``medical``."""
    try:
        import nibabel
        import pydicom
    except ImportError:
        return {}
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    values = np.random.default_rng(0).integers(0, 2000, (20, 30)).astype("<i2")
    said = pydicom.Dataset()
    said.file_meta = pydicom.dataset.FileMetaDataset()
    said.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    said.SOPClassUID, said.SOPInstanceUID, said.SeriesInstanceUID = pydicom.uid.CTImageStorage, "1.2.3", "1.2"
    said.Modality, (said.Rows, said.Columns) = "CT", values.shape
    said.SamplesPerPixel, said.PhotometricInterpretation = 1, "MONOCHROME2"
    said.BitsAllocated, said.BitsStored, said.HighBit, said.PixelRepresentation = 16, 16, 15, 1
    said.PixelSpacing, said.ImagePositionPatient = [0.7, 0.7], [0, 0, 1]
    said.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    said.RescaleSlope, said.RescaleIntercept, said.PixelData = "1", "-1024", values.tobytes()
    said.save_as(folder / "a.dcm", enforce_file_format=True)
    said.compress(pydicom.uid.RLELossless, generate_instance_uid=False)
    said.save_as(folder / "b.dcm", enforce_file_format=True)
    nibabel.save(nibabel.Nifti1Image(values.reshape(20, 10, 3), np.eye(4)), folder / "a.nii")
    volume = (folder / "a.nii").read_bytes()

    def slice_of(path: Path) -> None:
        read_header(path)
        read_slice(path, radiological=True)

    return {
        "slice.dcm": ((folder / "a.dcm").read_bytes(), slice_of, DataFileError),
        "compressed.dcm": ((folder / "b.dcm").read_bytes(), slice_of, DataFileError),
        "volume.nii": (volume, read_volume, DataFileError),
        "volume.nii.gz": (gzip.compress(volume, mtime=0), read_volume, DataFileError),
    }


def _mangled(sound: bytes, rng: random.Random) -> bytes:
    data = bytearray(sound)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        kind, place = rng.choice(("flip", "flip", "byte", "cut", "double", "fill")), rng.randrange(len(data) or 1)
        if kind == "flip" and data:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == "byte" and data:
            data[place] = rng.randrange(256)
        elif kind == "cut":
            del data[place:]
        elif kind == "double":
            data[place:place] = data[place : place + rng.randrange(1, 99)]
        else:
            data[place : place + 8] = bytes([rng.choice((0, 255))]) * 8
    return bytes(data)


def metrics(seed: int, count: int | None, folder: Path) -> bool:
    """Ten thousand inputs for each metric, as the tests draw them."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "tests/metrics/test_fuzz.py",
        "--hypothesis-profile=fuzz",
    ]
    return subprocess.run([*command, f"--hypothesis-seed={seed}"], cwd=ROOT, check=False).returncode == 0


def kills(seed: int, count: int | None, folder: Path) -> bool:
    """Kill a run at random moments: it must end with the same tables, no rejected file and no leftover process."""
    rng, suite = random.Random(seed), _suite(folder)
    quiet = run(suite, folder / "quiet", engine="serial").folder
    command = [sys.executable, "-m", "xaibench", "run", str(suite), "--out", str(folder / "run"), "--workers", "2"]
    found: Counter[str] = Counter()
    while found["killed"] < (count or 90):
        started = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            started.wait(rng.uniform(1.0, 12.0))
        except subprocess.TimeoutExpired:
            started.send_signal(signal.SIGKILL)
            started.wait()
        found["killed" if started.returncode < 0 else "came to its end"] += 1
        limit = time.monotonic() + 10
        while _left(started.pid) and time.monotonic() < limit:
            time.sleep(0.1)
        found["process left"] += _left(started.pid)
        if started.returncode == 0:
            found["same tables" if _same(folder / "run", quiet) else "other tables"] += 1
            (folder / "run").rename(folder / f"done {sum(found.values())}")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found["same tables" if _same(folder / "run", quiet) else "other tables"] += 1
    found["set aside"] = len(list(folder.rglob("*.corrupt-*")))
    print(dict(found))
    return not (found["other tables"] or found["process left"] or found["set aside"])


def _same(folder: Path, other: Path) -> bool:
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in TABLES)


def _left(session: int) -> int:
    """Processes of a session that still run, zombies left out."""
    lines = subprocess.run(
        ["ps", "-o", "stat=", "-s", str(session)], capture_output=True, text=True, check=False
    ).stdout
    return sum(not line.startswith("Z") for line in lines.split("\n") if line.strip())


def _suite(folder: Path) -> Path:
    path = folder / "suite.toml"
    path.write_text(SUITE)
    return path


TRIALS = {"flips": flips, "files": files, "metrics": metrics, "kills": kills}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="+", choices=TRIALS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=None, help="bits a file, files, or kills; default: see above")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # a line for each file that is set aside
    kept = True
    for name in given.trials:
        print(f"{name}, seed {given.seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XAIBENCH_CACHE"] = f"{folder}/cache"
            start = time.monotonic()
            good = TRIALS[name](given.seed, given.count, Path(folder))
        print(f"{name}: {'kept' if good else 'BROKEN'}, {time.monotonic() - start:.0f} s", flush=True)
        kept &= good
    sys.exit(not kept)


if __name__ == "__main__":
    main()
