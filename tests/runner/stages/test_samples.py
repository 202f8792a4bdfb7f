"""Data sets in the store, as the jobs of a run read them."""

import pandas as pd
import torch
from small_suites import write_suite

from xaibench.data import Dataset, Split
from xaibench.registry.info import DatasetInfo
from xaibench.registry.parameters import Frozen
from xaibench.report import write_report
from xaibench.runner import run
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.stages.samples import make_data, read_data, read_test_split, sample_rows
from xaibench.runner.store import Store

INFO = DatasetInfo("patients", classes=("a", "b"), image_shape=(1, 8, 8), license="none", how_to_get="it is made here")


def patients(*, seed=0):
    """Four images of two patients in train and test, and of unknown patients in val."""
    known = {"ids": ["a1", "a2", "b1", "b2"], "groups": [5, 5, 7, 7], "groups_by": "patients"}
    return Dataset(split(seed, **known), split(seed), split(seed, **known), INFO)


def split(seed, **known):
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return Split(images, torch.ones(4, 8, 8, dtype=torch.bool), torch.tensor([0, 1, 0, 1]), **known)


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


def alone(*, seed=0):
    """The same data set without groups."""
    return Dataset(split(seed), split(seed), split(seed), INFO)


alone.info = INFO


def test_of_samples_that_all_stand_for_themselves_nothing_is_said(tmp_path):
    store = Store(tmp_path)
    job = DataJob(f"{__name__}:alone", 0, Frozen(), "")
    make_data(job, store)
    assert sample_rows(store, job) == []


def test_the_run_folder_says_who_the_samples_of_a_set_in_memory_are(tmp_path):
    suite = write_suite(
        tmp_path,
        training={"epochs": 1, "batch_size": 4},
        explaining={"scored": "all"},
        explainers={"uniform": {}},
        cells=[{"datasets": [f"{__name__}:patients"], "models": ["llr"]}],
        metrics={"mass_accuracy": {}},
        data={},
    )
    result = run(suite, tmp_path / "run", engine="serial")
    assert result.failures == {}
    samples = pd.read_csv(tmp_path / "run" / "samples.csv", keep_default_na=False)
    assert samples["sample"].tolist() == [0, 1, 2, 3]
    assert samples["id"].tolist() == ["a1", "a2", "b1", "b2"]
    assert samples["group"].tolist() == [5, 5, 7, 7]
    assert samples["file"].tolist() == [""] * 4
    said = "4 samples in 2 groups (patients); intervals and tests treat a group as one observation."
    assert said in " ".join(result.notes.values())
    assert said in write_report(tmp_path / "run").read_text("utf-8")
