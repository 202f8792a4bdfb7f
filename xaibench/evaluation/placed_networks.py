"""Networks where they compute, and whether one is the same as before."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def placed(model: nn.Module, device: str | torch.device) -> nn.Module:
    """The model itself where it lies on the device, else a copy that does: nobody's own model is moved.

    Where a precision is stated (:func:`xaibench.core.compute.precision.computing`), in what that is kept in.

    Args:
        model: A network.
        device: ``"auto"``: the GPU when there is one.

    Returns:
        The network there.
    """
    import torch

    from xaibench.core.compute.device import resolve_device
    from xaibench.core.compute.precision import stated, stored_dtype

    place = torch.empty(0, device=resolve_device(device)).device  # "cuda" is the number of a GPU here
    precision = stated()
    dtype = stored_dtype(precision) if precision else None
    tensors = (*model.parameters(), *model.buffers())
    if all(t.device == place and (dtype in (None, t.dtype) or not t.is_floating_point()) for t in tensors):
        return model
    return copy.deepcopy(model).to(place, dtype)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of what a network has learned, and of its buffers."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def has_weights(model: nn.Module, kept: Mapping[str, Tensor]) -> bool:
    """Whether a network is the one that they were copied of, or one that is the same."""
    import torch

    own = model.state_dict()
    if own.keys() != kept.keys() or any(own[name].shape != tensor.shape for name, tensor in kept.items()):
        return False
    # All in one look: the host waits for a GPU once, not for each tensor.
    same = [(own[name].to(tensor.device) == tensor).all() for name, tensor in kept.items()]
    return not same or bool(torch.stack([one.to(same[0].device) for one in same]).all())
