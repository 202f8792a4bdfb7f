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
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar, cast

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

    If no cache folder is writable, each process compiles it again. With kernels off, the function stays Python.
    """
    if not kernels_enabled():
        return function
    import numba

    module = sys._getframe(1).f_code  # the code that defines the function and those that it calls
    function.__qualname__ += f"_{hash_code(module, freedom)}"  # numba names its cache files by it
    try:
        return cast(_F, numba.njit(cache=True, nogil=True, fastmath=set(freedom))(function))
    except RuntimeError:  # no writable cache folder
        return subroutine(function, freedom)


def subroutine(function: _F, freedom: frozenset[str] = MINIMA, *, inline: bool = False) -> _F:
    """Compile a function that only kernels call; it is cached with them.

    ``inline`` avoids a call, which would count references to each array and take longer than a short loop.
    """
    if not kernels_enabled():
        return function
    import numba

    return cast(_F, numba.njit(nogil=True, fastmath=set(freedom), forceinline=inline)(function))


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
