import numpy as np
import pytest
import torch
from oracles import perturbation as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics import average_drop, increase_in_confidence


def constant(trial):
    """Whose order float64 does not show: the map is scaled in it."""
    return [bool((one == one.flat[0]).all()) for one in trial.maps.astype(np.float64)]


def constant_or_sure_of_nothing(trial):
    """From a score of 0 nothing can drop."""
    return [found or score == 0 for found, score in zip(constant(trial), trial.whole, strict=True)]


CASES = {
    "average_drop": MetricCase(undefined=constant_or_sure_of_nothing),
    "increase_in_confidence": MetricCase(undefined=constant),
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize("metric", [average_drop, increase_in_confidence])
def test_dimming(case, metric):
    model, images, maps, targets = case
    scores = metric(model, images, maps, targets, reduction="none")
    expected = [getattr(oracle, metric.__name__)(model, *one) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=1e-3)
    assert len(set(expected)) > 1


def test_torch_cam_drop_of_a_negative_output_is_undefined():
    # torch-cam counts the drop from zero as none, and its older releases divide by negative outputs.
    # y = 0: the drop is 0/0. A sample beside it keeps its score.
    model = lambda images: images.flatten(1)  # noqa: E731
    images = torch.tensor([[[[0.0, 1.0]]], [[[1.0, 1.0]]], [[[-1.0, 1.0]]]])
    maps = torch.tensor([[[1.0, 2.0]]] * 3)
    scores = average_drop(model, images, maps, torch.zeros(3, dtype=torch.int64), output="logit", reduction="none")
    assert scores[:2].isnan().tolist() == [True, False]
    assert scores[1] == 100
    assert scores[2].isnan()  # percent of a negative score mean nothing
    assert average_drop(model, images, maps, torch.zeros(3, dtype=torch.int64), output="logit") == 100


def test_dimming_huge_and_tiny_maps_alike(case):
    model, images, maps, targets = case
    expected = average_drop(model, images, maps, targets)
    assert maps.abs().max() < 3.5
    for scale in (1e-300, 5e307):  # the difference of the largest and the smallest value overflows
        assert average_drop(model, images, maps.double() * scale, targets) == pytest.approx(expected, rel=1e-4)


def test_grad_cam_drop_is_neither_scaled_nor_relative_and_ours_is():
    # pytorch-grad-cam's DropInConfidence multiplies by the map as it is and subtracts.
    model = lambda images: images.flatten(1)  # noqa: E731
    image, maps, target = torch.full((1, 1, 1, 2), 0.5), torch.tensor([[[6.0, 2.0]]]), torch.tensor([1])
    assert average_drop(model, image, maps, target, output="logit") == 100
    assert average_drop(model, image, maps, target - 1, output="logit") == 0


def test_a_loss_of_all_is_a_hundred_percent_and_not_a_bit_more():
    # 100 y / y rounds to more than a hundred for some y.
    scores = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (100 * scores / scores).max() > 100
    images, maps = scores[:, None, None, None].expand(-1, 1, 1, 2), torch.tensor([[[0.0, 1.0]]]).expand(2000, 1, 2)
    drops = average_drop(
        lambda x: x.flatten(1), images, maps, torch.zeros(2000, dtype=torch.int64), output="logit", reduction="none"
    )
    assert drops.unique().tolist() == [100.0]


def test_an_equal_score_is_no_increase():
    model = lambda images: torch.zeros(len(images), 2)  # noqa: E731
    images, maps = torch.ones(1, 1, 1, 2), torch.tensor([[[1.0, 2.0]]])
    assert increase_in_confidence(model, images, maps, torch.tensor([0])) == 0
    assert average_drop(model, images, maps, torch.tensor([0])) == 0
