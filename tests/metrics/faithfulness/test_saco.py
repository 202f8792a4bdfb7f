import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics import saco

CASES = {
    "saco": MetricCase(drawn={"n_groups": st.integers(2, 12), "baseline": st.sampled_from(["mean", 0.0, -1.5, "blur"])})
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize("groups", [2, 7, 42])
def test_coefficient_is_that_of_the_algorithm(case, groups):
    model, images, maps, targets = case
    scores = saco(model, images, maps, targets, n_groups=groups, reduction="none")
    by_hand = [oracle.saco(model, *one, groups) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)


def test_the_right_order_is_one_and_that_turned_round_minus_one():
    weight = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = lambda images: (images * weight).sum((2, 3))  # noqa: E731
    image, target = torch.ones(1, 1, 8, 8), torch.tensor([0])
    settings = {"baseline": 0.0, "output": "logit"}
    assert saco(model, image, weight, target, **settings) == pytest.approx(1)
    assert saco(model, image, -weight, target, **settings) == pytest.approx(-1)


def test_values_count_and_not_only_ranks(case):
    model, images, maps, targets = case
    assert (
        saco(model, images, maps, targets, reduction="none")
        != saco(model, images, maps.exp(), targets, reduction="none")
    ).any()


def test_a_model_that_misses_nothing_finds_every_map_right():
    model = lambda images: torch.stack([images.sum((1, 2, 3)) * 0, images.sum((1, 2, 3)) * 0 + 1], 1)  # noqa: E731
    assert saco(model, torch.ones(1, 1, 5, 5), torch.rand(1, 5, 5), torch.tensor([0])) == 1
