"""A method in its sandbox: what it must not do fails, and what goes beyond a limit ends it."""

import dataclasses
import json
import os
import re
import stat

import pytest
import torch
from leaderboard.sandboxes import needs_sandbox

from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.sandbox import sandbox as module
from xaibench.leaderboard.sandbox.protocol import SandboxError
from xaibench.leaderboard.sandbox.sandbox import Sandbox, SandboxedProcess

pytestmark = needs_sandbox

#: What it does is said by the first pixel of the first image; what it found is the message of an error.
METHOD = r"""
import ctypes, json, os, socket, subprocess, sys, time
import torch

libc = ctypes.CDLL(None, use_errno=True)
CORE_PATTERN = b"/proc/sys/kernel/core_pattern"

def tell(**found):
    raise KeyError(json.dumps(found).encode().hex())

def fails(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return True
    return False

def fill(file):
    try:
        with open(file, "wb") as stream:
            for _ in range(3):
                stream.write(bytes(1 << 27))
    except OSError as error:
        return str(error)
    finally:
        os.unlink(file)

def acts(model, images, targets):
    what = int(images[0, 0, 0, 0])
    if what == 1:
        tell(fails=[
            fails(socket.create_connection, ("192.0.2.1", 80), 1),
            fails(open, SECRET),
            fails(open, "/usr/written-by-a-method", "w"),
            fails(os.setuid, 0),
            fails(os.kill, 1, 9),
        ])
    if what == 2:
        tell(
            uid=os.getuid(),
            environment="secret" in str(os.environ),
            rights=[line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapPrm", "CapEff"))],
            core_pattern=libc.open(CORE_PATTERN, os.O_WRONLY),
            drop_caches=libc.open(b"/proc/sys/vm/drop_caches", os.O_WRONLY),
            unshare=libc.unshare(0x10000000),
            memory_file=libc.memfd_create(b"x", 0),
            keys=libc.syscall(KEYCTL, 0, -3, 0),
        )
    if what == 3:
        code = 'import xaibench as xb; xb.load("xai-tris/lin-white-8x8", n_samples=100)'
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        tell(code=done.returncode, said=done.stderr[-200:])
    if what == 5:
        print("said aloud")
    if what == 6:
        raise KeyError("no such thing \x1b[2J\n::error::forged")
    if what == 7:
        hoard = [(torch.ones(1 << 27), time.sleep(0.1)) for _ in range(64)]
    if what == 8:
        if os.fork() == 0:
            while True:
                os.write(2, b"flood " * 10000)
        time.sleep(600)
    if what == 9:
        tell(full=[fill("/tmp/large"), fill("/dev/shm/large")])
    if what == 11:
        for _ in range(48):
            if os.fork() == 0:
                time.sleep(600)
        time.sleep(600)
    if what == 12:
        os.write(ANSWERS, b"x" * 100000)
        time.sleep(600)
    if what == 13:
        daemon = os.fork()
        if daemon == 0:
            os.setsid()
            time.sleep(600)
        os._exit(3)
    return images[:, 0] + 0 * len(model(images))
"""
KEYCTL = {"x86_64": 250, "aarch64": 219}


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """A folder with the method, beside one that it must not read."""
    place = tmp_path_factory.mktemp("sandbox")
    for name in ("hidden", "code"):
        (place / name).mkdir()
    secret = place / "hidden" / "masks.safetensors"
    secret.write_text("the answer")
    text = METHOD.replace("SECRET", repr(str(secret))).replace("KEYCTL", str(KEYCTL[os.uname().machine]))
    # The worker writes its answers to the first free file descriptor.
    (place / "code" / "acting.py").write_text(text.replace("ANSWERS", "3"))
    return str(place / "code")


@pytest.fixture(scope="module")
def process(code):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "secret")
        with SandboxedProcess(Sandbox("acting:acts", code, seconds=120)) as started:
            assert started.call("describe").fits is False
            yield started


