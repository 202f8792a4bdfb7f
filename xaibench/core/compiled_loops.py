"""How inner loops are compiled, and kept for the next process.

numba keeps machine code on disk and asks two things before it takes it back: whether the file of the function is the
same, and whether the function is. That is not enough here. A file is looked at when the function is defined, which may
be a second after it was read, while numba itself was being imported: if it was saved in between, the code of the old
one passes as that of the new one for good, along with all that was compiled into it. And processes of two versions
write to the same files, so that one may read what the other has just written. Machine code that does not fit the arrays
it is given does not fail: it returns rubbish, or never.

So the name under which code is kept tells all that it is made of: the module as it stands in memory, not on disk, the
processor, and the versions. Whoever writes to a file writes the same. Two rules make this sound, and the tests keep
them: loops call only loops of their own module, and each is called with arguments of one type.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar, cast

import llvmlite.binding  # type: ignore[import-untyped]
import numba

#: What the compiler may take for granted (LLVM's fast-math flags): there is no nan and the sign of a zero does not
#: matter, which lets minima become vector operations. Sums are not reordered.
MINIMA = frozenset({"nnan", "nsz"})

#: Sums may be reordered, and products added in one rounding, which lets sums become vector operations. Nan stays nan.
SUMS = frozenset({"contract", "nsz", "reassoc"})

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F, freedom: frozenset[str] = MINIMA) -> _F:
    """Compile a ``function`` that Python calls: kept on disk, and free of the interpreter's lock.

    Where no folder for the cache can be written, each process compiles anew.
    """
    module = sys._getframe(1).f_code  # the code that defines the function and those it calls
    function.__qualname__ += f"_{fingerprint(module, freedom)}"  # numba names its files by it
    try:
        return cast(_F, numba.njit(cache=True, nogil=True, fastmath=set(freedom))(function))
    except RuntimeError:  # numba found no folder for its cache
        return part(function, freedom)


def part(function: _F, freedom: frozenset[str] = MINIMA, *, inline: bool = False) -> _F:
    """Compile a ``function`` that only kernels call: it is kept as a part of them.

    With ``inline`` there is no call: else each counts references to its arrays, which takes longer than a short loop.
    """
    return cast(_F, numba.njit(nogil=True, fastmath=set(freedom), forceinline=inline)(function))


def fingerprint(code: CodeType, freedom: frozenset[str] = MINIMA) -> str:
    """A name for what ``code`` does on this processor, with all functions and constants in it."""
    machine = llvmlite.binding.get_host_cpu_name(), numba.__version__, sorted(freedom)
    return hashlib.sha256(repr((machine, _content(code))).encode()).hexdigest()[:12]


def _content(code: CodeType) -> tuple[object, ...]:
    """What is in the code, without where it stands."""
    inner = tuple(_content(value) if isinstance(value, CodeType) else value for value in code.co_consts)
    return code.co_code, code.co_names, inner
