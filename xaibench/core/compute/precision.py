"""How exactly float32 is multiplied: a thing that is stated, not one that the machine decides.

PyTorch lets cuDNN round the inputs of every float32 convolution to TF32's ten bits unless it is told otherwise: on a
GPU a float32 map then correlates with the CPU's at 0.96 only, without a word. Here float32 is float32 unless another
precision is asked for. Torch's switches are global, so they are set for a block and put back after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, get_args

from xaibench.core.vocabulary import Precision

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

from xaibench.core.checks import check_choice

#: The precision stated by the innermost block; None outside all.
_STATED: ContextVar[Precision | None] = ContextVar("precision", default=None)

# Where torch keeps the precision of an operator (torch 2.9 and later); the older switches stand beside them, and must
# agree with them or reading those raises.
_OPERATORS = (("cuda", "matmul"), ("cudnn", "conv"), ("cudnn", "rnn"), ("mkldnn", "matmul"), ("mkldnn", "conv"))
_OLDER = (("cuda", "matmul"), ("cudnn",))


@contextmanager
def computing(precision: Precision | None = None, device: str | torch.device = "cpu") -> Iterator[None]:
    """Multiply inside the block as stated; torch's global switches are put back after it.

    Args:
        precision: None: as the innermost block around this one states it; outside all, float32 that is float32, and
            ``torch.autocast`` as the caller has it.
        device: Where the block computes; ``torch.autocast`` is switched for its type.

    Raises:
        ValueError: For another precision.

    Example:
        >>> with computing("tf32"):
        ...     with computing():
        ...         print(stated())
        tf32
        >>> stated() is None
        True
    """
    import torch

    if precision is not None:
        check_precision(precision)
    chosen = precision or stated()
    with ExitStack() as stack:
        stack.enter_context(_multiplying("tf32" if chosen == "tf32" else "ieee"))
        if chosen is not None:
            kind = torch.device(device).type
            stack.enter_context(torch.autocast(kind, torch.bfloat16, enabled=chosen == "bfloat16"))
        token = _STATED.set(chosen)
        try:
            yield
        finally:
            _STATED.reset(token)


def stated() -> Precision | None:
    """The precision of the innermost :func:`computing` block; None outside all, or where none of them states one."""
    return _STATED.get()


def stored_dtype(precision: Precision) -> torch.dtype:
    """The type in which numbers are kept: only float64 is kept in more than float32.

    Example:
        >>> stored_dtype("bfloat16")
        torch.float32
    """
    import torch

    return torch.float64 if precision == "float64" else torch.float32


def check_precision(precision: object) -> None:
    """Refuse anything but a :data:`~xaibench.core.vocabulary.Precision`."""
    check_choice("precision", precision, get_args(Precision))


def kept_dtype(
    model: nn.Module | None,
    images: Tensor,
    dtype: torch.dtype | Literal["auto"],
    precision: Precision | None,
    device: torch.device,
) -> torch.dtype:
    """The dtype in which a model is computed with, and its images and maps are kept.

    Args:
        model: A module; ``explain_dtype``, where it has one, is its own choice, else that of its parameters counts.
            None = there is no model, and the images decide.
        images: ``[N, C, H, W]``.
        dtype: As asked for; ``"auto"``: what ``precision`` is kept in, without one the model's own.
        precision: As asked for; None: as the innermost :func:`computing` block states it.
        device: Where it is computed.

    Raises:
        ValueError: If dtype and precision contradict each other, or the device has no float64 and it is needed.
    """
    import torch

    if precision is not None:
        check_precision(precision)
        if dtype not in ("auto", torch.float64) and precision == "float64":
            raise ValueError(f"precision='float64' with dtype={dtype}: expected one of them, or both float64.")
    chosen = precision or stated()
    kept = dtype
    if kept == "auto":
        kept = stored_dtype(chosen) if chosen else _own_dtype(model, images)
    if kept == torch.float64 and device.type == "mps":
        raise ValueError(
            "device 'mps' has no float64, in which this model is explained; pass precision='float32', or device='cpu'."
        )
    return kept


def _own_dtype(model: nn.Module | None, images: Tensor) -> torch.dtype:
    if model is None:
        return images.dtype
    import torch

    own = getattr(model, "explain_dtype", None)
    if isinstance(own, torch.dtype):
        return own
    floating = (parameter.dtype for parameter in getattr(model, "parameters", tuple)() if parameter.is_floating_point())
    return next(floating, images.dtype)


@contextmanager
def _multiplying(how: Literal["ieee", "tf32"]) -> Iterator[None]:
    before = [(place, name, getattr(place, name), wanted) for place, name, wanted in _switches(how)]
    try:
        for place, name, _, wanted in before:
            setattr(place, name, wanted)
        yield
    finally:
        for place, name, value, _ in before:
            setattr(place, name, value)


def _switches(how: Literal["ieee", "tf32"]) -> Iterator[tuple[Any, str, object]]:
    """Those that this torch has, and what they are set to: the older ones first, which overwrite the newer."""
    for path in _OLDER:
        place = _at(path)
        try:
            _ = place.allow_tf32
        except RuntimeError:  # the caller has set operators one by one: then these cannot be read, nor need be
            continue
        yield place, "allow_tf32", how == "tf32"
    for path in _OPERATORS:
        place = _at(path)
        if hasattr(place, "fp32_precision"):
            yield place, "fp32_precision", how
    # cuDNN's fastest sums of a gradient come out in another order each time.
    yield _at(("cudnn",)), "deterministic", True
    yield _at(("cudnn",)), "benchmark", False


def _at(path: tuple[str, ...]) -> Any:
    import torch

    place: Any = torch.backends
    for name in path:
        place = getattr(place, name, None)
    return place
