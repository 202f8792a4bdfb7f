"""A data set of small volumes with a block each."""

import numpy as np
import torch

from xaibench.data import Dataset, Split
from xaibench.registry.info import DatasetInfo

SIDES = (6, 8, 10)


class Scans(Split):
    """Volumes with a spacing."""

    def metric_inputs(self, index):
        return {"spacing": np.tile([2.5, 1.0, 1.0], (len(self), 1))[index]}


def blocks(seed=0):
    """Four volumes per split, of two classes, with a bright block of 3 voxels per side."""
    rng = np.random.default_rng(seed)
    splits = []
    for _ in range(3):
        images, masks = rng.normal(0, 0.2, (4, 1, *SIDES)), np.zeros((4, *SIDES), bool)
        for mask in masks:
            corner = [int(rng.integers(side - 2)) for side in SIDES]
            mask[tuple(slice(start, start + 3) for start in corner)] = True
        images[:, 0][masks] += 1
        splits.append(Scans(torch.from_numpy(images).float(), torch.from_numpy(masks), torch.arange(4) % 2))
    return Dataset(*splits, DatasetInfo("blocks", classes=("a", "b"), image_shape=(1, *SIDES), citation="", license=""))
