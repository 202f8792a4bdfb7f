"""Damaged files for every reader: what is read is read, and what is not is an error of ours that names the file.

python tests/fuzz.py data --minutes 60 runs it longer.
"""

import importlib
import random
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from file_damage import damage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from part_cases import DatasetCase, case
from torch import nn

import xaibench as xb
from xaibench.data import DATASETS, load
from xaibench.data.annotated import AnnotatedSet, DataFileError, MissingDataError
from xaibench.evaluation.map_files import MapFileError, read_maps
from xaibench.models import open_network
from xaibench.models.networks.pretrained_weights import read_weights

OF_DATA = (DataFileError, MissingDataError)


# Each function writes sound files into a folder, and returns what reads them, and the errors that reading may have.


def read_all(name, **parameters):
    samples = load(name, splits=(0.0, 0.0, 1.0), **parameters).test
    for number in range(len(samples)):
        samples[number]


def registered(name):
    def write(root):
        case(DATASETS, name, DatasetCase()).write(root)
        return lambda: read_all(name, size=32, root=root), OF_DATA

    return write


def unregistered(name):
    def write(root):
        importlib.import_module(f"generators.{name}").write(root)
        return lambda: read_all(f"{name}:{root}", size=32), OF_DATA

    return write


def own_images(root):
    importlib.import_module("generators.photographs").write(root)
    return lambda: xb.data.open_images(root, size=32)[:], OF_DATA


def tables(root):
    importlib.import_module("generators.photographs").write(root / "pictures")
    files = sorted((root / "pictures").rglob("*.png"))[:6]
    rows = [{"bytes": file.read_bytes(), "path": None} for file in files]
    pq.write_table(pa.table({"image": rows, "mask": rows, "label": [0, 1] * 3}), root / "test.parquet")
    for file in sorted((root / "pictures").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    (root / "pictures").rmdir()
    return lambda: read_all(f"parquet:{root}", size=32), OF_DATA


def exported(root):
    xb.data.write_parquet(load("xai-tris/lin-white-8x8", n_samples=40), root)
    return lambda: load(f"parquet:{root}").test[:], OF_DATA


def volumes(suffix):
    def write(root):
        nibabel = pytest.importorskip("nibabel")
        rng = np.random.default_rng(0)
        for label in ("ill", "well"):
            for place in ("image", "mask"):
                (root / place / label).mkdir(parents=True)
                for number in range(3):
                    file = root / place / label / f"{number}{suffix}"
                    values = rng.random((4, 5, 6)).astype(np.float32)
                    values = (values > 0.5).astype(np.uint8) if place == "mask" else values
                    if suffix == ".npz":
                        np.savez_compressed(file, volume=values)
                    elif suffix == ".npy":
                        np.save(file, values)
                    else:
                        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), file)
        return lambda: read_all(f"volumes:{root}"), OF_DATA

    return write


def maps(suffix):
    def write(root):
        ids, values = ["a", "b", "c"], np.random.default_rng(0).random((3, 4, 4)).astype(np.float32)
        file = root / f"maps{suffix}"
        if suffix == ".npz":
            np.savez(file, ids=ids, maps=values)
        elif suffix == ".npy":
            np.save(file, values)
        else:
            from safetensors.numpy import save_file

            save_file(dict(zip(ids, values, strict=True)), file)
        return lambda: read_maps(file, ids), (MapFileError,)

    return write


def weights(suffix):
    def write(root):
        file, state = root / f"net{suffix}", nn.Linear(3, 2).state_dict()
        if suffix == ".pth":
            torch.save(state, file)
        else:
            from safetensors.torch import save_file

            save_file(state, file)
        return lambda: read_weights(file), (ValueError,)

    return write


def onnx_network(root):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnx2torch")
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [make.make_node("Flatten", ["x"], ["flat"]), make.make_node("Gemm", ["flat", "w", "b"], ["y"], transB=1)]
    shapes = (("x", ["n", 1, 8, 8]), ("y", ["n", 3]))
    ends = [make.make_tensor_value_info(name, kind, shape) for name, shape in shapes]
    numbers = [np.full((3, 64), 0.5, dtype=np.float32), np.zeros(3, dtype=np.float32)]
    constants = [onnx.numpy_helper.from_array(each, name) for each, name in zip(numbers, "wb", strict=True)]
    graph = make.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=8), root / "net.onnx")
    return lambda: open_network(str(root / "net.onnx")), (ValueError,)


def torchscript(root):
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, 3))).save(root / "net.pt")
    return lambda: open_network(str(root / "net.pt"), classes=3, size=8), (ValueError,)


def transformers_folder(root):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8)
    transformers.ViTForImageClassification(config).save_pretrained(root)
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(root)
    return lambda: open_network(str(root)), (ValueError,)


READERS = {name: registered(name) for name in DATASETS if isinstance(DATASETS.resolve(name), AnnotatedSet)}
READERS |= {name: unregistered(name) for name in ("published", "folder", "photographs")}
READERS |= {"images": own_images, "tables": tables, "exported": exported, "onnx": onnx_network}
READERS |= {"torchscript": torchscript, "transformers": transformers_folder}
READERS |= {f"volumes{suffix}": volumes(suffix) for suffix in (".npy", ".npz", ".nii", ".nii.gz")}
READERS |= {f"maps{suffix}": maps(suffix) for suffix in (".npy", ".npz", ".safetensors")}
READERS |= {f"weights{suffix}": weights(suffix) for suffix in (".pth", ".safetensors")}


@pytest.fixture(params=READERS)
def reader(request, tmp_path, monkeypatch):
    """Sound files, what reads them, and the errors that it may have. Each example damages a file and puts it back."""
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    read, errors = READERS[request.param](tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size)
    return files, read, errors


@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_damaged_files_are_read_or_named(reader, seed):
    files, read, errors = reader
    file, content, done = damage(random.Random(seed), files)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except Exception as error:
        named = file.name in str(error) or str(file.parent) in str(error)
        if isinstance(error, errors) and (named or errors == OF_DATA):
            return  # an error of a data set may name another file, which does not match
        if isinstance(error, ValueError) and "class" in str(error):  # that has too few samples now
            return
        raise AssertionError(f"{done}: {error!r}; read files inside wrap_file_errors() or opened_image()") from error
    finally:
        file.write_bytes(content)
