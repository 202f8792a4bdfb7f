"""A suite that runs in seconds, and one undisturbed run of it."""

import pytest

from xaibench.runner import run

TINY = """
name = "tiny"
title = "Tiny"

[data]
seeds = [0]
parameters = { n_samples = 200 }

[training]
seeds = [0, 1, 2]
epochs = 3
batch_size = 64
stack = 2

[explaining]
samples = 6

[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["llr", "mlp"]

[[cells]]
datasets = ["xai-tris/rigid-corr-8x8"]
models = ["cnn"]
training = { epochs = 2 }

[explainers]
saliency = {}
lime = { n_samples = 10 }
guided_gradcam = {}
pattern_net = {}
uniform = {}
input = {}

[metrics]
emd_perf = {}
topk_precision = {}
"""


@pytest.fixture(scope="session")
def tiny_suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def tiny_run(tiny_suite, tmp_path_factory):
    """An undisturbed serial run; tests that change it take a copy."""
    result = run(tiny_suite, tmp_path_factory.mktemp("run") / "undisturbed", engine="serial")
    assert result.failures == {}
    return result.folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Costs are remembered, but not among those of whoever runs the tests."""
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
