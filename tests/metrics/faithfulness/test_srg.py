import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from oracles import faithfulness as oracle
from oracles.networks import batch, small_cnn
from part_cases import MetricCase

from xaibench.metrics import deletion, srg

CASES = {
    "srg": MetricCase(
        quick={"steps": 5},
        drawn={
            "steps": st.integers(2, 20),
            "baseline": st.sampled_from([0.0, -1.5, "blur"]),
            "segmentation": st.sampled_from(["pixels", "grid", "slic"]),
            "n_segments": st.integers(1, 30),
        },
    )
}


@pytest.fixture(scope="module")
def case():
    return small_cnn(), *batch()


@pytest.mark.parametrize("steps", [2, 5, 42])
def test_gain_is_least_less_most_influential_first(case, steps):
    model, images, maps, targets = case
    scores, curves = srg(model, images, maps, targets, steps=steps, reduction="none", return_curves=True)
    by_hand = [oracle.srg(model, *one, steps) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)
    assert curves.values.shape == (len(images), steps + 1)
    assert (curves.values[:, [0, -1]] == 0).all()  # both curves begin at the whole image and end at none of it
    np.testing.assert_allclose(torch.trapezoid(curves.values, curves.fractions), scores, atol=1e-12)


@pytest.mark.parametrize("segmentation", ["grid", "slic"])
def test_segments_go_whole_in_both_orders(case, segmentation):
    model, images, maps, targets = case
    settings = {"segmentation": segmentation, "n_segments": 6, "steps": 7, "reduction": "none"}
    scores = srg(model, images, maps, targets, **settings)
    by_hand = [oracle.segment_srg(model, *one, segmentation, 6, 7) for one in zip(images, maps, targets, strict=True)]
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)


def test_segments_of_one_pixel_are_the_pixels(case):
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
