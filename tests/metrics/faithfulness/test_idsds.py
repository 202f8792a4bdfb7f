import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

import xaibench as xb
from xaibench.metrics import idsds

CASES = {
    "idsds": MetricCase(
        drawn={"grid_size": st.integers(2, 5), "output": st.sampled_from(["logit", "probability"])},
        undefined=oracle.unordered,
    )
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize("grid", [2, 4])
def test_patches_of_the_map_rank_as_the_logit_falls(case, grid):
    model, images, maps, targets = case
    scores = idsds(model, images, maps, targets, grid_size=grid, reduction="none")
    by_hand = [oracle.idsds(model, *one, grid) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, by_hand, atol=1e-9)


def test_equal_sums_of_patches_are_ties(case):
    model, images, _, targets = case
    maps = torch.randint(0, 7, images[:, 0].shape, generator=torch.Generator().manual_seed(0)).double()
    scores = idsds(model, images, maps, targets, reduction="none")
    by_hand = [oracle.idsds(model, *one, 4) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, by_hand, atol=1e-12)


def test_the_map_that_is_right_is_best_and_that_turned_round_worst():
    weight = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = lambda images: (images * weight).sum((2, 3))  # noqa: E731
    image, target = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0])
    exact = image[:, 0] * weight
    assert idsds(model, image, exact, target) == pytest.approx(1)
    assert idsds(model, image, -exact, target) == pytest.approx(-1)
    chance = torch.randn(200, 8, 8, generator=torch.Generator().manual_seed(2))
    random = idsds(model, image.expand(200, -1, -1, -1), chance, target.expand(200), reduction="none")
    assert abs(random.mean()) < 0.06  # two standard errors are 0.04


def test_what_no_patch_moves_has_no_order():
    blind = lambda images: images.new_ones(len(images), 2) * images[:, 0, :1, 0]  # noqa: E731
    image = torch.ones(1, 1, 8, 8)
    image[0, 0, 0, 0] = 0  # the one pixel that the model reads is the baseline already
    assert math.isnan(idsds(blind, image, torch.rand(1, 8, 8), torch.tensor([0])))


def asked_rows(methods, metrics, data):
    """Rows that the model is asked by metrics, in ``evaluate``."""
    rows = []

    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = small_cnn(channels=1, classes=2)

        def forward(self, images):
            rows.append(len(images))
            return self.inner(images)

    maps = {
        str(number): torch.rand(data.masks.shape, generator=torch.Generator().manual_seed(number)) for number in methods
    }
    result = xb.evaluate(
        maps, data, Counted().eval(), metrics, controls=False, scored="all", batch_size=4, device="cpu"
    )
    return sum(rows), result


def test_all_methods_share_what_the_model_is_asked():
    generator = torch.Generator().manual_seed(0)
    images, masks = torch.randn(8, 1, 8, 8, generator=generator), torch.rand(8, 8, 8, generator=generator) < 0.3
    data = xb.data.Split(images, masks, torch.arange(8) % 2)
    metrics = {"idsds": {"batch_size": 50}, "hit": {}}
    alone, _ = asked_rows(range(1), metrics, data)
    together, result = asked_rows(range(5), metrics, data)
    assert alone == together  # 17 an image, whatever the number of methods
    asked, _ = asked_rows(range(1), ["hit"], data)
    assert alone - asked == 8 * 17 + 2 * 2  # two looks at the first image of each of the two batches
    model = small_cnn(channels=1, classes=2)
    for label, rows in result.scores[result.scores["metric"] == "idsds"].groupby("method"):
        maps = torch.rand(8, 8, 8, generator=torch.Generator().manual_seed(int(label)))
        expected = idsds(model, images, maps, data.targets, reduction="none")
        np.testing.assert_allclose(rows["value"], expected, atol=1e-9)
