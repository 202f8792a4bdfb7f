import torch

import xaibench as xb
from xaibench.benchmarks.facets import facet_label
from xaibench.data import whiten


def test_it_is_the_data_set_whitened():
    data = xb.load("whitened:partial_regression:xai-tris/lin-corr-8x8", seed=1, n_samples=400)
    expected = whiten(xb.load("xai-tris/lin-corr-8x8", seed=1, n_samples=400), "partial_regression")
    largest = max(split.images.abs().max() for split in (expected.train, expected.val, expected.test))
    torch.testing.assert_close(data.test.images, expected.test.images / largest)
    assert max(split.images.abs().max() for split in (data.train, data.val, data.test)) == 1
    assert torch.equal(data.test.masks, expected.test.masks)
    assert data.note == expected.note
    assert data.info.name == "whitened:partial_regression:xai-tris/lin-corr-8x8"
    assert facet_label(data.info.variant) == "CORR, partial regression"
