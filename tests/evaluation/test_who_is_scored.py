"""Which samples are scored, and how an evaluation reports accuracy and zero maps."""

import numpy as np
import pytest
import torch
from oracles.simple_explainers import convolutions_only
from torch import nn

import xaibench as xb
from xaibench.data import Split
from xaibench.explainers import UnsupportedModelError

N, SIZE = 10, 6
#: The predicted classes, two of which are wrong.
SEEN = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
TARGETS = torch.tensor([0, 1, 1, 1, 0, 1, 0, 0, 0, 1])
RIGHT = ["0", "1", "3", "4", "5", "6", "8", "9"]


class Corner(nn.Module):
    """Predicts the class from one pixel."""

    def forward(self, x):
        return torch.stack([1 - x[:, 0, 0, 0], x[:, 0, 0, 0]], 1)


@pytest.fixture(scope="module")
def split():
    images = torch.rand(N, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    images[:, 0, 0, 0] = SEEN.float()
    masks = torch.zeros(N, SIZE, SIZE, dtype=torch.bool)
    masks[:, 2:4, 2:4] = True
    return Split(images, masks, TARGETS, groups=np.arange(N) // 2, groups_by="patients")


def test_what_the_model_gets_wrong_is_not_scored_and_the_table_says_so(split):
    seen = []

    def mine(model, images, targets):
        seen.append(len(images))
        return images[:, 0]

    result = xb.evaluate({"mine": mine}, split, Corner(), ["roc_auc"], controls=["uniform"], batch_size=3)
    assert result.scores["sample"].unique().tolist() == RIGHT
    assert sum(seen) == 8
    assert (result.samples, result.accuracy) == (N, 0.8)
    assert result.groups.tolist() == [0, 0, 1, 2, 2, 3, 4, 4]
    said = "8 of 10 samples in 5 groups (patients), classified correctly by the model (accuracy 80.0 %; "
    said += "scored='all' takes all)"
    assert said in str(result)
    assert said.replace("'", "&#x27;") in result._repr_html_()


def test_all_can_be_scored(split):
    result = xb.evaluate("input", split, Corner(), ["roc_auc"], controls=False, scored="all")
    assert result.scores["sample"].nunique() == N
    assert "10 samples in 5 groups (patients), including wrongly classified ones (accuracy 80.0 %)" in str(result)


def test_given_maps_go_with_their_samples(split):
    maps = split.masks.float() * torch.arange(1, N + 1)[:, None, None]
    peak = xb.evaluate(maps, split, Corner(), [f"{__name__}:peak"], controls=False)
    assert peak.scores["value"].tolist() == [1 + int(name) for name in RIGHT]


def peak(maps, masks, *, reduction="mean"):
    return maps.max((1, 2))


def test_without_a_model_all_are_scored(split):
    result = xb.evaluate("input", split, metrics=["roc_auc"], controls=False)
    assert "10 samples in 5 groups (patients); mean and 95 % interval (fewer than 20: " in str(result)
    assert result.accuracy is None


def test_a_model_that_is_always_wrong_is_refused(split):
    opposite = nn.Sequential(Corner(), nn.Linear(2, 2, bias=False))
    opposite[1].weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    wrong = Split(split.images, split.masks, SEEN)
    with pytest.raises(ValueError, match="classifies none of the 10 samples correctly, and scored='correct'"):
        xb.evaluate("input", wrong, opposite, ["roc_auc"])


def test_maps_that_are_zero_everywhere_are_counted(split):
    maps = split.masks.float()
    maps[[2, 4, 5]] = 0
    result = xb.evaluate({"mine": maps}, split, Corner(), ["iou"], controls=["uniform"], batch_size=4)
    assert result.zero_maps == {"mine": ("4", "5")}  # 2 is not scored
    assert "Maps that are zero everywhere: mine 2 (.zero_maps has the samples)." in str(result)
    assert "zero everywhere" not in str(xb.evaluate("uniform", split, metrics=["iou"], controls=False))


def test_results_read_well_where_they_are_shown(split):
    result = xb.evaluate(["input", "uniform"], split, metrics=["roc_auc"], controls=False)
    assert repr(result) == str(result)
    ranks = result.ranks("roc_auc")
    first, *_ = ranks.ranks.index
    assert repr(ranks).splitlines()[0].split() == [first, f"{ranks.ranks[first]:.2f}"]
    assert "Mean ranks over 10 samples; critical difference" in repr(ranks)
    assert f"<th>{first}</th>" in ranks._repr_html_()
    assert "<script>" not in xb.evaluate({"<script>": split.masks.float()}, split)._repr_html_()


def test_a_method_that_refuses_the_model_is_left_out_and_the_others_go_on(split):
    methods = {"refuses": convolutions_only, "mine": lambda model, images, targets: images[:, 0]}
    result = xb.evaluate(methods, split, Corner(), ["roc_auc"], controls=["uniform"], batch_size=3)
    assert result.methods == ["mine", "uniform"]
    assert result.inapplicable == {"refuses": "convolutions_only needs a convolution, and the network has none."}
    assert "Not applicable: refuses: convolutions_only needs a convolution" in str(result)
    with pytest.raises(UnsupportedModelError, match="needs a convolution, and the network has none"):
        xb.evaluate({"refuses": convolutions_only}, split, Corner(), ["roc_auc"])
