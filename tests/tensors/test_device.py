"""One resolution of ``device``; the GPUs of other machines are played by torch's own answers."""

import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import torch
from refusals import refused

from xaibench.tensors.device import current_precision, devices_of, precision_context, resolve_device


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
    refused(ValueError, "There is no device 'mps' here", resolve_device, "mps")


def test_auto_does_not_choose_apples_gpu(gpus, monkeypatch):
    gpus(0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cpu")
    refused(ValueError, "or one of: cpu, mps", resolve_device, "abacus")


@pytest.mark.parametrize("device", [None, 0, ["cpu"]])
def test_what_names_no_device_is_refused(device):
    refused(TypeError, "expected a text such as 'auto', 'cpu' or 'cuda:1', or a torch.device", resolve_device, device)


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


def switches():
    """Every switch of torch by which float32 may lose digits, as far as it can be read."""
    backends = torch.backends
    found = {}
    for path in ("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv"):
        place = backends
        for name in path.split("."):
            place = getattr(place, name, None)
        for name in ("allow_tf32", "fp32_precision"):
            try:
                found[path, name] = getattr(place, name, None)
            except RuntimeError:
                found[path, name] = "mixed"
    return found


@pytest.fixture
def as_found():
    """Whatever a test does to the switches, the next one finds torch's own."""
    yield
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True
    if hasattr(torch.backends, "fp32_precision"):
        torch.backends.fp32_precision = "none"
        torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "tf32"


def exact():
    found = switches()
    return not found["cuda.matmul", "allow_tf32"] and not found["cudnn", "allow_tf32"]


@pytest.mark.parametrize("precision", [None, "float32", "float64", "bfloat16"])
def test_convolutions_are_not_rounded_to_tf32_and_the_switches_come_back(precision):
    before = switches()
    assert before["cudnn", "allow_tf32"], "torch's own default, against which the block is needed"
    with precision_context(precision):
        assert exact()
    assert switches() == before


def test_a_gpu_adds_up_in_one_order_and_the_callers_choice_comes_back(monkeypatch):
    for name, chosen in (("deterministic", False), ("benchmark", True)):
        monkeypatch.setattr(torch.backends.cudnn, name, chosen)
    with precision_context():
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (False, True)


def test_tf32_where_it_is_asked_for():
    before = switches()
    with precision_context("tf32"):
        assert switches()["cudnn", "allow_tf32"]
        assert switches()["cuda.matmul", "allow_tf32"]
        with precision_context():
            assert current_precision() == "tf32"
            assert switches()["cudnn", "allow_tf32"]
        with precision_context("float32"):
            assert exact()
        assert switches()["cudnn", "allow_tf32"]
    assert switches() == before


@pytest.mark.parametrize("older", [True, False])
def test_the_callers_own_switches_come_back(older, as_found):
    if older:
        torch.set_float32_matmul_precision("high")
    elif hasattr(torch.backends, "fp32_precision"):
        torch.backends.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "ieee"  # from here on the older switches cannot be read
    else:
        pytest.skip("this torch has the older switches only")
    before = switches()
    with pytest.raises(KeyError), precision_context():
        _interrupted()
    assert switches() == before


def _interrupted():
    found = switches()
    assert {found[path, "fp32_precision"] for path in ("cuda.matmul", "cudnn.conv", "cudnn.rnn")} <= {"ieee", None}
    raise KeyError


def test_bfloat16_is_autocast_and_a_block_within_can_switch_it_off():
    one = torch.ones(2, 2)
    with precision_context("bfloat16"):
        assert (one @ one).dtype is torch.bfloat16
        with precision_context():
            assert (one @ one).dtype is torch.bfloat16
        with precision_context("float32"):
            assert (one @ one).dtype is torch.float32
    assert (one @ one).dtype is torch.float32


def test_the_callers_autocast_stays_where_nothing_is_stated():
    one = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16), precision_context():
        assert (one @ one).dtype is torch.bfloat16


@contextmanager
def another_thread_inside(precision):
    """Another thread is inside of a block; the yielded function lets it leave."""
    entered, go_on = threading.Event(), threading.Event()

    def work():
        with precision_context(precision):
            entered.set()
            assert go_on.wait(20)

    def leave():
        go_on.set()
        thread.join()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert entered.wait(20)
        yield leave
    finally:
        leave()


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_the_switches_come_back_when_the_last_thread_leaves(first_leaves_first):
    before = switches()
    with another_thread_inside("float32") as leave:
        with precision_context("float64"):
            if first_leaves_first:
                leave()
            assert exact()
        assert first_leaves_first or exact()
    assert switches() == before


@pytest.mark.parametrize("precisions", [("float32", "tf32"), ("tf32", None)])
def test_threads_with_and_without_tf32_are_refused(precisions):
    before = switches()
    with another_thread_inside(precisions[0]) as leave:
        with pytest.raises(RuntimeError, match="same precision"), precision_context(precisions[1]):
            pass
        leave()
        with precision_context(precisions[1]):
            pass
    assert switches() == before
    assert current_precision() is None
