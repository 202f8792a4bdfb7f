"""Checksum of the weights of a network."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn


def weights_checksum(network: nn.Module) -> str:
    """Return the SHA-256 of all parameters and persistent buffers, by name.

    It does not depend on the machine, the device, the library versions, or the file that the weights come from.

    Args:
        network: Any network.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, 2.0]])), layer.bias.data.zero_()
        >>> weights_checksum(layer)[:12]
        '0e00732975d5'
    """
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        if isinstance(value, Tensor):
            update_digest(digest, name, value)
    return digest.hexdigest()


def update_digest(digest: hashlib._Hash, name: str, value: Tensor) -> None:
    """Add name, data type, shape and values of a tensor to a digest."""
    digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
    digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
