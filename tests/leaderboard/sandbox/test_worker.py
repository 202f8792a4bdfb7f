"""The worker's own part: hidden masks, and one fitted copy at a time."""

import copy
import weakref

import pytest
import torch

from xaibench.leaderboard.sandbox.worker import ForbiddenActionError, HiddenMasks, Worker

NETWORK = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
SETTINGS = {"entry": "pattern_net", "parameters": {}, "output": None, "device": "cpu"}


def test_reading_masks_is_refused_and_recorded():
    worker = Worker(SETTINGS)
    masks = HiddenMasks(worker.refuse)
    for read in (lambda: masks[0], lambda: masks.shape, lambda: masks.numpy()):
        with pytest.raises(ForbiddenActionError, match="it reads the masks of the training samples"):
            read()
    assert worker.refused == ["it reads the masks of the training samples, which are the answer"]


def test_the_samples_of_an_earlier_fit_are_let_go():
    """Else a method that is fitted to each of many networks would hold the training samples of all of them."""
    worker = Worker(SETTINGS)
    network = copy.deepcopy(NETWORK).double()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(40, 1, 2, 2, generator=generator, dtype=torch.float64)
    held = []
    for number in (1, 2):
        samples = images.clone()
        held.append(weakref.ref(samples))
        worker.fit(number, [(samples, torch.arange(40) % 2)], seed=0)
        del samples
        maps = worker.explain(number, network, images[:2], torch.zeros(2).long(), seed=0)
        assert maps.shape == (2, 2, 2)
    assert [one() is None for one in held] == [True, False]
