import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from part_cases import MetricCase

from xaibench.metrics import sensitivity_n
from xaibench.metrics.shared.model_scores import count_of_share, random_generator


def unrelated(trial):
    """A constant map; and where sets are few or cover everything, maybe sums or falls that do not vary."""
    return [one.min() == one.max() or np.isnan(score) for one, score in zip(trial.maps, trial.scores, strict=True)]


CASES = {
    "sensitivity_n": MetricCase(
        quick={"n_samples": 10},
        drawn={
            "fraction": st.lists(st.floats(0.01, 1.0), min_size=1, max_size=3).map(tuple),
            "n_samples": st.integers(2, 8),
            "seed": st.integers(0, 5),
            "output": st.sampled_from(["logit", "probability"]),
        },
        undefined=unrelated,
    )
}


def subsets(fraction, n_samples, seed, shape):
    """The sets of one size as lists of pixels."""
    height, width = shape
    orders = [random_generator(seed, index).permutation(height * width) for index in range(n_samples)]
    count = count_of_share(fraction, height * width)
    return [[divmod(int(pixel), width) for pixel in order[:count]] for order in orders]


@pytest.mark.parametrize("fraction", [(0.2,), (0.05, 0.5, 0.8)])
def test_sums_correlate_with_the_falls_of_the_logit(model_case, fraction):
    model, images, maps, targets = model_case
    scores = sensitivity_n(model, images, maps, targets, fraction=fraction, n_samples=9, seed=3, reduction="none")
    by_hand = [
        np.mean([oracle.sensitivity_n(model, *one, subsets(size, 9, 3, maps.shape[1:])) for size in fraction])
        for one in zip(images, maps, targets, strict=True)
    ]
    np.testing.assert_allclose(scores, by_hand, atol=1e-10)


def test_contributions_to_a_linear_function_score_one_and_slopes_less():
    generator = torch.Generator().manual_seed(0)
    weight, images = torch.randn(6, 6, generator=generator), torch.randn(4, 1, 6, 6, generator=generator)
    model, targets = lambda images: (images * weight).sum((2, 3)), torch.zeros(4, dtype=torch.int64)
    exact = (images * weight)[:, 0]
    for factor in (1, 1e-200, 1e200):
        scores = sensitivity_n(model, images, exact.double() * factor, targets, reduction="none")
        np.testing.assert_allclose(scores, 1, atol=1e-5)
    assert (sensitivity_n(model, images, weight.expand(4, -1, -1), targets, reduction="none") < 0.8).all()
    chance = torch.randn(300, 6, 6, generator=generator)
    random = sensitivity_n(model, images[:1].expand(300, -1, -1, -1), chance, torch.zeros(300, dtype=torch.int64))
    assert abs(random) < 0.05


def test_pixels_are_replaced_by_the_baseline(model_case):
    model, images, maps, targets = model_case
    color = (0.3, -0.2)
    moved = images - torch.tensor(color, dtype=torch.float64)[:, None, None]
    shifted = lambda x: model(x + torch.tensor(color, dtype=torch.float64)[:, None, None])  # noqa: E731
    settings = {"n_samples": 5, "reduction": "none"}
    found = sensitivity_n(model, images, maps, targets, baseline=color, **settings)
    np.testing.assert_allclose(found, sensitivity_n(shifted, moved, maps, targets, **settings), atol=1e-9)
    assert not np.allclose(found, sensitivity_n(model, images, maps, targets, **settings))


def test_a_size_of_all_pixels_is_left_out(model_case):
    settings = {"n_samples": 6, "reduction": "none"}
    both = sensitivity_n(*model_case, fraction=(0.3, 1.0), **settings)
    np.testing.assert_array_equal(both, sensitivity_n(*model_case, fraction=0.3, **settings))
    assert sensitivity_n(*model_case, fraction=1.0, **settings).isnan().all()


def test_a_model_that_ignores_the_image_has_no_correlation():
    blind = lambda images: images.new_ones(len(images), 2)  # noqa: E731
    assert math.isnan(sensitivity_n(blind, torch.rand(1, 1, 4, 4), torch.rand(1, 4, 4), torch.tensor([0])))


def test_the_model_is_called_once_for_all_maps(model_case):
    model, images, maps, targets = model_case
    shared, rows = sensitivity_n.info.shared_scores, []
    settings = {"n_samples": 4, "fraction": (0.2, 0.6), "seed": 1}

    def counted(images):
        rows.append(len(images))
        return model(images)

    answers = shared.ask(counted, images, targets, **settings)
    assert sum(rows) == 4 + len(images) * 9  # the first four rows check the outputs
    for some in (maps, maps.flip(2)):
        found = shared.score(answers, some, **settings, reduction="none")
        assert torch.equal(found, sensitivity_n(model, images, some, targets, **settings, reduction="none"))
