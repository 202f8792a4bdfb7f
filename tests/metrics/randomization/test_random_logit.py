import numpy as np
import pytest
from hypothesis import strategies as st
from oracles import robustness as oracle
from oracles.simple_explainers import saliency
from part_cases import MetricCase

from xaibench.metrics import random_logit
from xaibench.metrics.shared.model_scores import random_generator

CASES = {
    "random_logit": MetricCase(
        drawn={"magnitude": st.booleans(), "similarity": st.sampled_from(["ssim", "spearman"])},
        undefined=oracle.without_ranks,
    )
}


def test_the_other_class_is_another_for_every_sample_and_depends_on_the_seed(larger_case):
    _, model, images, targets = larger_case
    asked = []

    def noted(model, images, classes):
        asked.append(classes.tolist())
        return saliency(model, images, classes)

    for seed in range(8):
        random_logit(noted, model, images, targets, seed=seed)
    own, others = asked[::2], asked[1::2]
    assert all(classes == targets.tolist() for classes in own)
    assert {tuple(classes) for classes in others} == {tuple(((targets + k) % 3).tolist()) for k in (1, 2)}


@pytest.mark.parametrize("magnitude", [False, True])
def test_random_logit_is_the_similarity_of_two_maps(larger_case, magnitude):
    metrics = pytest.importorskip("skimage.metrics")
    _, model, images, targets = larger_case
    others = (targets + int(random_generator(0, 0).integers(1, 3))) % 3
    pairs = [saliency(model, images, classes).detach().numpy() for classes in (targets, others)]
    one, other = (np.abs(maps) if magnitude else maps for maps in pairs)
    expected = [
        metrics.structural_similarity(a, b, data_range=max(a.max(), b.max()) - min(a.min(), b.min()))
        for a, b in zip(one, other, strict=True)
    ]
    np.testing.assert_allclose(random_logit(*larger_case, magnitude=magnitude, reduction="none"), expected, rtol=1e-9)
    ranks = random_logit(*larger_case, similarity="spearman", magnitude=magnitude, reduction="none")
    expected = [oracle.mean_rank_correlation(a, [b]) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(ranks, expected, rtol=1e-9)
