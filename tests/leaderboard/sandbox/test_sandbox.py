"""A method in its sandbox: what it may not do is refused with its reason, even if it hides the error."""

import copy
import dataclasses
import os
import weakref
from pathlib import Path

import pytest
import torch

from xaibench.leaderboard.sandbox import sandbox as module
from xaibench.leaderboard.sandbox import worker
from xaibench.leaderboard.sandbox.sandbox import (
    Sandbox,
    SandboxedProcess,
    SandboxError,
    SandboxViolationError,
    bubblewrap_path,
)
from xaibench.leaderboard.sandbox.worker import AuditHook, Worker

#: What it does is said by the first pixel of the first image.
METHOD = """
import contextlib, os, shutil, socket, subprocess, sys, tempfile, time
import torch

def acts(model, images, targets):
    what = int(images[0, 0, 0, 0])
    with contextlib.suppress(OSError):
        if what == 1:
            socket.create_connection(("192.0.2.1", 80), 1)
        if what == 2:
            import xaibench
            xaibench.load("xai-tris/lin-white-8x8", n_samples=100)
        if what == 3:
            open(SECRET).read()
        if what == 4:
            open("/usr/written-by-a-method", "w")
        if what == 9:
            os.rename(SECRET, SECRET + "2")
        if what == 10:
            os.symlink(SECRET, "/usr/linked-by-a-method")
    if what == 5:
        print("said aloud")
        return torch.full_like(images[:, 0], float("HF_TOKEN" in os.environ or "secret" in str(os.environ)))
    if what == 6:
        raise KeyError("no such thing")
    if what == 7:
        hoard = [torch.ones(1 << 28) for _ in range(64)]
    if what == 8:
        time.sleep(600)
    if what == 11:
        with tempfile.TemporaryDirectory() as own:
            os.mkdir(os.path.join(own, "inner"))
            for name in ("inner/file", "file"):
                with open(os.path.join(own, name), "w") as stream:
                    stream.write("its own")
    if what == 12:
        shutil.rmtree(os.path.dirname(SECRET), ignore_errors=True)
    return images[:, 0] + 0 * len(model(images))
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A folder with the method, beside one that it must not read."""
    place = tmp_path_factory.mktemp("sandbox")
    for name in ("hidden", "code"):
        (place / name).mkdir()
    secret = place / "hidden" / "masks.safetensors"
    secret.write_text("the answer")
    (place / "code" / "acting.py").write_text(METHOD.replace("SECRET", repr(str(secret))))
    return str(place / "code")


@pytest.fixture(scope="module", params=["bubblewrap", "process"])
def process(request, code):
    if request.param == "bubblewrap" and not bubblewrap_path():
        pytest.skip("there is no bubblewrap, or it may not make namespaces")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "process":
            patch.setattr(module, "bubblewrap_path", lambda: "")
        patch.setenv("HF_TOKEN", "secret")
        sandbox = Sandbox("acting:acts", code, hidden=(str(Path(code).parent / "hidden"),), seconds=120)
        with SandboxedProcess(sandbox) as started:
            assert started.call("describe")[0]["fits"] is False
            yield started


NETWORK = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))


def _ask(process, what, seconds=120.0):
    process.sandbox = dataclasses.replace(process.sandbox, seconds=seconds)
    images = torch.zeros(2, 1, 2, 2)
    images[0, 0, 0, 0] = what
    return process.call("explain", number=0, network=NETWORK, images=images, targets=torch.zeros(2).long(), seed=0)[1]


def test_maps_are_those_of_explain(process):
    assert torch.from_numpy(_ask(process, 0)).equal(torch.zeros(2, 2, 2))
    assert _ask(process, 5).max() == 0, "it sees no token"
    assert len(_ask(process, 11)) == 2, "folders of its own come and go"


