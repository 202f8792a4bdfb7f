"""Generated data sets have the published bits: here, and with other code paths of NumPy, BLAS and PyTorch.

So have the initial weights of the networks that are trained on them.
"""

import functools
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from xaibench.benchmarks.checksums import check_published, checksum, published_checksum, published_checksums
from xaibench.cli import app
from xaibench.data import DATASETS, load
from xaibench.data.base import Dataset, Split

#: The names of the published sets.
NAMES = sorted({name for name, _ in published_checksums()})
#: Those with 8×8 pixels.
SMALL = [
    name
    for name in NAMES
    if not name.startswith(("parts/", "watermarks/")) and not name.endswith(("64x64", "16x16x16"))
]
#: Parameters that make a set of many pixels small.
FEW = {name: {"n_samples": 80 if name.startswith("parts/") else 300} for name in NAMES if name not in SMALL}
#: Prints the checksums of every published set with seed 0; of those with many pixels, of a few samples only.
CODE = f"""
from xaibench.data import load
from xaibench.benchmarks.checksums import checksum
for name in {NAMES}:
    print(name, checksum(load(name, **{FEW}.get(name, {{}}))))
"""
CODE += """
import hashlib
from xaibench.models import build
for name, side in (("llr", 8), ("mlp", 8), ("cnn", 8), ("mlp", 64), ("cnn", 64), ("small_cnn", 64), ("cnn", 16)):
    shape = (1, *(side,) * (3 if side == 16 else 2))
    weights = (each.numpy().tobytes() for each in build(name, shape, 2, seed=1).state_dict().values())
    print(f"{name}-{side}", hashlib.sha256(b"".join(weights)).hexdigest())
"""
#: Initial weights of networks with seed 1.
NETWORKS = {
    "llr-8": "b103024b5ae2851b22eca4826872495f365e8187ee4a86a60e67027aa1b68fac",
    "mlp-8": "986bb660d32309474b9e1d6a5af3125a75ad0517a887dbb9f9f38c19f792ba13",
    "cnn-8": "03942440886cf2978671fcd908776d994d6a9c346c3e73eb49a938edb45feaee",
    "mlp-64": "9fd50a0d69ea74d5020c112f29751b02b6e78c6ece8605b58e1d7f787d044074",
    "cnn-64": "e99e645c76c2ac83125b829baca33588cf23f5ba3cba950557b24285d2e3478a",
    "cnn-16": "fb8aaf5900e4815e984bcead73ffc21682da51d10f2381c3e5b74c497669124d",
    "small_cnn-64": "bbdb0d9e19d491fe3fb7ff2733e264527607b611409b1161f36df441a21c41b7",
}
SETTINGS = {
    "defaults": {},
    "OpenBLAS for Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS for Sandy Bridge": {"OPENBLAS_CORETYPE": "Sandybridge"},
    "PyTorch without vector instructions": {"ATEN_CPU_CAPABILITY": "default"},
    "PyTorch with AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "NumPy without AVX-512": {
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
    },
    "NumPy without AVX2 and FMA": {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"},
    "1 thread": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "4 threads": {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"},
}


def sums_of_process(settings):
    known = ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "ONEDNN_MAX_CPU_ISA")
    variables = {name: value for name, value in os.environ.items() if name not in known}
    finished = subprocess.run(
        [sys.executable, "-c", CODE], env=variables | settings, capture_output=True, text=True, check=True
    )
    return dict(map(str.split, finished.stdout.splitlines()))


@functools.cache
def small_set(name):
    return load(name, **FEW.get(name, {}))


def test_sets_have_the_published_checksums():
    small = SMALL + [name for name in NAMES if name.startswith("parts/")]
    assert len(small) == 28 + 2
    for name in small:
        assert checksum(small_set(name)) == published_checksum(small_set(name))


def test_other_seeds_are_published_too():
    for name, seed in (
        ("xai-tris/rigid-corr-8x8", 24),
        ("xai-tris/lin-white-8x8", 2),
        ("certified:xor", 1),
        ("watermarks/none-inverted", 1),
    ):
        dataset = load(name, seed=seed)
        assert checksum(dataset) == published_checksum(dataset)


@pytest.mark.machines
@pytest.mark.parametrize(("name", "seed"), [("xai-tris/xor-corr-64x64", 0), ("xai-tris/rigid-corr-16x16x16", 1)])
def test_a_set_of_many_pixels_has_the_published_checksum(name, seed):
    dataset = load(name, seed=seed)
    assert checksum(dataset) == published_checksum(dataset)


@pytest.mark.machines
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_setting_of_a_machine_changes_a_bit(settings):
    assert sums_of_process(settings) == {name: checksum(small_set(name)) for name in NAMES} | NETWORKS


def test_only_published_parameters_have_a_checksum():
    assert published_checksum(load("xai-tris/lin-corr-8x8"))
    for parameters in ({"n_samples": 100}, {"alpha": 0.5}, {"seed": 1000}, {"split": (0.6, 0.2, 0.2)}, {"layout": 1}):
        assert published_checksum(load("xai-tris/lin-corr-8x8", **parameters)) is None


def test_any_change_of_a_sample_changes_the_checksum():
    def make(pixel=0.0, mask=True, target=1):
        images, masks, targets = torch.zeros(2, 1, 4, 4), torch.ones(2, 4, 4, dtype=torch.bool), torch.tensor([0, 1])
        images[1, 0, 3, 3], masks[1, 3, 3], targets[1] = pixel, mask, target
        split = Split(images, masks, targets)
        return checksum(Dataset(split, split, split, DATASETS.resolve("xai-tris/lin-white-8x8").info))

    assert len({make(), make(pixel=1e-30), make(mask=False), make(target=0)}) == 4
    assert make() == make()


def test_a_set_that_differs_is_named():
    name = "xai-tris/lin-white-8x8"
    dataset = load(name)
    assert check_published(dataset) == ""
    dataset.train.images[0, 0, 0, 0] += 1e-6
    message = check_published(dataset)
    assert message.startswith(f"{name} with seed 0 differs from the published data set: its SHA-256 is")


def test_prepare_compares_a_generated_set(monkeypatch):
    found = CliRunner().invoke(app, ["prepare", "xai-tris/lin-white-8x8"])
    assert found.exit_code == 0
    assert "it is the published data set (SHA-256" in found.output
    monkeypatch.setattr("xaibench.benchmarks.checksums.checksum", lambda dataset: "0" * 64)
    found = CliRunner().invoke(app, ["prepare", "xai-tris/lin-white-8x8"])
    assert found.exit_code == 1
    assert "differs from the published data set" in found.output