NETWORK = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))


def _ask(process, what, seconds=120.0):
    process.sandbox = dataclasses.replace(process.sandbox, seconds=seconds)
    images = torch.zeros(2, 1, 2, 2)
    images[0, 0, 0, 0] = what
    asked = {"number": 0, "network": NETWORK, "images": images, "targets": torch.zeros(2).long(), "seed": 0}
    return process.call("explain", largest=8 * 8, **asked).maps


def _told(process, what):
    with pytest.raises(SandboxError) as told:
        _ask(process, what)
    return json.loads(bytes.fromhex(str(told.value).removeprefix("KeyError: '").removesuffix("'")))


def test_maps_are_those_of_explain(process):
    assert torch.from_numpy(_ask(process, 0)).equal(torch.zeros(2, 2, 2))
    assert _ask(process, 5).shape == (2, 2, 2)


def test_files_and_processes_of_others_are_out_of_reach(process):
    assert all(_told(process, 1)["fails"])


def test_it_has_no_rights_and_no_secrets(process):
    told = _told(process, 2)
    assert told.pop("uid") == 65534
    assert told.pop("environment") is False
    assert {int(rights, 16) for rights in told.pop("rights")} == {0}
    assert set(told.values()) == {-1}


def test_the_data_generators_are_not_there_even_in_another_process(process):
    told = _told(process, 3)
    assert told["code"] != 0
    assert "has no attribute 'load'" in told["said"]


def test_files_in_memory_have_a_limit(process):
    assert all(re.search("No space left on device|File too large", said or "") for said in _told(process, 9)["full"])


def test_an_error_of_its_own_is_told_without_control_characters(process):
    with pytest.raises(SandboxError, match="KeyError: 'no such thing") as told:
        _ask(process, 6)
    assert str(told.value).isprintable()


@pytest.mark.parametrize(
    ("what", "seconds", "said"),
    [
        (7, 120.0, "GiB of memory, of 1"),
        (8, 1.0, "more than 1 s for one"),  # it sleeps while a process of its floods the log
        (11, 120.0, "more than 32 processes"),
        (12, 120.0, "answers with .* bytes, more than"),
        (13, 120.0, "its process ended with code 3"),
    ],
    ids=["memory", "time", "processes", "raw-answer", "exit"],
)
def test_what_goes_beyond_a_limit_ends_it(what, seconds, said, code, monkeypatch):
    monkeypatch.setattr(module, "_MAX_PROCESSES", 32)
    with SandboxedProcess(Sandbox("acting:acts", code, seconds=120, memory_gb=1)) as own:
        own.call("describe")
        with pytest.raises(SandboxError, match=said):
            _ask(own, what, seconds)
        assert len(own._log) <= 1 << 16
    assert own._process.poll() is not None


def test_a_driver_of_a_gpu_is_found_on_a_gpu_only(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver")
    monkeypatch.setenv("HF_TOKEN", "secret")
    for device, known in (("cpu", None), ("cuda:0", "/driver")):
        found = module._clean_environment(Sandbox("saliency", device=device))
        assert found.get("LD_LIBRARY_PATH") == known
        assert "HF_TOKEN" not in found


def test_the_hidden_generators_exist():
    package = module.Path(module._library_path(), "xaibench")
    assert all((package / name).exists() for name in module._GENERATORS)


def test_nothing_runs_without_a_sandbox(code, monkeypatch):
    monkeypatch.setattr(module, "why_no_sandbox", lambda: "there is none")
    with pytest.raises(ResultError, match="No method can be run: there is none"):
        SandboxedProcess(Sandbox("acting:acts", code))


def test_a_bubblewrap_that_fails_is_no_sandbox(tmp_path, monkeypatch):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert (
        "may not create namespaces here (setting up uid map: Permission denied)" in module.why_no_sandbox.__wrapped__()
    )
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "apt install bubblewrap" in module.why_no_sandbox.__wrapped__()
