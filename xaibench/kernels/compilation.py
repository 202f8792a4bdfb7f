"""Compilation of the numerical kernels with numba, and the switch that turns kernels off.

Kernels are fast versions of operations that also exist in plain NumPy, SciPy, POT or PyTorch. With the environment
variable ``XAIBENCH_KERNELS=0`` the library uses the plain versions and does not import numba; results then agree up to
rounding.

numba caches machine code on disk and reuses it if the source file has the same time stamp and the function the same
name. That is not safe here. The time stamp is read when the function is defined, possibly a second after the file was
read: a file saved in between leaves the old machine code under the new time stamp for good. Also, processes that run
different versions may share a cache folder. Machine code that does not fit its arguments does not fail: it returns
wrong numbers or does not return.

The cached name therefore includes a hash of the module's byte code as it is in memory, of the processor and of the
versions. Two rules make this sound, and tests check them: kernels call only functions of their own module, and each is
called with arguments of one type.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar, cast

from xaibench.core.files import default_cache_dir
from xaibench.core.progress import announce

#: LLVM fast-math flags for kernels that take minima: no NaN occurs and the sign of zero does not matter, so that minima
#: can be vectorized. Sums are not reordered.
MINIMA = frozenset({"nnan", "nsz"})

#: LLVM fast-math flags for kernels that sum: sums may be reordered and fused with products, so that they can be
#: vectorized. NaN propagates.
SUMS = frozenset({"contract", "nsz", "reassoc"})

_F = TypeVar("_F", bound=Callable[..., Any])


def kernels_enabled() -> bool:
    """Return whether compiled kernels are used: always, unless the environment has ``XAIBENCH_KERNELS=0``."""
    return os.environ.get("XAIBENCH_KERNELS", "1") != "0"


def kernel(function: _F, freedom: frozenset[str] = MINIMA) -> _F:
    """Compile a function that Python calls. It is cached on disk and releases the interpreter lock.

    With kernels off, the function stays Python. See :func:`_cache_folder` for where nothing next to the source and in
    the home folder is writable; if no folder is, each process compiles the function again.
    """
    if not kernels_enabled():
        return function
    from numba import config, njit

    _announce_first_compilation()
    module = sys._getframe(1).f_code  # the code that defines the function and those that it calls
    function.__qualname__ += f"_{hash_code(module, freedom)}"  # numba names its cache files by it
    compiled = njit(nogil=True, no_cfunc_wrapper=True, fastmath=set(freedom))(function)
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba found no writable folder
        if folder := _cache_folder():
            before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
            try:
                compiled.enable_caching()
            finally:
                config.CACHE_DIR = before
    return cast(_F, compiled)


def subroutine(function: _F, freedom: frozenset[str] = MINIMA, *, inline: bool = False) -> _F:
    """Compile a function that only kernels call; it is cached with them.

    ``inline`` avoids a call, which would count references to each array and take longer than a short loop.
    """
    if not kernels_enabled():
        return function
    import numba

    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # a tenth of the time, for calls from Python
    return cast(_F, numba.njit(nogil=True, fastmath=set(freedom), forceinline=inline, **wrappers)(function))


@cache
def _cache_folder() -> Path | None:
    """Return the library's cache folder or a private temporary one, whichever is writable; None if neither is.

    Cached machine code is executed. The temporary folder, which later processes find by its name, is therefore used
    only if it belongs to this user and nobody else can write to it.
    """
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home folder
        folder = default_cache_dir() / "numba"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    with suppress(OSError):
        user = os.getuid() if hasattr(os, "getuid") else "user"  # on Windows, each user has a temporary folder
        folder = Path(tempfile.gettempdir(), f"xaibench-numba-{user}")
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if os.name == "nt" or (stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077):
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    return None


@cache
def _announce_first_compilation() -> None:
    """Print a line when the first function of this process is compiled, which takes seconds.

    Worker processes print none: each would print the same one, and their run shows its progress.
    """
    from numba.core import event

    if multiprocessing.parent_process() is not None:
        return

    class Announcement(event.Listener):  # type: ignore[misc]  # numba has no types
        done = False

        def on_start(self, compilation: Any) -> None:
            dispatcher = compilation.data["dispatcher"]
            if self.done or not dispatcher.py_func.__module__.startswith("xaibench."):
                return
            self.done = True
            folder = dispatcher.stats.cache_path
            keeps = f"{folder} keeps the machine code for other processes."
            if folder is None:
                keeps = "Each process does so: no folder for the machine code is writable. XAIBENCH_CACHE can name one."
            announce(f"Compiling numerical loops at their first use, up to 10 s each. {keeps}", always=True)

        def on_end(self, compilation: Any) -> None:
            pass

    event.register("numba:compile", Announcement())


def hash_code(code: CodeType, freedom: frozenset[str] = MINIMA) -> str:
    """Hash ``code``, with all functions and constants in it, the processor, numba's version and the flags."""
    import llvmlite.binding  # type: ignore[import-untyped]
    import numba

    machine = llvmlite.binding.get_host_cpu_name(), numba.__version__, sorted(freedom)
    return hashlib.sha256(repr((machine, _code_content(code))).encode()).hexdigest()[:12]


def _code_content(code: CodeType) -> tuple[object, ...]:
    """Return byte code, names and constants, without file names and line numbers."""
    inner = tuple(_code_content(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    return code.co_code, code.co_names, inner
