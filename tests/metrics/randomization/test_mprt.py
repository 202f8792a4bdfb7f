import copy

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import robustness as oracle
from oracles.networks import batch, small_cnn
from oracles.simple_explainers import saliency
from part_cases import MetricCase
from torch import nn

from xaibench.metrics import parameter_randomization
from xaibench.metrics.shared.model_inputs import random_generator


def without_ranks(trial):
    """A constant map; one of zeros has other maps once the parameters are drawn anew, and yet no ranks."""
    ranked = np.abs(trial.maps) if trial.parameters["magnitude"] else trial.maps
    return [bool((one == one.flat[0]).all()) for one in ranked]


CASES = {
    "parameter_randomization": MetricCase(
        drawn={"magnitude": st.booleans(), "seed": st.integers(0, 5)}, undefined=without_ranks
    )
}


@pytest.fixture(scope="module")
def case():
    images, _, targets = batch(n=4, size=(6, 5))
    return saliency, small_cnn().double(), images.double(), targets


def test_parameter_randomization_layer_by_layer(case):
    _, model, images, targets = case
    scores, curves = parameter_randomization(*case, reduction="none", return_curves=True)
    twin, changed, untouched = copy.deepcopy(model), [], []
    with torch.random.fork_rng():
        for index, layer in enumerate([twin[7], twin[3], twin[1], twin[0]]):  # what has parameters, from the top
            torch.manual_seed(int(random_generator(0, index).integers(2**63)))
            layer.reset_parameters()
            changed.append(saliency(twin, images, targets).detach().numpy())
            untouched.append(torch.equal(twin[0].weight, model[0].weight))
    assert untouched == [True, True, True, False]
    original = saliency(model, images, targets).numpy()
    expected = [oracle.mean_rank_correlation(one, [maps[i] for maps in changed]) for i, one in enumerate(original)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert curves.fractions.tolist() == [0.25, 0.5, 0.75, 1.0]
    np.testing.assert_allclose(curves.values.mean(1), scores, rtol=1e-12)
    magnitude = parameter_randomization(*case, magnitude=True, reduction="none")
    expected = [oracle.mean_rank_correlation(abs(o), [abs(m[i]) for m in changed]) for i, o in enumerate(original)]
    np.testing.assert_allclose(magnitude, expected, rtol=1e-9)


def test_parameters_of_a_module_that_cannot_reset_itself():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(1, 2, 400).reshape(1, 1, 20, 20))

        def forward(self, images):
            return (self.weight * images).flatten(1)

    seen = []

    def weights(model, images, targets):
        seen.append(model.weight.detach().clone()[0])
        return model.weight[0]

    score = parameter_randomization(weights, Scale(), torch.ones(1, 1, 20, 20), torch.tensor([0]))
    assert abs(score) < 0.2
    assert seen[1].mean() == pytest.approx(1.5, abs=0.05)
    assert seen[1].std() == pytest.approx(seen[0].std().item(), rel=0.15)
