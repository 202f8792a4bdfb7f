"""Device and precision of computations: the device, and the precision of float32 arithmetic.

By default, PyTorch lets cuDNN round the inputs of float32 convolutions to TF32 (10 bits of mantissa): float32 maps from
a GPU then correlate with the CPU's at 0.96 only, without a warning. Here, float32 is exact unless another precision is
requested. Torch's flags are global, so they are set inside a block and restored after it.

Torch is imported on use, since the runner and the command line import this module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from xaibench.core.checks import check_choice
from xaibench.core.messages import first_line, listed
from xaibench.core.types import Precision

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

#: Precision of the innermost block that states one; None outside.
_STATED: ContextVar[Precision | None] = ContextVar("precision", default=None)

_OPERATORS = (("cuda", "matmul"), ("cudnn", "conv"), ("cudnn", "rnn"), ("mkldnn", "matmul"), ("mkldnn", "conv"))


def resolve_device(device: str | torch.device) -> torch.device:
    """Resolve ``device`` to a torch device and check that it exists on this machine.

    Args:
        device: ``"auto"``: CUDA if available, otherwise the CPU. Or a device, as text or ``torch.device``: ``"cpu"``,
            ``"cuda"`` (the current GPU), ``"cuda:1"``, ``"mps"`` (Apple GPUs; never chosen by ``"auto"``, because they
            lack float64).

    Returns:
        The device, with its index if there are several of its type.

    Raises:
        ValueError: If the device does not exist here; the message lists the available ones.
        TypeError: If it is neither a text nor a device.

    Example:
        >>> resolve_device("cpu")
        device(type='cpu')
        >>> resolve_device("abacus")
        Traceback (most recent call last):
            ...
        ValueError: There is no device 'abacus' here (...); use 'auto', or one of: cpu...
    """
    import torch

    if not isinstance(device, str | torch.device):
        raise TypeError(f"device is {device!r}; expected a text such as 'auto', 'cpu' or 'cuda:1', or a torch.device.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"There is no device {str(device)!r} here ({first_line(error)}); use 'auto', or one of: "
            f"{listed(_available_devices())}."
        ) from error


def devices_of(device: str) -> list[str]:
    """Return the devices that a run distributes over its processes.

    Args:
        device: As in :func:`resolve_device`; ``"auto"`` and ``"cuda"`` mean all GPUs, if there are any.

    Returns:
        At least one device name; ``["cpu"]`` if no GPU is requested or available.

    Raises:
        ValueError: If the device does not exist here.
        TypeError: If it is not a text.

    Example:
        >>> devices_of("cpu")
        ['cpu']
    """
    if device in ("auto", "cuda"):
        return _cuda_devices() or ["cpu"]
    return [str(resolve_device(device))]


def memory_of(device: str) -> float:
    """Return the memory of a GPU in GiB; 0 for a device that shares the machine's memory.

    Example:
        >>> memory_of("cpu")
        0.0
    """
    import torch

    if torch.device(device).type != "cuda":
        return 0.0
    return torch.cuda.get_device_properties(device).total_memory / 2**30


def _available_devices() -> list[str]:
    import torch

    return ["cpu", *_cuda_devices(), *(["mps"] if torch.backends.mps.is_available() else [])]


def _cuda_devices() -> list[str]:
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []


@contextmanager
def precision_context(
    precision: Precision | None = None, device: str | torch.device = "cpu", *, keeps_autocast: bool = True
) -> Iterator[None]:
    """Set the precision of float32 arithmetic inside the block and restore torch's global flags after it.

    The flags belong to the process. Threads can be inside at the same time if they need the same flags.

    Args:
        precision: None = that of the enclosing block. Outside of all blocks: exact float32.
        device: Where the block computes; ``torch.autocast`` is set for its type.
        keeps_autocast: Whether ``torch.autocast`` stays as the caller has set it if no precision is stated; otherwise
            it is switched off.

    Raises:
        ValueError: If the precision is unknown.
        RuntimeError: If another thread computes in TF32 and this one does not, or vice versa.

    Example:
        >>> with precision_context("tf32"):
        ...     with precision_context():
        ...         print(current_precision())
        tf32
        >>> current_precision() is None
        True
    """
    import torch

    if precision is not None:
        check_choice("precision", precision, get_args(Precision))
    chosen = precision or _STATED.get()
    wanted: list[tuple[Any, str, object]] = []
    # Legacy flags come first, because setting them overwrites the newer ones.
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        with suppress(RuntimeError):  # the caller has set new flags one by one: legacy flags are unreadable, not needed
            _ = backend.allow_tf32
            wanted.append((backend, "allow_tf32", chosen == "tf32"))
    # Flags of torch 2.9 and later, per operator. The legacy flags must agree with them: otherwise reading them raises.
    for group, operator in _OPERATORS:
        switch = getattr(getattr(torch.backends, group), operator, None)
        if hasattr(switch, "fp32_precision"):
            wanted.append((switch, "fp32_precision", "tf32" if chosen == "tf32" else "ieee"))
    # The fastest algorithms of cuDNN sum gradients in a different order each time.
    wanted += [(torch.backends.cudnn, "deterministic", True), (torch.backends.cudnn, "benchmark", False)]
    block, token = _Block(chosen == "tf32"), _STATED.set(chosen)
    try:
        block.enter(wanted)
        if chosen is None and keeps_autocast:
            yield
        else:
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=chosen == "bfloat16"):
                yield
    finally:
        _STATED.reset(token)
        block.leave()


@dataclass(eq=False)
class _Block:
    """An open :func:`precision_context`, and torch's flags before it."""

    is_tf32: bool
    thread: int = field(default_factory=threading.get_ident)
    before: list[tuple[Any, str, object]] = field(default_factory=list)

    def enter(self, wanted: list[tuple[Any, str, object]]) -> None:
        with _FLAGS:
            if any(block.is_tf32 != self.is_tf32 for block in _OPEN if block.thread != self.thread):
                raise RuntimeError(
                    "One thread computes with precision='tf32' and another without it, but torch has one setting for "
                    "all threads. Use the same precision in all of them, or a single thread."
                )
            self.before = [(backend, flag, getattr(backend, flag)) for backend, flag, _ in wanted]
            _OPEN.append(self)
            for backend, flag, value in wanted:
                setattr(backend, flag, value)

    def leave(self) -> None:
        with _FLAGS:
            if self not in _OPEN:
                return
            place = _OPEN.index(self)
            _OPEN.remove(self)
            if place < len(_OPEN):  # a later block of another thread is open; it restores what was before this one
                _OPEN[place].before = self.before
                return
            for backend, flag, value in self.before:
                setattr(backend, flag, value)


