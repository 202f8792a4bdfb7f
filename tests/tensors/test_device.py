"""One resolution of ``device``; the GPUs of other machines are played by torch's own answers."""

import subprocess
import sys

import pytest
import torch

from xaibench.tensors.device import devices_of, resolve_device


@pytest.fixture
def gpus(monkeypatch):
    """``gpus(n)``: as torch answers on a machine with so many GPUs."""

    def play(count):
        real = torch.empty

        def empty(*size, device):
            place = torch.device(device)
            if place.type != "cuda":
                return real(*size, device=device)
            if (place.index or 0) >= count:
                raise RuntimeError("CUDA error: invalid device ordinal\nCUDA kernel errors might be ...")
            return type("OnGpu", (), {"device": torch.device("cuda", place.index or 0)})

        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch, "empty", empty)

    return play


@pytest.mark.parametrize(
    ("device", "count", "meant"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 2, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
        (torch.device("cpu"), 2, "cpu"),
        (torch.device("cuda", 1), 2, "cuda:1"),
    ],
)
def test_the_device_that_is_meant(device, count, meant, gpus):
    gpus(count)
    assert resolve_device(device) == torch.device(meant)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("abacus", r"There is no device 'abacus' here \(Expected one of cpu.*; use 'auto', or one of: cpu, cuda:0\."),
        ("cpu:x", r"There is no device 'cpu:x' here"),
        ("cuda:7", r"There is no device 'cuda:7' here \(CUDA error: invalid device ordinal\); use"),
        (torch.device("cuda", 7), r"There is no device 'cuda:7' here"),
    ],
)
@pytest.mark.parametrize("resolve", [resolve_device, devices_of])
def test_a_device_that_is_not_here_is_one_error_that_names_those_that_are(resolve, device, message, gpus):
    gpus(1)
    with pytest.raises(ValueError, match=message):
        resolve(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_where_there_is_none_is_the_same_error():
    with pytest.raises(ValueError, match=r"There is no device 'cuda:0' here \(.*\); use 'auto', or one of: cpu"):
        resolve_device("cuda:0")


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this is a Mac")
def test_apples_gpu_is_a_device_like_others():
    with pytest.raises(ValueError, match="There is no device 'mps' here"):
        resolve_device("mps")


def test_auto_does_not_choose_apples_gpu(gpus, monkeypatch):
    gpus(0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="or one of: cpu, mps"):
        resolve_device("abacus")


@pytest.mark.parametrize("device", [None, 0, ["cpu"]])
def test_what_names_no_device_is_refused(device):
    with pytest.raises(TypeError, match=r"expected a text such as 'auto', 'cpu' or 'cuda:1', or a torch\.device"):
        resolve_device(device)


@pytest.mark.parametrize(
    ("device", "count", "meant"),
    [
        ("auto", 0, ["cpu"]),
        ("auto", 2, ["cuda:0", "cuda:1"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1"]),
        ("cpu", 2, ["cpu"]),
    ],
)
def test_a_run_shares_out_every_gpu_unless_one_is_named(device, count, meant, gpus):
    gpus(count)
    assert devices_of(device) == meant


def test_torch_is_not_loaded_before_a_device_is_asked_for():
    code = "import sys, xaibench.tensors.device; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
