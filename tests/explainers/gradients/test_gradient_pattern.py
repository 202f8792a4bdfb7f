import sys

import pytest
import torch
from generators.gradient_networks import batch, bending, outputs, suppressing
from oracles import gradients as oracle
from part_cases import ExplainerCase

from xaibench.explainers import explain
from xaibench.explainers.gradients.gradient_pattern import GradientPattern

CASES = {"gradient_pattern": ExplainerCase(parameters={"n_samples": 4})}


def fitted(count=30, **parameters):
    training = batch(count)[0].flip(0)
    return GradientPattern(n_samples=3, **parameters).fit(None, [training[:7], (training[7:], None)]), training


def surrogates(part, model, images, targets):
    """The weights ``[N, F]`` and the outputs ``[N]``."""
    total = torch.zeros_like(images)
    for samples, _, gradients in part.noisy_gradients(model, images, targets):
        total[samples] += gradients.sum(1)
    return total.flatten(1) / part.n_samples, outputs(model, images, targets)


@pytest.mark.parametrize(("projected", "batch_size"), [(True, None), (True, 2), (False, None)])
def test_oracle(projected, batch_size):
    model, (images, targets) = bending(), batch()
    part, training = fitted(neighbor_fraction=0.3, project_to_boundary=projected, batch_size=batch_size)
    maps = part(model, images, targets)
    for found, image, w, value in zip(maps, images, *surrogates(part, model, images, targets), strict=True):
        expected = oracle.pattern_local(training.flatten(1), image.flatten(), w, value, 0.3, projected=projected)
        torch.testing.assert_close(found, expected.reshape(image.shape).sum(0))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="patternlocal is written in the syntax of Python 3.12")
@pytest.mark.parametrize("projected", [True, False])
def test_parity_with_the_authors_solver(projected):
    solvers = pytest.importorskip("patternlocal.solvers")
    model, (images, targets) = bending(), batch()
    part, training = fitted(neighbor_fraction=0.3, project_to_boundary=projected)
    maps = part(model, images, targets)
    solver = solvers.LocalCovarianceSolver({"k_ratio": 0.3, "use_projection": projected})
    for found, image, w, value in zip(maps, images, *surrogates(part, model, images, targets), strict=True):
        x = image.flatten()
        theirs = solver.solve(w.numpy(), (value - w @ x).item(), x.numpy(), training.flatten(1).numpy())
        torch.testing.assert_close(found, torch.from_numpy(theirs).reshape(image.shape).sum(0), rtol=0, atol=1e-8)


def test_a_suppressor_gets_far_less_where_the_gradient_gives_it_as_much():
    """The network takes the second pixel off the first, which has noise in common with it."""
    model, training = suppressing()
    part = GradientPattern(neighbor_fraction=1.0).fit(model, [training])
    images, targets = training[:5], torch.ones(5, dtype=torch.int64)
    shares = explain("saliency", model, images, targets, output="logit").abs()
    assert (shares[..., 0] == shares[..., 1]).all()
    found = explain(part, model, images, targets, device="cpu").abs()
    assert (found[..., 1] < 0.45 * found[..., 0]).all()
    # Of all training images alike, without the weights of distance, it gets nothing.
    pattern = oracle.pattern_local(training.flatten(1), images[0].flatten() + 1e6, torch.tensor([1.0, -1.0]).double(),
                                   torch.tensor(0.0), 1.0, projected=False).abs()  # fmt: skip
    assert pattern[1] < 0.05 * pattern[0]