#: The open blocks of all threads, in the order in which they were entered.
_OPEN: list[_Block] = []
_FLAGS = threading.Lock()


def current_precision() -> Precision | None:
    """Return the precision of the innermost :func:`precision_context` block that states one, or None."""
    return _STATED.get()


def stored_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of stored numbers: float64 for ``"float64"``, otherwise float32.

    Example:
        >>> stored_dtype("bfloat16")
        torch.float32
    """
    import torch

    return torch.float64 if precision == "float64" else torch.float32


def resolve_precision(
    model: nn.Module | None,
    images: Tensor,
    dtype: torch.dtype | Literal["auto"],
    precision: Precision | None,
    device: torch.device,
) -> tuple[torch.dtype, Precision]:
    """Return the dtype in which a model is run, which is also that of its images and maps, and the precision.

    Args:
        model: A module. Its attribute ``explain_dtype`` decides if it exists, otherwise its parameters do. None = there
            is no model, and the images decide.
        images: ``[N, C, H, W]``.
        dtype: Requested dtype. ``"auto"``: the stored dtype of ``precision`` if one is given, otherwise the model's
            own.
        precision: Requested precision; None = that of the innermost :func:`precision_context` block.
        device: Where it is computed.

    Raises:
        ValueError: If dtype and precision contradict each other, or float64 is needed and the device does not support
            it.
    """
    import torch

    if precision is not None:
        check_choice("precision", precision, get_args(Precision))
        if dtype not in ("auto", torch.float64) and precision == "float64":
            raise ValueError(f"precision='float64' with dtype={dtype}: expected one of them, or both float64.")
    chosen = precision or _STATED.get()
    resolved = stored_dtype(chosen) if dtype == "auto" and chosen else dtype
    if resolved == "auto":
        preferred, resolved = getattr(model, "explain_dtype", None), images.dtype
        if isinstance(preferred, torch.dtype):
            resolved = preferred
        else:
            for parameter in getattr(model, "parameters", tuple)():
                if parameter.is_floating_point():
                    resolved = parameter.dtype
                    break
    if resolved == torch.float64 and device.type == "mps":
        raise ValueError(
            "device 'mps' has no float64, in which this model is explained; pass precision='float32', or device='cpu'."
        )
    return resolved, chosen or ("float64" if resolved == torch.float64 else "float32")
