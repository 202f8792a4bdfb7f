"""Groups of classes: their probabilities, their prior, and errors."""

from __future__ import annotations

import pickle

import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.models import FOLDS, Folded

GROUPS = {"a": [0, 3], "b": [1, 2, 5]}


def logits(rows=7, classes=6, seed=0):
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 4


def test_sum_is_the_probability_given_one_of_the_groups():
    p = logits().softmax(1)
    sums = torch.stack([p[:, 0] + p[:, 3], p[:, 1] + p[:, 2] + p[:, 5]], 1)
    folded = Folded(nn.Identity(), GROUPS, "sum")(logits()).softmax(1)
    torch.testing.assert_close(folded, sums / sums.sum(1, keepdim=True))
    # Of log-probabilities, the folded logits are the log-probabilities of the groups themselves.
    torch.testing.assert_close(Folded(nn.Identity(), GROUPS, "sum")(p.log()).exp(), sums)


def test_mean_is_that_with_equally_frequent_groups():
    p = logits().softmax(1)
    means = torch.stack([(p[:, 0] + p[:, 3]) / 2, (p[:, 1] + p[:, 2] + p[:, 5]) / 3], 1)
    folded = Folded(nn.Identity(), GROUPS)(logits()).softmax(1)
    torch.testing.assert_close(folded, means / means.sum(1, keepdim=True))


def test_no_evidence_is_no_verdict_by_the_mean_and_the_larger_group_by_the_sum():
    nothing = torch.zeros(1, 1000)
    assert Folded(nn.Identity(), FOLDS["pet"])(nothing).softmax(1).tolist()[0] == pytest.approx([0.5, 0.5])
    sums = Folded(nn.Identity(), FOLDS["pet"], "sum")(nothing).softmax(1).tolist()[0]
    assert sums == pytest.approx([5 / 123, 118 / 123])


def test_weightings_have_the_same_gradient_of_the_logit():
    found = []
    for weighting in ("mean", "sum"):
        z = logits().requires_grad_()
        found += torch.autograd.grad(Folded(nn.Identity(), GROUPS, weighting)(z)[:, 1].sum(), z)
    assert torch.equal(*found)
    assert found[0].abs().max() > 0.1


def test_it_travels_and_names_its_classes():
    model = Folded(nn.Linear(3, 6), tuple(GROUPS.items()))
    assert model.classes == ("a", "b")
    assert set(model.state_dict()) == {"model.weight", "model.bias"}
    x = torch.ones(2, 3)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": [0]}, "1 groups"),
        ({"a": [0], "b": []}, "'b'"),
        ({"a": [0, 1], "b": [2, 1]}, "class 1"),
        ({"a": [0], "b": [-1]}, "class -1"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    refused(ValueError, message, lambda: Folded(nn.Identity(), groups))


def test_an_unknown_weighting_and_too_few_classes_are_refused():
    refused(ValueError, "weighting=", lambda: Folded(nn.Identity(), GROUPS, "max"))
    refused(ValueError, "class 5", lambda: Folded(nn.Identity(), GROUPS)(torch.zeros(1, 4)))
