"""What is kept of a data set between the jobs of a run."""

import torch

from xaibench.core.frozen import Frozen
from xaibench.core.part_info import DatasetInfo
from xaibench.data import Dataset, Split
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.stages.sample_data import make_data, read_data, read_test_split, sample_rows
from xaibench.runner.store.result_store import Store

INFO = DatasetInfo("patients", classes=("a", "b"), image_shape=(1, 4, 4), licence="none", how_to_get="it is made here")


def patients(*, seed=0):
    """Four images of two patients in train and test, of nobody known in val."""
    known = {"ids": ["a1", "a2", "b1", "b2"], "groups": [5, 5, 7, 7]}
    return Dataset(split(seed, **known), split(seed), split(seed, **known), INFO)


def split(seed, **known):
    images = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    return Split(images, torch.ones(4, 4, 4, dtype=torch.bool), torch.tensor([0, 1, 0, 1]), **known)


patients.info = INFO


def test_names_and_groups_of_a_set_in_memory_outlive_the_job(tmp_path):
    store = Store(tmp_path)
    job = DataJob(f"{__name__}:patients", 0, Frozen(), "")
    make_data(job, store)
    split = read_test_split(store, job)
    assert list(split.ids) == ["a1", "a2", "b1", "b2"]
    assert split.groups.tolist() == [5, 5, 7, 7]
    assert [row["group"] for row in sample_rows(store, job)] == [5, 5, 7, 7]
    splits, _ = read_data(store, job)
    assert list(splits["train"].ids) == ["a1", "a2", "b1", "b2"]
    assert (list(splits["val"].ids), splits["val"].groups) == (["0", "1", "2", "3"], None)
