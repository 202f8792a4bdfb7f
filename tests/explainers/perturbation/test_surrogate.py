import warnings

import numpy as np
import pytest
import torch

from xaibench.explainers import explain
from xaibench.explainers.perturbation.feature_attribution import find_features


@pytest.mark.parametrize("name", ["lime", "kernel_shap"])
def test_fewer_perturbations_than_features_are_said(name, mlp, images, targets):
    with pytest.warns(UserWarning, match="63 perturbations do not determine the 64 features.*feature_mask='slic'"):
        explain(name, mlp, images, targets, n_samples=63)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain(name, mlp, images, targets, n_samples=64)


@pytest.mark.parametrize("name", ["lime", "kernel_shap"])
def test_photographs_are_taken_in_superpixels(name, images, targets):
    features = find_features("auto", images, cell_size=16, n_segments=100)
    assert features.single
    photo = torch.zeros(1, 3, 48, 48)
    photo[:, :, 10:30, 15:40] = 1
    assert not find_features("auto", photo, cell_size=16, n_segments=100).single
    model = torch.nn.Sequential(torch.nn.AvgPool2d(12), torch.nn.Flatten(), torch.nn.Linear(48, 2))
    settings = {"n_segments": 16, "output": "logit"}
    maps = explain(name, model, photo, targets[:1], **settings)
    assert maps.equal(explain(name, model, photo, targets[:1], feature_mask="slic", **settings))
    # Regions, which two seeds find alike.
    other = explain(name, model, photo, targets[:1], seed=1, **settings)
    assert np.corrcoef(maps.flatten(), other.flatten())[0, 1] > 0.99


@pytest.mark.parametrize("name", ["lime", "kernel_shap"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_that_of_the_network_alone(name, dtype, mlp, images, targets):
    exact = explain(name, mlp, images, targets, output="logit", dtype=torch.float64)
    half = explain(name, mlp, images, targets, output="logit", dtype=dtype).double()
    error = {torch.float16: 0.02, torch.bfloat16: 0.15}[dtype]
    torch.testing.assert_close(half, exact, rtol=0, atol=error * exact.abs().max().item())
