"""Copies of models on the compute device, and comparison of model copy_weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def to_device(model: nn.Module, device: str | torch.device) -> nn.Module:
    """Return the model itself if it is on the device, otherwise a copy on the device. The model is never moved.

    Inside :func:`xaibench.compute.device.precision_context`, the result has the dtype of that precision.

    Args:
        model: A network.
        device: A device; ``"auto"`` is the GPU if there is one.

    Returns:
        The network on the device.
    """
    import torch

    from xaibench.compute.device import current_precision, resolve_device, stored_dtype

    target = torch.empty(0, device=resolve_device(device)).device  # with the GPU's index, unlike "cuda"
    precision = current_precision()
    dtype = stored_dtype(precision) if precision else None
    tensors = (*model.parameters(), *model.buffers())
    if all(t.device == target and (dtype in (None, t.dtype) or not t.is_floating_point()) for t in tensors):
        return model
    return copy.deepcopy(model).to(target, dtype)


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a network's parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def has_weights(model: nn.Module, kept: Mapping[str, Tensor]) -> bool:
    """Return whether a network's parameters and buffers are equal to a copy made by :func:`copy_weights`."""
    import torch

    own = model.state_dict()
    if own.keys() != kept.keys() or any(own[name].shape != tensor.shape for name, tensor in kept.items()):
        return False
    # One synchronization with the GPU for all tensors, instead of one per tensor.
    same = [(own[name].to(tensor.device) == tensor).all() for name, tensor in kept.items()]
    return not same or bool(torch.stack([one.to(same[0].device) for one in same]).all())
