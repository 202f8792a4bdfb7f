import captum.attr
import pytest
import torch
from oracles import explainers as oracle
from part_cases import ExplainerCase

from xaibench.explainers import ExplainedOutput, explain

#: PFI swaps pixels among the images of a group, by definition; what lies outside of the group must not matter.
CASES = {"pfi": ExplainerCase(sample_by_sample={"group_size": 3})}


def test_pfi_draws_and_scores_as_captum(double, images, targets, captum_draws):
    model, explained = double
    maps = explain("pfi", model, images, targets, seed=3)
    captum_draws(3)
    theirs = captum.attr.FeaturePermutation(explained).attribute(images.double(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=1e-5, atol=1e-7)


def test_pfi_pixel_by_pixel_within_its_groups(mlp, images, targets):
    maps = explain("pfi", mlp, images, targets, group_size=4, seed=1)
    explained, rng = ExplainedOutput(mlp.double().eval()), torch.Generator().manual_seed(1)
    expected = []
    for group in (slice(0, 4), slice(4, 7)):
        x, y, n = images[group].double(), targets[group], len(targets[group])
        permutations = []
        while len(permutations) < 64:
            permutation = torch.randperm(n, generator=rng)
            if permutation.tolist() != list(range(n)):
                permutations.append(permutation)
        expected.append(oracle.permutation_importance(explained, x, y, permutations)[:, 0])
    torch.testing.assert_close(maps, torch.cat(expected), rtol=1e-12, atol=1e-15)


def test_a_last_image_alone_joins_the_group_before_it(mlp, images, targets):
    assert explain("pfi", mlp, images, targets, group_size=6).equal(explain("pfi", mlp, images, targets, group_size=7))
    with pytest.raises(ValueError, match="pfi: got 1 image, expected at least 2"):
        explain("pfi", mlp, images[:1], targets[:1])
