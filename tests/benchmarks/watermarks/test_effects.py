"""Whether a network uses the watermark, on networks for which it is known."""

import pytest
import torch
from refusals import refused

import xaibench as xb
from xaibench.benchmarks import blind, watermark_use
from xaibench.benchmarks.watermarks.regimes import banner_mask
from xaibench.models import build

SPLIT = xb.load("watermarks/none", n_samples=80).test
MASK = torch.from_numpy(banner_mask(64))


def sees_the_letters(images):
    return torch.stack([torch.full((len(images),), 0.8 * MASK.sum()), images[:, 0, MASK].sum(1)], 1)


def test_a_network_that_decides_by_the_watermark_flips_with_it():
    use = watermark_use(sees_the_letters, SPLIT)
    assert use.flipped == 1
    changes = (SPLIT.watermarked - SPLIT.plain)[:, 0, MASK].sum(1).double()
    expected = changes.mean() / SPLIT.plain[:, 0, MASK].sum(1).double().std()
    assert use.change == use.magnitude == pytest.approx(float(expected), rel=1e-4)
    assert (use.accuracy_watermarked, use.accuracy_plain) == (0.5, 0.5)


def test_a_blinded_network_does_not_use_it():
    visible = torch.ones(64, 64, dtype=torch.bool)
    visible[:18] = False
    use = watermark_use(blind(build("small_cnn", (1, 64, 64), 2, seed=0), visible), SPLIT)
    assert (use.change, use.magnitude, use.flipped) == (0, 0, 0)
    assert use.accuracy_watermarked == use.accuracy_plain


def test_bad_input_is_refused():
    refused(TypeError, "Split", lambda: watermark_use(sees_the_letters, xb.load("watermarks/none", n_samples=80).train))
    refused(ValueError, "[12, 3]", lambda: watermark_use(lambda images: torch.zeros(len(images), 3), SPLIT))
    refused(ValueError, "0.0", lambda: watermark_use(lambda images: torch.zeros(len(images), 2), SPLIT))
