"""What the conformance suites share. They run over whatever is registered: a new part is tested without a new test."""

import numpy as np
import pytest
from PIL import Image

from xaibench.data import load

#: Samples of a small set: enough for whole strata in each of its splits.
COUNT, SPLIT = 40, (0.6, 0.2, 0.2)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """A folder of images of noise, one for each sample of a small set."""
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        Image.fromarray(rng.integers(0, 256, (70, 80, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")
    return folder


@pytest.fixture(scope="session")
def load_small(photographs, tmp_path_factory):
    """``load_small(name, seed)``: a small data set. A new family says here how it is made small."""
    cache = tmp_path_factory.mktemp("cache")

    def load_it(name, seed=0):
        family = name.partition("/")[0]
        assert family == "xai-tris", f"say in {__file__} how a small {name!r} is made"
        images = {"images_dir": photographs, "cache_dir": cache, "alpha": 0.5} if "imagenet" in name else {}
        return load(name, seed=seed, n_samples=COUNT, split=SPLIT, **images)

    return load_it
