"""How kernels are compiled and where their machine code is kept."""

import marshal
import os
import subprocess
import sys

import pytest
from fresh_process import run_fresh

from xaibench.kernels.compilation import hash_code


def test_the_name_of_a_module_tells_all_that_it_does():
    text = "LIMIT = 3\ndef f(x):\n    return x + 1\ndef g(x):\n    return f(x) * LIMIT\n"
    name = hash_code(compile(text, "one.py", "exec"))
    assert name == hash_code(marshal.loads(marshal.dumps(compile("\n\n" + text, "other.py", "exec"))))
    for old, new in (("3", "4"), ("+ 1", "+ 2"), ("f(x) *", "f(x) -"), ("g(", "h(")):
        assert hash_code(compile(text.replace(old, new), "one.py", "exec")) != name


@pytest.mark.parametrize("outer", ["kernel", pytest.param("numba.njit(cache=True)", marks=pytest.mark.slow)])
def test_a_file_saved_while_it_is_imported_does_not_leave_old_code_behind(outer, tmp_path):
    """The trap that compilation.py describes, and that plain numba falls into."""
    module = tmp_path / "loops.py"
    module.write_text(f"""
import sys, pathlib, numba
from xaibench.kernels.compilation import kernel, subroutine
if "save" in sys.argv:
    text = pathlib.Path(__file__).read_text()
    pathlib.Path(__file__).write_text(text.replace("1.0", "2.0"))

@numba.njit
def inner(x):
    return x + 1.0

@{outer}
def outer(x):
    return inner(x)

print(outer(0.0))
""")

    def run(*arguments):
        command = [sys.executable, "-B", "-c", "import loops", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()

    assert run("save") == "1.0"
    assert run() == ("2.0" if outer == "kernel" else "1.0")


@pytest.fixture
def call(tmp_path):
    """Call a kernel in a fresh process where numba finds no folder that it can write to."""
    (tmp_path / "loops.py").write_text(
        "from xaibench.kernels.compilation import kernel\n@kernel\ndef double(x):\n    return 2 * x\n"
    )
    (tmp_path / "__pycache__").touch()
    file = str(tmp_path / "loops.py")
    code = """
import sys, tempfile
sys.dont_write_bytecode, tempfile.tempdir = True, None  # this process is a fork of one with a temporary folder
import xaibench
xaibench.__path__.append(sys.argv[1])
from xaibench.loops import double
assert double(21.0) == 42.0
print(double.stats.cache_path)
"""

    def call(before="", **variables):
        variables = {"HOME": file, "XDG_CACHE_HOME": file, "NUMBA_CACHE_DIR": "", "XAIBENCH_CACHE": file} | variables
        done = run_fresh(before + code, str(tmp_path), **variables, TMPDIR=str(tmp_path), TQDM_DISABLE="0")
        assert len(done.stderr.splitlines()) <= 1
        return done.stdout.strip(), done.stderr

    return call


@pytest.mark.parametrize("named", [True, False])
def test_later_processes_find_the_machine_code(named, call, tmp_path):
    """In a named folder, or in a temporary one that belongs to the user alone."""
    folder = tmp_path / "named/numba" if named else tmp_path / f"xaibench-numba-{os.getuid()}"
    variables = {"XAIBENCH_CACHE": str(tmp_path / "named")} if named else {}
    kept, announced = call(**variables)
    assert kept.startswith(str(folder))
    assert kept in announced
    assert call(**variables) == (kept, "")
    assert named or folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("fault", ["others can write", "link", "another owner"])
def test_a_temporary_folder_that_others_can_change_is_not_used(fault, call, tmp_path):
    folder = tmp_path / f"xaibench-numba-{os.getuid()}"
    if fault == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir(mode=0o700)
    if fault == "others can write":
        folder.chmod(0o770)
    if fault == "another owner":
        if os.getuid():
            pytest.skip("only root can give a folder away")
        os.chown(folder, 65534, -1)
    kept, announced = call()
    assert kept == "None"
    assert "XAIBENCH_CACHE" in announced
    assert call() == (kept, announced)


def test_worker_processes_announce_nothing(call):
    assert call("import multiprocessing; multiprocessing.parent_process = lambda: True")[1] == ""
