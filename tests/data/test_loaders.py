import threading
import time

import pytest
import torch
from fresh_process import run_fresh
from refusals import refused
from torch.utils.data import BatchSampler

from xaibench.data import DATASETS, Split, load, loading
from xaibench.data.loaders import ThreadedLoader
from xaibench.registry.table import UnknownNameError

LINES = ["Loading data...", "Splitting dataset...", "Creating dataloaders...", "Data loading complete."]
NAME = "xai-tris/lin-white-8x8"


def test_loaders_hand_out_every_sample_once():
    dataset = load(NAME, seed=2, n_samples=2000)
    loaders = loading(NAME, seed=2, n_samples=2000, batch_size=300, verbose=False)
    for loader, split in zip(loaders, (dataset.train, dataset.val, dataset.test), strict=True):
        images, masks, targets = (torch.cat(parts) for parts in zip(*loader, strict=True))
        assert len(loader) == -(-len(split) // 300)
        assert images.shape == split.images.shape
        key, expected = (part.flatten(1).double().sum(1) for part in (images, split.images))
        order, reference = key.argsort(), expected.argsort()
        assert torch.equal(images[order], split.images[reference])
        assert torch.equal(masks[order], split.masks[reference])
        assert torch.equal(targets[order], split.targets[reference])


def test_training_is_shuffled_anew_by_the_seed_and_the_rest_is_in_order():
    def epochs(seed):
        train, val, test = loading(NAME, seed=seed, n_samples=1000, verbose=False)
        return [torch.cat([batch[0] for batch in train]) for _ in range(2)], val, test

    (first, second), val, test = epochs(0)
    (again, again_second), _, _ = epochs(0)
    assert torch.equal(first, again)
    assert torch.equal(second, again_second)
    assert not torch.equal(first, second)
    dataset = load(NAME, n_samples=1000)
    assert torch.equal(torch.cat([batch[0] for batch in val]), dataset.val.images)
    assert torch.equal(torch.cat([batch[0] for batch in test]), dataset.test.images)


def test_the_published_batch_size_is_the_default():
    train, val, _ = loading(NAME, verbose=False)
    assert [len(batch[2]) for batch in train] == [512] * 15 + [320]
    assert [len(batch[2]) for batch in val] == [512, 488]


def test_progress_is_seen_where_no_logging_is_configured():
    code = f"""
import logging, xaibench
for verbose in (True, False):
    xaibench.loading({NAME!r}, n_samples=100, verbose=verbose)
assert not logging.getLogger("xaibench").handlers
"""
    done = run_fresh(code)
    assert (done.stdout + done.stderr).splitlines() == LINES


def test_unknown_names_and_parameters():
    refused(UnknownNameError, "'xai-tris/lin-white-8x8'", lambda: load("xai-tris/lin-whit-8x8"))
    refused(TypeError, "'alhpa'", lambda: load(NAME, alhpa=0.1))
    refused(TypeError, "'classes'", lambda: loading(NAME, "aeroplane,bicycle", verbose=False))
    refused(ValueError, "split=", lambda: load(NAME, split="test"))
    refused(ValueError, "alpha=", lambda: load(NAME, alpha="x"))
    refused(ValueError, "num_workers=", lambda: loading(NAME, num_workers=-1, verbose=False))
    refused(ValueError, "batch_size=", lambda: loading(NAME, batch_size=0, verbose=False))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"images": torch.zeros(3, 1, 4, 4, dtype=torch.float64)}, TypeError, "images"),
        ({"masks": torch.zeros(3, 4, 4)}, TypeError, "masks"),
        ({"targets": torch.zeros(3, dtype=torch.int32)}, TypeError, "targets"),
        ({"images": torch.zeros(3, 4, 4)}, ValueError, "[3, 4, 4]"),
        ({"masks": torch.zeros(3, 4, 5, dtype=torch.bool)}, ValueError, "same N"),
        ({"images": torch.zeros(2, 1, 4, 4)}, ValueError, "same N"),
    ],
)
def test_splits_of_other_shapes(changed, error, message):
    parts = {
        "images": torch.zeros(3, 1, 4, 4),
        "masks": torch.zeros(3, 4, 4, dtype=torch.bool),
        "targets": torch.zeros(3, dtype=torch.int64),
    }
    assert len(Split(**parts)) == 3
    refused(error, message, lambda: Split(**{**parts, **changed}))


class Counted(torch.utils.data.Dataset):
    """Ten samples that are slow to read in turn, and one that cannot be."""

    def __init__(self, broken=None):
        self.broken, self.read = broken, []

    def __len__(self):
        return 10

    def __getitem__(self, indices):
        time.sleep(0.002 * (indices[0] % 3))
        if self.broken in indices:
            raise ValueError("broken.jpg cannot be read")
        self.read.append(list(indices))
        return torch.tensor(indices)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_hand_out_batches_in_order_every_epoch(workers):
    batches = BatchSampler(range(10), 3, drop_last=False)
    loader = ThreadedLoader(Counted(), batches, workers)
    assert len(loader) == 4
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_an_error_in_a_thread_reaches_the_consumer():
    loader = ThreadedLoader(Counted(broken=4), BatchSampler(range(10), 3, drop_last=False), 2)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1, 2]
    refused(ValueError, "broken.jpg", lambda: next(batches))


def test_threads_stop_with_the_consumer():
    def threads():
        return [thread for thread in threading.enumerate() if thread.name.startswith("xaibench-loading")]

    data = Counted()
    batches = iter(ThreadedLoader(data, BatchSampler(range(10), 1, drop_last=False), 2))
    next(batches)
    batches.close()
    for _ in range(100):
        if not threads():
            break
        time.sleep(0.01)
    assert threads() == []
    assert len(data.read) < 10


@pytest.mark.parametrize(
    ("theirs", "ours"), [("Gender-XAI", "gender"), ("cat&dog-xai", "pet"), ("Object-XAI", "pascal"), ("VOC", "pascal")]
)
def test_names_of_the_papers_are_understood(theirs, ours):
    assert DATASETS.canonical(theirs) == ours
    assert DATASETS.resolve(theirs) is DATASETS.resolve(ours)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("linear_uncorrelated", "lin-white"),
        ("translations rotations imagenet", "rigid-imagenet"),
        ("XOR-correlated", "xor-corr"),
    ],
)
def test_names_of_the_released_code_of_xai_tris_have_no_size_so_both_are_suggested(theirs, ours):
    refused(ValueError, f"'xai-tris/{ours}-8x8'", load, theirs)
    assert f"xai-tris/{ours}-64x64" in DATASETS
