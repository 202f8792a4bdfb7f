import itertools

import numpy as np
import pytest
import torch
from oracles import perturbation as oracle
from oracles.networks import batch, small_cnn

from xaibench.metrics.faithfulness import (
    average_drop,
    comprehensiveness,
    deletion,
    increase_in_confidence,
    insertion,
    sufficiency,
)


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize("steps", [1, 4, 7, 42])
@pytest.mark.parametrize("metric", [deletion, insertion])
def test_areas_follow_rise_step_by_step(case, metric, steps):
    model, images, maps, targets = case
    scores = metric(model, images, maps, targets, steps=steps, reduction="none")
    expected = [getattr(oracle, metric.__name__)(model, *one, steps) for one in zip(images, maps, targets, strict=True)]
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert metric(model, images, maps, targets, steps=steps) == pytest.approx(np.mean(expected), abs=1e-6)


@pytest.mark.parametrize("metric", [deletion, insertion])
def test_ties_go_row_by_row(case, metric):
    model, images, maps, targets = case
    tied = maps.mul(1.5).round()
    assert len(tied[0].unique()) < 12
    scores = metric(model, images, tied, targets, steps=9, reduction="none")
    expected = [getattr(oracle, metric.__name__)(model, *one, 9) for one in zip(images, tied, targets, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_curves_have_both_endpoints_and_the_score_is_their_area(case):
    model, images, maps, targets = case
    for metric in (deletion, insertion):
        scores, curves = metric(model, images, maps, targets, steps=6, reduction="none", return_curves=True)
        assert curves.fractions.tolist() == [i / 6 for i in range(7)]
        assert curves.values.shape == (5, 7)
        whole = [oracle.probability(model, *one) for one in zip(images, targets, strict=True)]
        np.testing.assert_allclose(curves.values[:, 0 if metric is deletion else -1], whole, atol=1e-6)
        areas = [oracle.area(curves.fractions.tolist(), curve.tolist()) for curve in curves.values]
        np.testing.assert_allclose(scores, areas, rtol=1e-12)
    bare = [oracle.probability(model, oracle.rise_blur(x), y) for x, y in zip(images, targets, strict=True)]
    np.testing.assert_allclose(curves.values[:, 0], bare, atol=1e-6)


def test_there_are_never_more_steps_than_pixels(case):
    model, images, maps, targets = case
    score, curves = deletion(model, images, maps, targets, return_curves=True)
    assert curves.fractions.tolist() == [i / 42 for i in range(43)]
    assert score == deletion(model, images, maps, targets, steps=42)


def test_insertion_and_deletion_of_the_reversed_map_mirror_each_other(case):
    model, images, maps, targets = case
    _, there = deletion(model, images, maps, targets, steps=6, return_curves=True)
    _, back = insertion(model, images, -maps, targets, steps=6, baseline=0.0, return_curves=True)
    np.testing.assert_allclose(there.values, back.values.flip(1), atol=1e-6)


def test_baselines(case):
    model, images, maps, targets = case
    colour = torch.tensor([0.3, -0.2])[:, None, None]
    own = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    _, curves = deletion(model, images, maps, targets, steps=3, baseline=colour, return_curves=True)
    painted = [oracle.probability(model, colour.expand(2, 7, 6), y) for y in targets]
    np.testing.assert_allclose(curves.values[:, -1], painted, atol=1e-6)
    _, curves = deletion(model, images, maps, targets, steps=3, baseline=own, batch_size=2, return_curves=True)
    np.testing.assert_allclose(
        curves.values[:, -1], [oracle.probability(model, *one) for one in zip(own, targets, strict=True)], atol=1e-6
    )
    assert deletion(model, images, maps, targets, baseline=own.numpy()) == deletion(
        model, images, maps, targets, baseline=own
    )


@pytest.mark.parametrize("metric", [comprehensiveness, sufficiency])
def test_falls_without_and_with_the_top_pixels(case, metric):
    model, images, maps, targets = case
    for fraction, k in ((0.2, 8), (0.5, 21), (1.0, 42), (0.001, 1)):
        scores = metric(model, images, maps, targets, fraction=fraction, reduction="none")
        by_hand = [getattr(oracle, metric.__name__)(model, *one, k) for one in zip(images, maps, targets, strict=True)]
        np.testing.assert_allclose(scores, by_hand, atol=1e-6)
    several = metric(model, images, maps, targets, fraction=(0.2, 0.5))
    alone = [metric(model, images, maps, targets, fraction=fraction) for fraction in (0.2, 0.5)]
    assert several == pytest.approx(np.mean(alone), abs=1e-6)


def test_all_pixels_are_sufficient_and_their_loss_is_total(case):
    model, images, maps, targets = case
    assert sufficiency(model, images, maps, targets, fraction=1.0) == pytest.approx(0, abs=1e-6)
    lost = np.mean([oracle.probability(model, torch.zeros(2, 7, 6), y) for y in targets])
    whole = np.mean([oracle.probability(model, *one) for one in zip(images, targets, strict=True)])
    assert comprehensiveness(model, images, maps, targets, fraction=1.0) == pytest.approx(whole - lost, abs=1e-6)


@pytest.mark.parametrize("metric", [average_drop, increase_in_confidence])
def test_dimming(case, metric):
    model, images, maps, targets = case
    scores = metric(model, images, maps, targets, reduction="none")
    expected = [getattr(oracle, metric.__name__)(model, *one) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=1e-3)
    assert len(set(expected)) > 1


def test_the_average_drop_from_nothing_is_undefined():
    # y = 0: the drop is 0/0. A sample beside it keeps its score.
    model = lambda images: images.flatten(1)  # noqa: E731
    images = torch.tensor([[[[0.0, 1.0]]], [[[1.0, 1.0]]], [[[-1.0, 1.0]]]])
    maps = torch.tensor([[[1.0, 2.0]]] * 3)
    scores = average_drop(model, images, maps, torch.zeros(3, dtype=torch.int64), output="identity", reduction="none")
    assert scores[:2].isnan().tolist() == [True, False]
    assert scores[1] == 100
    assert scores[2].isnan()  # percent of a negative score mean nothing
    assert average_drop(model, images, maps, torch.zeros(3, dtype=torch.int64), output="identity") == 100


def test_dimming_huge_and_tiny_maps_alike(case):
    model, images, maps, targets = case
    expected = average_drop(model, images, maps, targets)
    for scale in (1e-300, 1e307):
        assert average_drop(model, images, maps.double() * scale, targets) == pytest.approx(expected, rel=1e-4)


def test_a_perfect_map_is_best_of_all_orders():
    # The score of class 0 is pixel 1 plus half of pixel 2: of all 24 orders of four pixels none beats this one.
    model = lambda images: images.flatten(1) @ torch.tensor([[0.0, 1.0, 0.5, 0.0]]).T  # noqa: E731
    maps = torch.tensor(list(itertools.permutations([0.0, 1.0, 2.0, 3.0]))).reshape(24, 2, 2)
    images, targets = torch.ones(24, 1, 2, 2), torch.zeros(24, dtype=torch.int64)
    settings_ = {"steps": 4, "output": "identity", "reduction": "none"}
    deleted = deletion(model, images, maps, targets, **settings_)
    inserted = insertion(model, images, maps, targets, baseline=0.0, **settings_)
    perfect = (maps[:, 0, 1] == 3) & (maps[:, 1, 0] == 2)
    assert deleted[perfect].unique().tolist() == [deleted.min().item()]
    assert inserted[perfect].unique().tolist() == [inserted.max().item()]
    assert (deleted[~perfect] > deleted.min()).all()
    assert (inserted[~perfect] < inserted.max()).all()