def test_an_error_of_its_own_is_told(process):
    with pytest.raises(SandboxError, match="KeyError: 'no such thing'"):
        _ask(process, 6)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (1, "it opens a socket"),
        (2, "it loads the data set xai-tris/lin-white-8x8, whose masks are the answer"),
        (3, "it opens masks.safetensors of the run or the results"),
        (4, "it writes to /usr/written-by-a-method"),
        (9, "it writes to .*masks.safetensors; only .* is writable"),
        (10, "it writes to /usr/linked-by-a-method"),
        (12, "it writes to .*hidden; only .* is writable"),
    ],
)
def test_what_it_may_not_do_is_refused_though_it_hides_the_error(what, said, process):
    with pytest.raises(SandboxViolationError, match=said):  # what was refused once stays refused
        _ask(process, what)


def test_a_folder_is_not_another_whose_name_begins_alike(tmp_path):
    watch = AuditHook([str(tmp_path / "run")], processes=False)
    watch.on, watch.free = True, [str(tmp_path / "own")]
    for allowed, mode in (("run-of-another/file", "r"), ("own/file", "w")):
        watch("open", (str(tmp_path / allowed), mode, 0))
    for refused, mode in (("run/file", "r"), ("own-of-another/file", "w")):
        with pytest.raises(worker.ForbiddenActionError):
            watch("open", (str(tmp_path / refused), mode, 0))
    with pytest.raises(worker.ForbiddenActionError, match="writes to"):
        watch("os.rename", (str(tmp_path / "own/file"), str(tmp_path / "elsewhere"), -1, -1))
    watch("os.symlink", (str(tmp_path / "elsewhere"), str(tmp_path / "own/file"), -1))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not say which folder is open")
def test_a_name_below_an_open_folder_is_of_that_folder(tmp_path):
    """So does shutil.rmtree remove what is in a folder."""
    watch = AuditHook([], processes=False)
    watch.on, watch.free = True, [str(tmp_path / "own")]
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own, other = (os.open(tmp_path / name, os.O_RDONLY) for name in ("own", "other"))
    try:
        watch("os.remove", ("file", own))
        with pytest.raises(worker.ForbiddenActionError, match="other/file"):
            watch("os.remove", ("file", other))
        with pytest.raises(worker.ForbiddenActionError, match="other/file"):
            watch("os.rename", ("file", "file", own, other))
    finally:
        os.close(own)
        os.close(other)


@pytest.mark.parametrize(
    ("what", "seconds", "said"), [(7, 120.0, "GiB of memory, of 1"), (8, 1.0, "more than 1 s for one")]
)
def test_one_that_is_greedy_or_runs_forever_is_ended(what, seconds, said, code):
    with SandboxedProcess(Sandbox("acting:acts", code, seconds=120, memory_gb=1)) as own:
        own.call("describe")
        with pytest.raises(SandboxError, match=said):
            _ask(own, what, seconds)
        assert own._process.poll() is not None


def test_where_the_driver_lies_is_known_on_a_gpu_alone(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver")
    monkeypatch.setenv("HF_TOKEN", "secret")
    for device, known in (("cpu", None), ("cuda:0", "/driver")):
        found = module._clean_environment(Sandbox("saliency", device=device), True)
        assert found.get("LD_LIBRARY_PATH") == known
        assert "HF_TOKEN" not in found


def test_the_samples_of_an_earlier_fit_are_let_go():
    """Else a method that is fitted to each of many networks would hold the training samples of all of them."""
    settings = {"entry": "pattern_net", "parameters": {}, "output": None, "device": "cpu"}
    worker = Worker(settings, AuditHook([], processes=False))
    network = copy.deepcopy(NETWORK).double()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(40, 1, 2, 2, generator=generator, dtype=torch.float64)
    held = []
    for number in (1, 2):
        samples = images.clone()
        held.append(weakref.ref(samples))
        worker.fit(number, [(samples, torch.arange(40) % 2)], seed=0)
        del samples
        maps = worker.explain(number, network, images[:2], torch.zeros(2).long(), seed=0)
        assert maps.shape == (2, 2, 2)
    assert [one() is None for one in held] == [True, False]
