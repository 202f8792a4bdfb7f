"""The oracle of every case is the right map."""

import pytest
import torch

from xaibench.core.truth_kinds import TRUTHS
from xaibench.meta_evaluation.known_cases import CASES, blinded


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_oracle_marks_nothing_beside_the_mask(truth):
    for draw in range(3):
        case = CASES[truth](draw, 6, 3)
        again = CASES[truth](draw, 6, 3)
        assert len(case.images) == len(case.targets) == 6
        assert case.oracle.shape == case.masks.shape
        assert case.masks.flatten(1).any(1).all()
        assert not case.masks.flatten(1).all(1).any()
        assert bool((case.oracle[~case.masks] == 0).all())
        assert bool((case.oracle.flatten(1) != 0).any(1).all())
        assert torch.equal(case.oracle, again.oracle)
        assert not torch.equal(case.oracle, CASES[truth](draw, 6, 4).oracle) or truth == "data"


@pytest.mark.parametrize("draw", [0, 3, 8])
def test_the_values_of_a_network_sum_to_its_logit(draw):
    case = CASES["use"](draw, 6, 0)
    logits, empty = case.model(case.images), case.model(torch.zeros_like(case.images))
    worth = (logits - empty).gather(1, case.targets[:, None])[:, 0]
    assert torch.allclose(case.oracle.sum((1, 2)), worth.double(), atol=1e-6)


def test_a_linear_network_is_worth_weight_times_pixel():
    case = blinded(0, 4, 0)
    for row, column in case.masks[0].nonzero()[:3]:
        without = case.images.clone()
        without[:, 0, row, column] = 0
        fall = (case.model(case.images) - case.model(without)).gather(1, case.targets[:, None])[:, 0]
        assert torch.allclose(case.oracle[:, row, column], fall.double(), atol=1e-6)


def test_outlines_cover_what_people_mark():
    shares = torch.cat([CASES["human"](draw, 20, draw).masks.double().mean((1, 2)) for draw in range(4)])
    assert 0.1 <= shares.min() < 0.25 < shares.max() <= 0.6
    assert {CASES["human"](draw, 2, 0).name for draw in range(3)} == {"outline", "box"}
