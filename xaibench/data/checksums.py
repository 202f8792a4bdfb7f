"""Checksum of a data set: equal on two machines that have the same samples, to the bit."""

from __future__ import annotations

import hashlib

import numpy as np

from xaibench.data.base import Dataset


def checksum(dataset: Dataset) -> str:
    """Return the SHA-256 of images, masks and targets of all splits, as hexadecimal digits.

    Args:
        dataset: A data set that is in memory.

    Example:
        >>> import torch
        >>> from xaibench.component.info import DatasetInfo
        >>> from xaibench.data import Split
        >>> split = Split(torch.zeros(2, 1, 4, 4), torch.ones(2, 4, 4, dtype=torch.bool), torch.tensor([0, 1]))
        >>> checksum(Dataset(split, split, split, DatasetInfo("two", ("a", "b"), (1, 4, 4))))[:8]
        '37b41a80'
    """
    digest = hashlib.sha256()
    for split in (dataset.train, dataset.val, dataset.test):
        for tensor, kind in ((split.images, "<f4"), (split.masks, "|b1"), (split.targets, "<i8")):
            values = tensor.numpy().astype(kind, copy=False)
            digest.update(f"{kind} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return digest.hexdigest()
