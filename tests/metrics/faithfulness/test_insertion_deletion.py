import itertools

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness
from oracles import perturbation as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase
from scipy.integrate import trapezoid

from xaibench.metrics import deletion, insertion, srg

CURVE = MetricCase(
    quick={"steps": 3}, drawn={"steps": st.integers(1, 20), "baseline": st.sampled_from([0.0, -1.5, "blur"])}
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
    color = torch.tensor([0.3, -0.2])[:, None, None]
    own = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    _, curves = deletion(model, images, maps, targets, steps=3, baseline=color, return_curves=True)
    painted = [oracle.probability(model, color.expand(2, 7, 6), y) for y in targets]
    np.testing.assert_allclose(curves.values[:, -1], painted, atol=1e-6)
    for listed in ([0.3, -0.2], (0.3, -0.2)):  # as a suite can write it
        _, again = deletion(model, images, maps, targets, steps=3, baseline=listed, return_curves=True)
        assert again.values.equal(curves.values)
    _, curves = deletion(model, images, maps, targets, steps=3, baseline=own, batch_size=2, return_curves=True)
    np.testing.assert_allclose(
        curves.values[:, -1], [oracle.probability(model, *one) for one in zip(own, targets, strict=True)], atol=1e-6
    )
    assert deletion(model, images, maps, targets, baseline=own.numpy()) == deletion(
        model, images, maps, targets, baseline=own
    )


def test_the_mean_color_is_a_baseline_of_each_image(case):
    model, images, maps, targets = case
    found = deletion(model, images, maps, targets, baseline="mean", reduction="none")
    own = images.mean((2, 3), keepdim=True).expand(images.shape)
    np.testing.assert_array_equal(found, deletion(model, images, maps, targets, baseline=own, reduction="none"))
    alone = deletion(model, images[1:2], maps[1:2], targets[1:2], baseline="mean", reduction="none")
    np.testing.assert_allclose(alone, found[1:2], rtol=1e-6)


def contrast(outputs):
    return outputs[:, 0] - outputs[:, 1]


def group(outputs):
    return outputs[:, [0, 2]].mean(1)


@pytest.mark.parametrize("question", [contrast, group])
def test_contrasts_and_groups_of_classes_are_outputs(case, question):
    """RFxG (Elisha et al., AAAI 2026): why one class and not another, and why a group of classes."""
    model, images, maps, _ = case
    found = deletion(model, images, maps, None, steps=6, output=lambda z: question(z.softmax(1)), reduction="none")
    for score, image, one in zip(found, images, maps, strict=True):
        current, values = image.clone(), []
        for step in range(7):
            for i, j in oracle.pixel_order(one)[: round(step * 42 / 6)]:
                current[:, i, j] = 0
            values.append(float(question(model(current[None]).double().softmax(1)).detach()))
        assert score == pytest.approx(trapezoid(values, dx=1 / 6), abs=1e-6)


def test_a_perfect_map_is_best_of_all_orders():
    # The score of class 0 is pixel 1 plus half of pixel 2: of all 24 orders of four pixels none beats this one.
    model = lambda images: images.flatten(1) @ torch.tensor([[0.0, 1.0, 0.5, 0.0]]).T  # noqa: E731
    maps = torch.tensor(list(itertools.permutations([0.0, 1.0, 2.0, 3.0]))).reshape(24, 2, 2)
    images, targets = torch.ones(24, 1, 2, 2), torch.zeros(24, dtype=torch.int64)
    settings_ = {"steps": 4, "output": "logit", "reduction": "none"}
    deleted = deletion(model, images, maps, targets, **settings_)
    inserted = insertion(model, images, maps, targets, baseline=0.0, **settings_)
    perfect = (maps[:, 0, 1] == 3) & (maps[:, 1, 0] == 2)
    assert deleted[perfect].unique().tolist() == [deleted.min().item()]
    assert inserted[perfect].unique().tolist() == [inserted.max().item()]
    assert (deleted[~perfect] > deleted.min()).all()
    assert (inserted[~perfect] < inserted.max()).all()


def test_a_curve_that_does_not_move_is_its_own_area_to_the_bit():
    # The shares of a trapezoid sum to one up to rounding only: of a sure model the area would exceed one.
    levels = torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    levels[0] = 1.0
    images = levels[:, None, None, None].expand(-1, 1, 3, 3)
    maps, targets = torch.arange(9.0).reshape(1, 3, 3).expand(200, 3, 3), torch.zeros(200, dtype=torch.int64)
    model = lambda x: x.flatten(1).amax(1, keepdim=True)  # noqa: E731
    for steps in (3, 7, 9):
        areas = insertion(model, images, maps, targets, steps=steps, baseline=images, output="logit", reduction="none")
        assert torch.equal(areas, levels)


def test_curves_come_in_the_kind_of_the_maps(case):
    model, images, maps, targets = case
    for metric in (deletion, insertion):
        _, curves = metric(model, images, maps, targets, steps=3, return_curves=True)
        _, arrays = metric(model, images.numpy(), maps.numpy(), targets.numpy(), steps=3, return_curves=True)
        assert all(isinstance(part, torch.Tensor) and part.dtype == torch.float64 for part in curves)
        assert all(isinstance(part, np.ndarray) and part.dtype == np.float64 for part in arrays)


@pytest.mark.parametrize("segmentation", ["grid", "slic"])
def test_segments_go_whole_by_their_mean(case, segmentation):
    model, images, maps, targets = case
    for metric, reveal in ((deletion, False), (insertion, True)):
        settings = {"segmentation": segmentation, "n_segments": 6, "baseline": 0.0, "steps": 7, "reduction": "none"}
        scores = metric(model, images, maps, targets, **settings)
        expected = []
        for image, saliency, target in zip(images, maps, targets, strict=True):
            labels = oracle.segments(image, segmentation, 6)
            start, finish = (torch.zeros_like(image), image) if reveal else (image, torch.zeros_like(image))
            curve = oracle.segment_curve(model, saliency, labels, target, start, finish, 7)
            expected.append(oracle.area(*curve))
        np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_segments_of_one_pixel_are_the_pixels(case):
    model, images, maps, targets = case
    plain, grid = (
        deletion(model, images, maps, targets, steps=9, segmentation=name, n_segments=10**6, reduction="none")
        for name in ("pixels", "grid")
    )
    assert torch.equal(plain, grid)


@pytest.mark.parametrize("steps", [2, 5, 42])
def test_gain_is_least_less_most_influential_first(case, steps):
    model, images, maps, targets = case
    scores, curves = srg(model, images, maps, targets, steps=steps, reduction="none", return_curves=True)
    by_hand = [faithfulness.srg(model, *one, steps) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)
    assert curves.values.shape == (len(images), steps + 1)
    assert (curves.values[:, [0, -1]] == 0).all()  # both curves begin at the whole image and end at none of it
    np.testing.assert_allclose(torch.trapezoid(curves.values, curves.fractions), scores, atol=1e-12)


@pytest.mark.parametrize("segmentation", ["grid", "slic"])
def test_segments_go_whole_in_both_orders(case, segmentation):
    model, images, maps, targets = case
    settings = {"segmentation": segmentation, "n_segments": 6, "steps": 7, "reduction": "none"}
    scores = srg(model, images, maps, targets, **settings)
    by_hand = [
        faithfulness.segment_srg(model, *one, segmentation, 6, 7) for one in zip(images, maps, targets, strict=True)
    ]
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)


