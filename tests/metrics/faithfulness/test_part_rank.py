"""Rank correlation of the parts of a map with the effect of removing them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

import xaibench as xb
from xaibench.data import PartSplit
from xaibench.metrics import idsds, part_rank
from xaibench.metrics.faithfulness.part_rank import part_rank_from_scores, part_rank_model_scores

CASES = {
    "part_rank": MetricCase(drawn={"output": st.sampled_from(["logit", "probability"])}, undefined=oracle.unordered)
}


@pytest.fixture(scope="module")
def case():
    model, (images, maps, targets) = small_cnn(), batch()
    generator = torch.Generator().manual_seed(1)
    parts = torch.randint(0, 6, maps.shape, generator=generator)
    parts[0][parts[0] == 2] = 0  # this part is not visible
    behind = torch.rand(images.shape, generator=generator).to(images)
    return model, images, maps, targets, parts, behind


@pytest.mark.parametrize("importance", ["sum", "mean"])
def test_parts_of_the_map_rank_as_the_logit_falls(case, importance):
    model, images, maps, targets, parts, behind = case
    scores = part_rank(
        model, images, maps, targets, parts=parts, behind=behind, importance=importance, reduction="none"
    )
    by_hand = [
        oracle.part_rank(model, *one, importance) for one in zip(images, maps, targets, parts, behind, strict=True)
    ]
    np.testing.assert_allclose(scores, by_hand, atol=1e-9)


def test_a_part_that_is_not_visible_does_not_count(case):
    model, images, maps, targets, parts, behind = case
    numbers = parts[:1].clone()
    numbers[numbers > 2] += 3  # parts 3, 4 and 5 are not visible in any image
    one = part_rank(model, images[:1], maps[:1], targets[:1], parts=numbers, behind=behind[:1])
    other = part_rank(model, images[:1], maps[:1], targets[:1], parts=parts[:1], behind=behind[:1])
    assert one == other


def test_sums_favor_large_parts_and_means_do_not():
    weight = torch.zeros(1, 4, 4)
    weight[0, 0, 0] = 9.0  # the small part has the larger effect
    weight[0, 1:] = 0.5
    parts = torch.full((1, 4, 4), 2)
    parts[0, 0], parts[0, 0, 0] = 0, 1
    model = lambda images: (images * weight).sum((2, 3))  # noqa: E731
    image, target, flat = torch.ones(1, 1, 4, 4), torch.tensor([0]), torch.ones(1, 4, 4)
    flat[0, 0, 0] = 1.1  # nearly constant
    assert part_rank(model, image, flat, target, parts=parts) == pytest.approx(-1)
    assert part_rank(model, image, flat, target, parts=parts, importance="mean") == pytest.approx(1)


def test_the_right_map_is_best_and_a_random_one_at_zero(case):
    _, _, _, _, parts, _ = case
    weight = torch.randn(1, *parts.shape[1:], generator=torch.Generator().manual_seed(0))
    model = lambda images: (images * weight).sum((2, 3))  # noqa: E731
    image = torch.randn(1, 1, *parts.shape[1:], generator=torch.Generator().manual_seed(1))
    target, known = torch.tensor([0]), {"parts": parts[:1]}
    exact = image[:, 0] * weight
    assert part_rank(model, image, exact, target, **known) == pytest.approx(1)
    assert part_rank(model, image, -exact, target, **known) == pytest.approx(-1)
    chance = torch.randn(400, *parts.shape[1:], generator=torch.Generator().manual_seed(2))
    count = len(chance)
    known = {"parts": parts[:1].expand(count, -1, -1)}
    random = part_rank(model, image.expand(count, -1, -1, -1), chance, target.expand(count), **known, reduction="none")
    assert abs(random.mean()) < 0.08  # three standard errors: the deviation of four ranks is 0.58


def test_without_parts_it_is_idsds(case):
    model, images, maps, targets, _, _ = case
    one = part_rank(model, images, maps, targets, reduction="none")
    np.testing.assert_array_equal(one, idsds(model, images, maps, targets, reduction="none"))


def test_one_part_or_none_has_no_order(case):
    model, images, maps, targets, parts, behind = case
    for numbers in (torch.zeros_like(parts), (parts == 3).long()):
        scores = part_rank(model, images, maps, targets, parts=numbers, behind=behind, reduction="none")
        assert scores.isnan().all()


def test_parts_without_effect_have_no_order(case):
    _, images, maps, targets, parts, _ = case
    blind = lambda images: images.new_ones(len(images), 3)  # noqa: E731
    assert math.isnan(part_rank(blind, images, maps, targets, parts=parts))


def test_a_constant_map_has_no_order_whatever_the_areas(case):
    model, images, maps, targets, parts, behind = case
    constant = torch.full_like(maps, 0.3)
    for importance in ("sum", "mean"):
        score = part_rank(model, images, constant, targets, parts=parts, behind=behind, importance=importance)
        assert math.isnan(score)


def test_both_steps_are_the_whole(case):
    model, images, maps, targets, parts, behind = case
    asked = part_rank_model_scores(model, images, targets, parts=parts, behind=behind)
    assert asked.shape == (len(images), 6)
    found = part_rank_from_scores(asked, maps, parts=parts, reduction="none")
    whole = part_rank(model, images, maps, targets, parts=parts, behind=behind, reduction="none")
    np.testing.assert_array_equal(found, whole)


def test_evaluate_takes_the_parts_from_the_data_and_scores_what_the_model_classifies_correctly(case):
    model, images, maps, targets, parts, behind = case
    with torch.no_grad():
        targets = model(images).argmax(1)
    targets[1] = (targets[1] + 1) % 3
    split = PartSplit(images.float(), parts == 1, targets, parts.to(torch.uint8), behind.float())
    result = xb.evaluate({"m": maps}, split, model, {"part_rank": {"importance": "mean"}}, controls=False, batch_size=2)
    kept = torch.arange(len(images)) != 1
    expected = part_rank(
        model,
        *(each[kept] for each in (images, maps, targets)),
        parts=parts[kept],
        behind=behind[kept],
        importance="mean",
        reduction="none",
    )
    np.testing.assert_allclose(result.scores["value"], expected, atol=1e-6)
