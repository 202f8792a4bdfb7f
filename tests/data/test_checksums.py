"""Generated data sets have the published bits: here, and with other code paths of NumPy, BLAS and PyTorch."""

import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.data import DATASETS, load
from xaibench.data.base import Dataset, Split
from xaibench.data.checksums import check_published, checksum, published_checksum, read_checksums

PACKAGES = ("xaibench.benchmarks.xai_tris", "xaibench.benchmarks.certified")
#: Prints the checksums of every published set of seed 0; of those with 64×64 pixels, of the first samples only.
CODE = """
from xaibench.data import load
from xaibench.data.checksums import checksum, read_checksums
for package in {packages}:
    for name, seed in read_checksums(package):
        if seed == 0:
            few = {{"n_samples": 300}} if name.endswith("64x64") else {{}}
            print(name, checksum(load(name, **few)))
"""
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
    code = CODE.format(packages=PACKAGES)
    finished = subprocess.run(
        [sys.executable, "-c", code], env=variables | settings, capture_output=True, text=True, check=True
    )
    return dict(map(str.split, finished.stdout.splitlines()))


@pytest.fixture(scope="module")
def here():
    return {
        name: checksum(load(name, **({"n_samples": 300} if name.endswith("64x64") else {})))
        for package in PACKAGES
        for name, seed in read_checksums(package)
        if seed == 0
    }


def test_sets_have_the_published_checksums(here):
    small = {name: digest for name, digest in here.items() if not name.endswith("64x64")}
    published = {
        name: digest for package in PACKAGES for (name, seed), digest in read_checksums(package).items() if seed == 0
    }
    assert len(small) == 16
    assert small == {name: published[name] for name in small}


def test_other_seeds_are_published_too():
    for name, seed in (("xai-tris/rigid-corr-8x8", 24), ("xai-tris/lin-white-8x8", 2), ("certified:xor", 1)):
        dataset = load(name, seed=seed)
        assert checksum(dataset) == published_checksum(DATASETS.resolve(name), dataset.parameters)


@pytest.mark.machines
def test_a_set_of_64x64_pixels_has_the_published_checksum():
    name = "xai-tris/xor-corr-64x64"
    dataset = load(name)
    assert checksum(dataset) == published_checksum(DATASETS.resolve(name), dataset.parameters)


@pytest.mark.machines
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_setting_of_a_machine_changes_a_bit(settings, here):
    assert sums_of_process(settings) == here


def test_only_default_parameters_have_a_checksum():
    part = DATASETS.resolve("xai-tris/lin-corr-8x8")
    parameters = dict(load("xai-tris/lin-corr-8x8", n_samples=100).parameters)
    assert published_checksum(part, parameters) is None
    assert published_checksum(part, parameters | {"n_samples": 10_000})
    assert published_checksum(part, parameters | {"n_samples": 10_000, "seed": 1000}) is None
    assert published_checksum(DATASETS.resolve("pet"), {}) is None


def test_any_change_of_a_sample_changes_the_checksum():
    def make(pixel=0.0, mask=True, target=1):
        images, masks, targets = torch.zeros(2, 1, 4, 4), torch.ones(2, 4, 4, dtype=torch.bool), torch.tensor([0, 1])
        images[1, 0, 3, 3], masks[1, 3, 3], targets[1] = pixel, mask, target
        split = Split(images, masks, targets)
        return checksum(Dataset(split, split, split, DATASETS.resolve("xai-tris/lin-white-8x8").info))

    assert len({make(), make(pixel=1e-30), make(mask=False), make(target=0)}) == 4
    assert make() == make()


def test_another_set_is_named(monkeypatch):
    name = "xai-tris/lin-white-8x8"
    part, dataset = DATASETS.resolve(name), load(name)
    assert check_published(part, dataset) == ""
    dataset.train.images[0, 0, 0, 0] += 1e-6
    message = check_published(part, dataset)
    assert message.startswith(f"{name} with seed 0 differs from the published data set: its SHA-256 is")


def test_prepare_compares_a_generated_set(monkeypatch):
    found = CliRunner().invoke(app, ["prepare", "xai-tris/lin-white-8x8"])
    assert found.exit_code == 0
    assert "it is the published data set (SHA-256" in found.output
    monkeypatch.setattr("xaibench.data.checksums.checksum", lambda dataset: "0" * 64)
    found = CliRunner().invoke(app, ["prepare", "xai-tris/lin-white-8x8"])
    assert found.exit_code == 1
    assert "differs from the published data set" in found.output
