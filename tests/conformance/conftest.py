"""What the conformance suites share. They run over whatever is registered: a new part is tested without a new test."""

import numpy as np
import pytest
from part_cases import DatasetCase, case
from PIL import Image

from xaibench.data import DATASETS, load

#: Images to put things on.
COUNT = 40


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """A folder of images of noise, one for each sample of a small set of forty."""
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        Image.fromarray(rng.integers(0, 256, (70, 80, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")
    return folder


@pytest.fixture(scope="session")
def load_small(photographs, tmp_path_factory):
    """``load_small(name, seed)``: a small data set. All tests share that of seed 0, and leave it as it is."""
    cache, known = tmp_path_factory.mktemp("cache"), {}

    def load_it(name, seed=0):
        if seed == 0:
            known[name] = known.get(name) or make(name, seed)
            return known[name]
        return make(name, seed)

    def make(name, seed):
        small = case(DATASETS, name, DatasetCase()).small
        assert small, f"say in CASES of the set's own test file (tests/part_cases.py) how a small {name!r} is made"
        return load(name, seed=seed, **small(photographs, cache))

    return load_it
