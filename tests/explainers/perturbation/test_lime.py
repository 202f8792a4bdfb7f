import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso
from oracles import explainers as oracle
from oracles.coalitions import generator_of, recorded_masks
from part_cases import ExplainerCase

from xaibench.explainers import ExplainedOutput, build, explain

#: The regression is on the CPU: the outputs of the masked images come over once.
CASES = {"lime": ExplainerCase(parameters={"n_samples": 200}, few={"n_samples": 50, "alpha": 1e-4}, waits=3)}


def test_lime_agrees_with_captum_given_the_same_coalitions(double, images, targets):
    model, explained = double
    masks = recorded_masks(build("lime", n_samples=50, seed=2), images, 64)
    maps = explain("lime", model, images, targets, n_samples=50, seed=2, alpha=1e-4)
    method = captum.attr.Lime(explained, interpretable_model=SkLearnLasso(alpha=1e-4), perturb_func=generator_of(masks))
    with pytest.warns(UserWarning, match="multiple inputs for Lime"):
        theirs = method.attribute(images.double(), target=targets, n_samples=50)
    assert maps.abs().max() > 1e-3
    # Captum rounds the outputs to float32, and the lasso stops within 1e-4 of its optimum.
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=0, atol=2e-2 * maps.abs().max().item())


def test_lime_solves_its_weighted_lasso(mlp, images, targets):
    explainer = build("lime", n_samples=50, seed=4, alpha=1e-3)
    mlp.double().eval()
    explained = ExplainedOutput(mlp, "margin")
    maps = explain(explainer, mlp, images, targets, output="margin")
    for i, masks in enumerate(recorded_masks(explainer, images, 64)):
        x, kept = images[i].double().flatten(), torch.from_numpy(masks)
        rows = kept * x
        with torch.no_grad():
            y = explained(rows.reshape(-1, 1, 8, 8))[:, targets[i]].numpy()
        cosine = (rows @ x) / (rows.norm(dim=1) * x.norm())
        weights = torch.exp(-((1 - cosine) ** 2) / 2).numpy()
        coefficients = maps[i].flatten().numpy()
        assert 0 < (coefficients != 0).sum() < 50
        scale = oracle.lasso_violation(masks, y, weights, 0 * coefficients, 1e-3)
        assert oracle.lasso_violation(masks.astype(float), y, weights, coefficients, 1e-3) < 0.02 * scale


def test_lime_draws_each_feature_with_probability_one_half():
    (masks,) = recorded_masks(build("lime", n_samples=4000), torch.zeros(1, 1, 4, 4), 16)
    assert np.abs(masks.mean(0) - 0.5).max() < 0.04
    assert np.abs(masks.mean(1)).std() == pytest.approx(np.sqrt(0.25 / 16), rel=0.1)


class Faint(torch.nn.Module):
    """A class of small probability, as most of a thousand are: two pixels move it by some 1e-6."""

    def forward(self, x):
        rise = x.flatten(1)[:, :2] @ x.new_tensor([2.0, -1.0])
        return torch.stack([rise - 14, torch.zeros_like(rise)], 1)


def test_by_default_lime_finds_what_moves_a_small_probability(images):
    y = torch.zeros(7, dtype=torch.int64)
    images = images.abs() + 0.1
    maps = explain("lime", Faint(), images, y, n_samples=300)
    assert maps.abs().max() < 1e-4
    assert (maps.flatten(1)[:, 2:].abs().amax(1) < 0.15 * maps.flatten(1)[:, :2].abs().amin(1)).all()
    assert (maps[:, 0, 0] > 0).all()
    assert (maps[:, 0, 1] < 0).all()
    scale = maps.abs().amax((1, 2), keepdim=True)
    for factor in (1e-3, 1e3):  # the units of the output are those of the map, and nothing else
        scaled = explain(
            "lime",
            lambda_of(lambda x, f=factor: f * ExplainedOutput(Faint())(x)),
            images,
            y,
            n_samples=300,
            output="logit",
        )
        torch.testing.assert_close(scaled / scale / factor, maps / scale, rtol=0, atol=1e-3)


def lambda_of(function):
    network = torch.nn.Module()
    network.forward = function
    return network


def test_a_map_that_is_zero_everywhere_is_said(images):
    y = torch.zeros(7, dtype=torch.int64)
    with pytest.warns(
        UserWarning, match=r"LIME: 7 of 7 maps are zero everywhere. alpha=0.001 exceeds the effect"
    ) as said:
        maps = explain("lime", Faint(), images, y, alpha=0.001)
    assert not maps.any()
    assert said[0].filename == __file__
    constant = lambda_of(lambda x: x.new_zeros(len(x), 2))
    for name in ("lime", "kernel_shap"):
        with pytest.warns(UserWarning, match="7 of 7 maps are zero everywhere. The output does not change"):
            explain(name, constant, images, y, dtype=torch.float32)
