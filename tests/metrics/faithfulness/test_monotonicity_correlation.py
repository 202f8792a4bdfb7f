import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from part_cases import MetricCase

from xaibench.metrics import monotonicity_correlation
from xaibench.metrics.shared.model_scores import random_generator
from xaibench.metrics.shared.perturb import patch_sums


def without_order(trial):
    """A map whose patches all have the same magnitude, or a model on which all have the same effect."""
    sums = patch_sums(torch.as_tensor(trial.maps), trial.parameters["grid_size"]).abs()
    return [bool((one == one[0]).all()) or math.isnan(score) for one, score in zip(sums, trial.scores, strict=True)]


CASES = {
    "monotonicity_correlation": MetricCase(
        quick={"n_samples": 2, "grid_size": 4},
        drawn={
            "grid_size": st.integers(2, 5),
            "n_samples": st.integers(1, 3),
            "seed": st.integers(0, 5),
            "output": st.sampled_from(["logit", "probability"]),
        },
        takes_magnitude=True,
        undefined=without_order,
    )
}


@pytest.mark.parametrize("grid", [2, 4, 6])
def test_magnitudes_of_patches_rank_as_the_squared_changes(model_case, grid):
    model, images, maps, targets = model_case
    settings = {"grid_size": grid, "n_samples": 3, "seed": 2, "reduction": "none"}
    scores = monotonicity_correlation(model, images, maps, targets, **settings)
    sources = [random_generator(2, index).permutation(7 * 6) for index in range(3)]
    by_hand = [
        oracle.monotonicity_correlation(model, *one, grid, sources) for one in zip(images, maps, targets, strict=True)
    ]
    np.testing.assert_allclose(scores, by_hand, atol=1e-9)


def test_a_linear_function_ranks_by_its_weights():
    generator = torch.Generator().manual_seed(0)
    weight, images = torch.randn(4, 4, generator=generator), torch.randn(3, 1, 4, 4, generator=generator)
    model, targets = lambda images: (images * weight).sum((2, 3)), torch.zeros(3, dtype=torch.int64)
    settings = {"grid_size": 4, "n_samples": 400, "output": "logit", "reduction": "none"}
    scores = monotonicity_correlation(model, images, weight.expand(3, -1, -1), targets, **settings)
    assert (scores > 0.7).all()  # the change also depends on the pixel's own value
    chance = torch.randn(300, 4, 4, generator=generator)
    settings |= {"n_samples": 5, "reduction": "mean"}
    image, target = images[:1].expand(300, -1, -1, -1), torch.zeros(300, dtype=torch.int64)
    assert abs(monotonicity_correlation(model, image, chance, target, **settings)) < 0.06


def test_a_model_that_ignores_the_image_has_no_order():
    blind = lambda images: images.new_ones(len(images), 2)  # noqa: E731
    assert math.isnan(monotonicity_correlation(blind, torch.rand(1, 1, 4, 4), torch.rand(1, 4, 4), torch.tensor([0])))


def test_tiny_changes_are_ranked_as_large_ones():
    weight = torch.arange(1.0, 17.0, dtype=torch.float64).reshape(4, 4)
    image, target = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0)).double(), torch.tensor([0])
    settings = {"grid_size": 4, "output": "logit"}
    found = [
        monotonicity_correlation(
            lambda images, scale=scale: (images * weight * scale).sum((2, 3)), image, weight[None], target, **settings
        )
        for scale in (1.0, 1e-200, 1e200)
    ]
    assert found[0] == pytest.approx(found[1]) == pytest.approx(found[2])
    assert found[0] > 0.5


def test_the_model_is_called_once_for_all_maps(model_case):
    model, images, maps, targets = model_case
    shared, rows = monotonicity_correlation.info.shared_scores, []
    settings = {"n_samples": 2, "grid_size": 3}

    def counted(images):
        rows.append(len(images))
        return model(images)

    answers = shared.ask(counted, images, targets, **settings)
    assert sum(rows) == 4 + len(images) * (1 + 2 * 9)  # the first four rows check the outputs
    for some in (maps, maps.flip(2)):
        found = shared.score(answers, some, **settings, reduction="none")
        assert torch.equal(found, monotonicity_correlation(model, images, some, targets, **settings, reduction="none"))
