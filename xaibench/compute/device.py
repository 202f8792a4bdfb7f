"""Resolution of a user's ``device`` argument to a torch device.

Torch is imported on use, since the runner and the command line import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xaibench.core.messages import first_line, listed

if TYPE_CHECKING:
    import torch


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
