import numpy as np
import pytest
import torch
from generators.gradient_networks import batch, bending, outputs
from oracles import gradients as oracle
from part_cases import ExplainerCase

from xaibench.explainers.gradients import xrai as module
from xaibench.explainers.gradients.integrated_gradients import IntegratedGradients
from xaibench.explainers.gradients.xrai import XRAI, grow_regions

SMALL = {"n_steps": 3, "segmentation_size": 16, "min_segment_size": 8, "dilation": 1}
CASES = {"xrai": ExplainerCase(parameters=SMALL, waits=2)}


def overlapping(seed, count=12, size=(9, 8)):
    rng = np.random.default_rng(seed)
    return rng.random((count, *size)) < rng.random((count, 1, 1)), rng.standard_normal(size)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fewest", [1, 6])
def test_growing_oracle(seed, fewest):
    segments, attribution = overlapping(seed)
    found = grow_regions(segments, attribution, fewest)
    np.testing.assert_allclose(found, oracle.xrai(segments, attribution, fewest), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.sum(), attribution.sum(), atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_parity_of_growing_with_the_authors_package(seed):
    xrai = pytest.importorskip("saliency.core.xrai")
    segments, attribution = overlapping(seed)
    theirs, _ = xrai.XRAI._xrai(attribution, list(segments), min_pixel_diff=6)
    np.testing.assert_allclose(grow_regions(segments, attribution, 6), theirs, rtol=0, atol=1e-10)


def test_parity_of_the_segments_with_the_authors_package():
    xrai = pytest.importorskip("saliency.core.xrai")
    picture = np.random.default_rng(0).random((3, 224, 224)).cumsum(1).cumsum(2) % 900.0
    theirs = xrai._get_segments_felzenszwalb(picture.transpose(1, 2, 0))
    np.testing.assert_array_equal(XRAI().segments(picture), np.stack(theirs))


def test_segments_of_two_halves():
    picture = np.zeros((1, 48, 48))
    picture[:, :, 24:] = 1
    left = picture[0] == 0
    found = XRAI(segmentation_size=48, min_segment_size=100, dilation=0).segments(picture)
    assert len(found) == 12  # two at each of six scales
    assert all(np.array_equal(segment, left) or np.array_equal(segment, ~left) for segment in found)
    wide = XRAI(segmentation_size=48, min_segment_size=100, dilation=3).segments(picture)
    assert all(segment.sum() == 48 * 27 for segment in wide)
    assert XRAI(segmentation_size=16, min_segment_size=8, dilation=0).segments(np.full((1, 8, 8), 3.0)).any(0).all()


def test_the_map_holds_what_the_two_integrals_do():
    model, (images, targets) = bending(), batch()
    maps = XRAI(**(SMALL | {"n_steps": 30}))(model, images, targets)
    ends = images.flatten(1).aminmax(dim=1)
    lost = sum(outputs(model, end.reshape(-1, 1, 1, 1).expand_as(images), targets) for end in ends) / 2
    torch.testing.assert_close(maps.sum((1, 2)), outputs(model, images, targets) - lost)
    for found, image, target in zip(maps, images, targets, strict=True):
        each = [
            IntegratedGradients(n_steps=30, baseline=end.item())(model, image[None], target[None])[0]
            for end in (image.min(), image.max())
        ]
        segments = XRAI(**SMALL).segments(image.numpy())
        expected = oracle.xrai(segments, (sum(each) / 2).numpy(), 50 * 42 // 256)
        torch.testing.assert_close(found, torch.from_numpy(expected))


def test_segments_of_a_small_image_are_found_once_and_are_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    picture, found, real = rng.random((3, 8, 8)), [], module._segments
    monkeypatch.setattr(module, "_segments", lambda *a: (found.append(a), real(*a))[1])
    first, again = XRAI().segments(picture), XRAI().segments(picture.copy())
    assert len(found) == 1
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, real(picture, 224, 150, 5))
    XRAI(dilation=0).segments(picture)
    XRAI().segments(rng.random((3, 65, 65)))
    assert len(found) == 3