def test_srg_segments_of_one_pixel_are_the_pixels(case):
    plain, grid = (
        srg(*case, steps=9, segmentation=name, n_segments=10**6, reduction="none") for name in ("pixels", "grid")
    )
    assert torch.equal(plain, grid)


def test_it_is_the_difference_of_two_deletions(case):
    model, images, maps, targets = case  # without ties, the map turned round has the order backwards
    least, most = (deletion(model, images, sign * maps, targets, steps=6, reduction="none") for sign in (-1, 1))
    np.testing.assert_allclose(srg(*case, steps=6, reduction="none"), least - most, atol=1e-6)


def test_the_right_map_gains_most_and_the_map_turned_round_loses_as_much():
    weight = torch.arange(1.0, 26).reshape(5, 5)[torch.randperm(5, generator=torch.Generator().manual_seed(0))]
    model = lambda images: (images * weight).flatten(1).sum(1, keepdim=True)  # noqa: E731
    image, target = torch.ones(1, 1, 5, 5), torch.tensor([0])
    maps = [torch.randn(1, 5, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(20)]
    right, turned, *others = (
        srg(model, image, one, target, output="logit") for one in (weight[None], -weight[None], *maps)
    )
    assert right == pytest.approx(-turned)
    assert all(turned < score < right for score in others)
    assert abs(np.mean(others)) < right / 5  # a map that knows nothing gains nothing


def test_tied_pixels_go_in_the_order_of_the_pixels_and_backwards():
    model = lambda images: images.flatten(1)  # noqa: E731  (the score of class k is pixel k)
    image, tied = torch.ones(1, 1, 1, 4), torch.tensor([[[1.0, 1.0, 1.0, 0.0]]])
    gains = [srg(model, image, tied, torch.tensor([k]), steps=4, output="logit") for k in range(4)]
    assert gains == [0.75, 0.25, -0.25, -0.75]


def test_two_passes_less_than_two_a_step_and_image(case):
    model, images, maps, targets = case
    rows = []

    def counted(images):
        rows.append(len(images))
        return model(images)

    srg(counted, images, maps, targets, steps=7)
    assert sum(rows) == 4 + 2 * 6 * len(images)  # the first four check what the model returns
    with pytest.raises(ValueError, match="steps=1: expected an integer of at least 2"):
        srg(*case, steps=1)


CASES = {
    "deletion": CURVE,
    "insertion": CURVE,
    "srg": MetricCase(
        quick={"steps": 5},
        drawn={
            "steps": st.integers(2, 20),
            "baseline": st.sampled_from([0.0, -1.5, "blur"]),
            "segmentation": st.sampled_from(["pixels", "grid", "slic"]),
            "n_segments": st.integers(1, 30),
        },
    ),
}
