import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics import f_fidelity
from xaibench.metrics.shared.model_scores import random_generator

SHARES = st.floats(0, 1, exclude_min=True)
CASES = {
    "f_fidelity": MetricCase(
        quick={"n_samples": 3},
        drawn={
            "fractions": st.lists(SHARES, min_size=1, max_size=2),
            "alpha": SHARES,
            "beta": SHARES,
            "n_samples": st.integers(1, 3),
            "side": st.sampled_from(["both", "plus", "minus"]),
        },
    )
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.1), (0.3, 0.9)])
def test_both_fidelities_are_those_of_the_paper(case, alpha, beta):
    model, images, maps, targets = case
    settings = {
        "fractions": (0.1, 0.4, 1.0),
        "alpha": alpha,
        "beta": beta,
        "n_samples": 4,
        "seed": 3,
        "reduction": "none",
    }
    fields = [random_generator(3, number).random(maps.shape[1:]) for number in range(4)]
    by_hand = [
        oracle.f_fidelity(model, *one, settings["fractions"], alpha, beta, fields)
        for one in zip(images, maps, targets, strict=True)
    ]
    plus, minus = np.array(by_hand).T
    for side, expected in (("plus", plus), ("minus", -minus), ("both", plus - minus)):
        np.testing.assert_allclose(f_fidelity(*case, side=side, **settings), expected, atol=1e-6)


def test_no_more_than_beta_of_the_pixels_goes():
    gone = []

    def model(images):
        gone.extend((images == 0).float().mean((1, 2, 3)).tolist())
        return images.sum((2, 3))

    f_fidelity(model, torch.ones(1, 1, 40, 40), torch.rand(1, 40, 40), torch.tensor([0]), output="logit", n_samples=5)
    assert max(gone) < 0.1 + 3 * (0.1 * 0.9 / 1600) ** 0.5 + 0.01
    assert np.mean(gone) > 0.05


def test_the_right_map_is_best_and_that_turned_round_as_bad():
    weight = torch.rand(10, 10, generator=torch.Generator().manual_seed(0)) / 50
    model = lambda images: (images * weight).sum((2, 3))  # noqa: E731
    image, target = torch.ones(1, 1, 10, 10), torch.tensor([0])
    maps = [torch.rand(10, 10, generator=torch.Generator().manual_seed(seed)) for seed in range(1, 9)]
    right, turned, *others = (
        f_fidelity(model, image, one[None], target, output="logit", n_samples=20) for one in (weight, -weight, *maps)
    )
    assert all(turned < score < right for score in others)
    assert turned < 0 < right
