"""Answers of a sandboxed process. They are not trusted: every field is checked, and nothing is unpickled."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Longest header of an answer, in bytes.
MAX_HEADER_BYTES = 1 << 16
#: Key of the header -> type of its value.
_FIELDS: dict[str, type] = {
    **{"error": str, "untreated": bool, "refused": list, "fits": bool},
    **{"shape": list, "dtype": str},
}
_DTYPES = ("float32", "float64")


class SandboxError(RuntimeError):
    """A method failed, exited or was stopped in its sandbox. The message is a clause that says how."""


class SandboxViolationError(SandboxError):
    """A method did something that the sandbox forbids. The message says what."""


@dataclass(frozen=True)
class Answer:
    """An answer that has the expected form.

    Attributes:
        error: Message of an error of the method; empty if there was none.
        untreated: Whether the error says that the method does not support the network.
        refused: Forbidden actions of the method.
        fits: Whether the method has ``fit``.
        maps: Maps ``[N, H, W]`` or ``[N, D, H, W]``, or None.
    """

    error: str = ""
    untreated: bool = False
    refused: tuple[str, ...] = ()
    fits: bool = False
    maps: NDArray[Any] | None = None


def parse_answer(header: bytes, body: bytes) -> Answer:
    """Parse an answer.

    Args:
        header: JSON.
        body: The values of the maps; empty without maps.

    Returns:
        The answer. Its texts have no control characters.

    Raises:
        SandboxError: If the answer has another form.
    """
    try:
        said = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise SandboxError(f"it answers with what is not JSON ({type(error).__name__})") from None
    if not isinstance(said, dict) or any(
        name not in _FIELDS or not isinstance(value, _FIELDS[name]) for name, value in said.items()
    ):
        raise SandboxError("its answer has fields that are not known, or of the wrong type")
    refused = said.get("refused", [])
    if not all(isinstance(each, str) for each in refused):
        raise SandboxError("its answer has fields of the wrong type")
    maps = _parse_maps(said["shape"], said.get("dtype"), body) if "shape" in said else None
    return Answer(
        printable(said.get("error", "")),
        said.get("untreated", False),
        tuple(map(printable, refused)),
        said.get("fits", False),
        maps,
    )


def _parse_maps(shape: list[Any], dtype: str | None, body: bytes) -> NDArray[Any]:
    if dtype not in _DTYPES:
        raise SandboxError(f"it returned maps of {printable(str(dtype))}, expected {' or '.join(_DTYPES)}")
    if len(shape) not in (3, 4) or not all(type(side) is int and 0 <= side < 1 << 31 for side in shape):
        raise SandboxError("it returned maps of another shape than [N, H, W] or [N, D, H, W]")
    if math.prod(shape) * np.dtype(dtype).itemsize != len(body):
        raise SandboxError("it returned another number of values than its maps have")
    return np.frombuffer(body, dtype).reshape(shape).copy()


def printable(text: str, longest: int = 2000) -> str:
    r"""Escape everything in a text of a method that a terminal or a log could take for a command.

    Args:
        text: The text.
        longest: Largest number of characters; the rest is left out.

    Example:
        >>> printable("\x1b[2Jgone\n::error::x")
        '\\x1b[2Jgone\\n::error::x'
    """
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in shown
    )
