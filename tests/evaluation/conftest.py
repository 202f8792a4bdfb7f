import pytest
import torch

import xaibench as xb


@pytest.fixture(scope="session")
def scored():
    """Three methods on 24 images: two that find the mask, of which one nearly always, and one that does not."""
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(24, 6, 6, generator=generator) < 0.3
    samples = xb.data.Split(torch.rand(24, 1, 6, 6, generator=generator), masks, torch.zeros(24, dtype=torch.int64))
    noise = torch.rand(24, 6, 6, generator=generator)
    maps = {"right_&_good": masks + 0.5 * noise, "nearly": masks + 0.51 * noise, "noise|": noise}
    return xb.evaluate(maps, samples, metrics=["average_precision", "emd"])
