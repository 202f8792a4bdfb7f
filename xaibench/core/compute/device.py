"""Which device is meant: the one place where a user's ``device`` becomes torch's.

Torch is loaded when a device is asked for, not before: the runner and the command line import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xaibench.core.messages import first_line, listed

if TYPE_CHECKING:
    import torch


def resolve_device(device: str | torch.device) -> torch.device:
    """The device that is meant, once it has been seen to be there.

    Args:
        device: ``"auto"``: the GPU (CUDA) where there is one, else the CPU. Or a device, by name or as torch has it:
            ``"cpu"``, ``"cuda"`` (the current one), ``"cuda:1"``, ``"mps"`` (Apple's GPU, which ``"auto"`` does not
            choose: it lacks float64).

    Returns:
        The device, with its number where it is one of several.

    Raises:
        ValueError: If there is no such device here; names those that there are.
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
            f"{listed(_devices_here())}."
        ) from error


def devices_of(device: str) -> list[str]:
    """The devices that a run shares out among its processes.

    Args:
        device: As in :func:`resolve_device`; ``"auto"`` and ``"cuda"`` mean every GPU, where there is one.

    Returns:
        At least one name; only ``["cpu"]`` where no GPU is meant or there.

    Raises:
        ValueError: If there is no such device here.
        TypeError: If it is no text.

    Example:
        >>> devices_of("cpu")
        ['cpu']
    """
    if device in ("auto", "cuda"):
        return _gpus() or ["cpu"]
    return [str(resolve_device(device))]


def memory_of(device: str) -> float:
    """GiB of a GPU's own memory; 0 of a device that shares the machine's.

    Example:
        >>> memory_of("cpu")
        0.0
    """
    import torch

    if torch.device(device).type != "cuda":
        return 0.0
    return torch.cuda.get_device_properties(device).total_memory / 2**30


def _devices_here() -> list[str]:
    import torch

    return ["cpu", *_gpus(), *(["mps"] if torch.backends.mps.is_available() else [])]


def _gpus() -> list[str]:
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
