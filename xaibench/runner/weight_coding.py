"""Compact forms of trained weights, from which every machine restores the same numbers.

Small tensors are rounded to half precision. A large matrix is either its initial weights plus a change of low rank, or
whole numbers of steps per row, compressed. Restoring uses integer sums, which are exact in any order, and single
operations, whose result IEEE 754 determines.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

#: Number of weights from which on a matrix is large.
LARGE = 2**14
#: Ranks of the change of a large matrix that are tried.
RANKS = (8, 32)
#: Step of the weights of a row, as a share of their standard deviation.
STEP = 0.2


def encode(start: Mapping[str, Tensor], trained: Mapping[str, Tensor], rank: int | None) -> dict[str, Tensor]:
    """Encode trained weights.

    Args:
        start: Initial weights of the network by name, from :func:`xaibench.models.build`, float32.
        trained: The weights that differ from the initial ones.
        rank: Rank of the change of large matrices; rank 8 has a tenth of the size of steps. None = steps.

    Returns:
        Tensors by name: ``NAME`` in half precision, ``NAME:left``, ``NAME:right`` and ``NAME:scale``, or
        ``NAME:steps`` and ``NAME:scale``.
    """
    found: dict[str, Tensor] = {}
    for name, weight in trained.items():
        if weight.dim() != 2 or weight.numel() < LARGE:
            found[name] = weight.half()
            continue
        weight = weight.double()
        parts = _to_steps(weight) if rank is None else _to_low_rank(weight - start[name].double(), rank)
        found |= {f"{name}:{part}": tensor.contiguous() for part, tensor in parts.items()}
    return found


def decode(start: Mapping[str, Tensor], encoded: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Restore the trained weights, float32, with the same bits on every machine.

    Args:
        start: Initial weights of the network by name.
        encoded: From :func:`encode`.

    Returns:
        Weights by name; weights that are not in ``encoded`` are left out.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in encoded.items():
        weight, _, part = name.partition(":")
        if not part:
            found[weight] = tensor.float()
        elif part == "right":
            sums = encoded[f"{weight}:left"].numpy().astype(np.int64) @ tensor.numpy().astype(np.int64)
            change = torch.from_numpy(sums).double() * encoded[f"{weight}:scale"]
            found[weight] = (start[weight].double() + change).float()
        elif part == "steps":
            shape = start[weight].shape
            steps = np.frombuffer(zlib.decompress(tensor.numpy().tobytes()), np.int8).reshape(shape)
            found[weight] = (torch.from_numpy(steps.astype(np.float64)) * encoded[f"{weight}:scale"]).float()
    return found


def _to_low_rank(change: Tensor, rank: int) -> dict[str, Tensor]:
    """Return whole numbers ``left [M, R]`` and ``right [R, N]`` and a factor, whose product is near ``change``."""
    left, values, right = torch.linalg.svd(change, full_matrices=False)
    left, right = left[:, :rank] * values[:rank], right[:rank]
    sizes = right.abs().amax(1, keepdim=True) / 127
    left = left * sizes.T
    scale = left.abs().max() / 32767
    return {
        "left": (left / scale).round().short(),
        "right": (right / sizes).round().char(),
        "scale": scale.reshape(1),
    }


def _to_steps(weight: Tensor) -> dict[str, Tensor]:
    """Return the weights of each row in steps, compressed, and the step ``[M, 1]``."""
    scale = torch.maximum(STEP * weight.std(1, keepdim=True), weight.abs().amax(1, keepdim=True) / 127)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    steps = (weight / scale).round().char().numpy().tobytes()
    packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    packed = np.frombuffer(packer.compress(steps) + packer.flush(), np.uint8)
    return {"steps": torch.from_numpy(packed.copy()), "scale": scale}
