"""Whitenings, held to what defines each of them."""

import dataclasses

import numpy as np
import pytest
import torch
from refusals import refused
from scipy.linalg import inv, sqrtm

import xaibench as xb
from xaibench.data import Split, whiten
from xaibench.data.whitening import whitening_matrix

KINDS = ("sphering", "cholesky", "symmetric", "signal_preserving", "partial_regression")


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5)) * [1, 2, 3, 1, 0.5] + [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", KINDS[:4])
def test_pixels_are_uncorrelated(samples, kind):
    white = (samples - samples.mean(0)) @ whitening_matrix(samples, kind).T
    expected = np.diag(samples.var(0)) if kind == "symmetric" else np.eye(5)
    np.testing.assert_allclose(np.cov(white, rowvar=False, bias=True), expected, atol=1e-9)


def test_each_has_its_own_form(samples):
    covariance = np.cov(samples, rowvar=False, bias=True)
    correlation = np.corrcoef(samples, rowvar=False)
    matrices = {kind: whitening_matrix(samples, kind) for kind in KINDS}
    np.testing.assert_allclose(matrices["sphering"], inv(sqrtm(covariance)), atol=1e-8)
    np.testing.assert_allclose(matrices["cholesky"], inv(np.linalg.cholesky(covariance)), atol=1e-8)
    spread = np.diag(samples.std(0))
    np.testing.assert_allclose(
        matrices["symmetric"], spread @ inv(sqrtm(spread @ covariance @ spread)) @ spread, atol=1e-8
    )
    preserving = inv(sqrtm(correlation)) @ np.diag(1 / samples.std(0))
    np.testing.assert_allclose(matrices["signal_preserving"], preserving, atol=1e-8)


def test_partial_regression_leaves_residuals(samples):
    centered = samples - samples.mean(0)
    found = centered @ whitening_matrix(samples, "partial_regression").T
    for pixel in range(5):
        others = np.delete(centered, pixel, axis=1)
        weights = np.linalg.lstsq(others, centered[:, pixel], rcond=None)[0]
        np.testing.assert_allclose(found[:, pixel], centered[:, pixel] - others @ weights, atol=1e-9)


def test_only_signal_preserving_ignores_the_scale_of_pixels(samples):
    scaled = samples * [1, 10, 100, 1, 1]
    for kind in ("sphering", "signal_preserving"):
        one, other = ((x - x.mean(0)) @ whitening_matrix(x, kind).T for x in (samples, scaled))
        assert np.allclose(one, other) == (kind == "signal_preserving")


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_is_transformed_by_its_training_images(kind):
    data = xb.load("xai-tris/lin-corr-8x8", seed=0, n_samples=400)
    white = whiten(data, kind)
    train = data.train.images.flatten(1).double().numpy()
    matrix = whitening_matrix(train, kind)
    expected = (data.test.images.flatten(1).double().numpy() - train.mean(0)) @ matrix.T
    np.testing.assert_allclose(white.test.images.flatten(1), expected, rtol=1e-5, atol=1e-5)
    assert white.test.images.shape == data.test.images.shape
    assert torch.equal(white.test.masks, data.test.masks)
    assert torch.equal(white.val.targets, data.val.targets)
    assert list(white.test.ids) == list(data.test.ids)
    assert f"Whitened ({kind})" in white.note


def test_a_direction_without_variance_is_not_amplified_without_bound():
    samples = np.random.default_rng(0).normal(size=(50, 4))
    samples[:, 3] = samples[:, 2]
    for kind in KINDS:
        assert np.abs(whitening_matrix(samples, kind)).max() < 1e8


def test_what_cannot_be_whitened_is_refused():
    data = xb.load("xai-tris/lin-corr-8x8", seed=0, n_samples=40)
    refused(ValueError, "kind", lambda: whiten(data, "zca"))
    few = dataclasses.replace(data, train=Split(*data.train[:1]))
    refused(ValueError, "got 1 ", lambda: whiten(few))
    large = Split(torch.zeros(2, 3, 40, 40), torch.zeros(2, 40, 40, dtype=torch.bool), torch.zeros(2).long())
    refused(ValueError, "4,800", lambda: whiten(dataclasses.replace(data, train=large)))
