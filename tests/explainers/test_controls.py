import numpy as np
import pytest
import torch
from oracles.explainers import correlate3x3
from part_cases import ExplainerCase
from refusals import refused
from scipy import ndimage

from xaibench.explainers import EXPLAINERS, NotFittedError, build, explain
from xaibench.explainers.controls import Prior

#: They use NumPy filters.
CASES = {name: ExplainerCase(waits=1) for name in ("sobel", "laplace")}

HORIZONTAL = [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]
VERTICAL = [[-1, -2, -1], [0, 0, 0], [1, 2, 1]]
LAPLACE = [[0, 1, 0], [1, -4, 1], [0, 1, 0]]


@pytest.fixture
def pictures():
    return torch.rand(3, 1, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def targets_for(images):
    return torch.zeros(len(images), dtype=torch.long)


def controls(name, images, **parameters):
    return explain(name, None, images, targets_for(images), **parameters)


def test_sobel_and_laplace_are_3x3_correlations(pictures):
    horizontal = np.stack([correlate3x3(p[0].numpy(), HORIZONTAL) for p in pictures])
    vertical = np.stack([correlate3x3(p[0].numpy(), VERTICAL) for p in pictures])
    laplace = np.stack([correlate3x3(p[0].numpy(), LAPLACE) for p in pictures])
    np.testing.assert_allclose(controls("sobel", pictures, direction="horizontal"), horizontal, atol=1e-12)
    np.testing.assert_allclose(controls("sobel", pictures, direction="vertical"), vertical, atol=1e-12)
    np.testing.assert_allclose(controls("sobel", pictures), np.sqrt(horizontal**2 + vertical**2), atol=1e-12)
    np.testing.assert_allclose(controls("laplace", pictures), laplace, atol=1e-12)


def test_sobel_and_laplace_are_scipys_image_by_image(pictures):
    horizontal = np.stack([ndimage.sobel(p[0].numpy()) for p in pictures])
    laplace = np.stack([ndimage.laplace(p[0].numpy()) for p in pictures])
    np.testing.assert_allclose(controls("sobel", pictures, direction="horizontal"), horizontal, atol=1e-12)
    np.testing.assert_allclose(controls("laplace", pictures), laplace, atol=1e-12)


def test_uniform_is_seeded_and_does_not_depend_on_what_follows(pictures):
    maps = controls("uniform", pictures, seed=3)
    assert maps.equal(controls("random", pictures, seed=3))
    assert not maps.equal(controls("uniform", pictures, seed=4))
    assert maps[:2].equal(controls("uniform", pictures[:2], seed=3))
    many = controls("uniform", torch.arange(100.0).reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8))
    assert -1 <= many.min() < -0.99
    assert 0.99 < many.max() < 1


def test_input_is_the_image_and_no_view_of_it(pictures):
    maps = controls("x", pictures)
    assert maps.equal(pictures[:, 0])
    maps.zero_()
    assert pictures.abs().sum() > 0


def test_controls_need_no_model_and_say_so_by_their_info(pictures):
    for name in ("sobel", "laplace", "uniform", "input", "center_prior", "prior"):
        assert build(name).info.control
    with pytest.raises(TypeError, match=r"Saliency: got no model, expected .*; only controls"):
        controls("saliency", pictures)


def test_the_center_prior_is_a_gaussian_about_the_middle():
    maps = explain("center_prior", None, torch.rand(2, 3, 5, 9), torch.zeros(2, dtype=torch.int64))
    assert maps.shape == (2, 5, 9)
    assert maps[0].equal(maps[1])
    assert maps[0].argmax() == 2 * 9 + 4
    torch.testing.assert_close(maps[0], maps[0].flip(0, 1))
    assert maps[0, 2, 0] == pytest.approx(np.exp(-((4 / 9 / 0.25) ** 2) / 2))
    with pytest.raises(ValueError, match=r"CenterPrior\(width=0\): expected a number above 0"):
        explain("center_prior", None, torch.rand(2, 3, 5, 9), torch.zeros(2, dtype=torch.int64), width=0)


MASKS = torch.tensor([[[1, 1], [0, 0]], [[1, 0], [0, 0]], [[0, 1], [1, 0]]], dtype=torch.bool)
NO_MASKS = torch.zeros(2, 2, 2, dtype=torch.bool)


def training(masks, size=10):
    return [(torch.rand(len(part), 1, 2, 2), part, targets_for(part)) for part in masks.split(size)]


def test_the_prior_is_the_mean_mask_however_the_images_are_batched():
    for size in (1, 2, 3):
        fitted = Prior().fit(None, training(MASKS, size))
        assert fitted.mask.tolist() == [[2 / 3, 2 / 3], [1 / 3, 0]]
    maps = explain(fitted, None, torch.rand(4, 3, 2, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.int64))
    assert maps.shape == (4, 2, 2)
    assert all(one.equal(fitted.mask) for one in maps)
    assert {EXPLAINERS.canonical(alias) for alias in ("mask_prior", "mean_mask")} == {"prior"}


def test_images_without_a_mask_do_not_count_in_the_prior():
    expected = Prior().fit(None, training(MASKS)).mask
    assert Prior().fit(None, training(torch.cat([NO_MASKS, MASKS]))).mask.equal(expected)
    unknown = torch.cat([MASKS.double(), torch.full((1, 2, 2), torch.nan, dtype=torch.float64)])
    assert Prior().fit(None, training(unknown)).mask.equal(expected)


@pytest.mark.parametrize(
    "batches",
    [
        [],
        training(NO_MASKS),
        training(torch.full((2, 2, 2), torch.nan)),
        [(torch.rand(2, 1, 2, 2), None, torch.zeros(2))],
        [torch.rand(2, 1, 2, 2)],
    ],
    ids=["no batch", "empty", "not finite", "none", "images alone"],
)
def test_a_prior_without_masks_is_an_error(batches):
    with pytest.raises(NotFittedError, match=r"Prior\.fit: no training image has a mask, .* leave it out"):
        Prior().fit(None, batches)


def test_a_prior_that_is_not_fitted_to_such_images_is_an_error(pictures):
    refused(NotFittedError, "Prior is not fitted. Fit it to the training split first", controls, "prior", pictures)
    with pytest.raises(ValueError, match=r"fitted to masks \[2, 2\], got images \[5, 7\]"):
        explain(Prior().fit(None, training(MASKS)), None, pictures, targets_for(pictures))
    refused(ValueError, "values other than 0 and 1", lambda: Prior().fit(None, training(MASKS * 0.5)))
    with pytest.raises(TypeError, match=r"has masks \[2, 4\], expected"):
        Prior().fit(None, [(torch.rand(2, 1, 2, 2), torch.zeros(2, 4), torch.zeros(2))])
    with pytest.raises(ValueError, match=r"masks \[3, 3\] follow masks \[2, 2\]"):
        Prior().fit(None, [*training(MASKS), *training(torch.ones(1, 3, 3))])


def test_rgb_keeps_the_strongest_channel(pictures):
    rgb = torch.cat([0 * pictures, -2 * pictures, pictures], 1)
    torch.testing.assert_close(controls("laplace", rgb), -2 * controls("laplace", pictures))
