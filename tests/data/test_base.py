"""What a split in memory says of its samples, beside their pixels."""

import numpy as np
import pytest
import torch
from refusals import refused

from xaibench.data import Split


def split(count=3, **own):
    masks = torch.zeros(count, 4, 4, dtype=torch.bool)
    return Split(torch.zeros(count, 1, 4, 4), masks, torch.zeros(count, dtype=torch.int64), **own)


def test_samples_without_names_are_numbered_and_stand_for_themselves():
    plain = split()
    assert (list(plain.ids), plain.ids[-1], plain.ids[1:]) == (["0", "1", "2"], "2", ["1", "2"])
    assert plain.groups is None
    assert plain.in_memory
    assert [known["id"] for known in plain.meta] == ["0", "1", "2"]


def test_names_and_groups_are_kept():
    named = split(ids=("ann/1", "ann/2", "bob/1"), groups=torch.tensor([0, 0, 1]))
    assert list(named.ids) == ["ann/1", "ann/2", "bob/1"]
    assert named.groups.tolist() == [0, 0, 1]
    assert named.groups.dtype == np.int64
    assert named.meta[2] == {"id": "bob/1"}


@pytest.mark.parametrize(
    ("own", "error", "message"),
    [
        ({"ids": ["a", "b"]}, ValueError, "2 names"),
        ({"ids": ["a", "b", "a"]}, ValueError, "3 names"),
        ({"groups": [0, 1]}, ValueError, "groups"),
        ({"groups": [0.0, 0.5, 1.0]}, TypeError, "groups"),
        ({"groups": ["ann", "ann", "bob"]}, TypeError, "groups"),
    ],
)
def test_names_and_groups_that_do_not_fit(own, error, message):
    refused(error, message, lambda: split(**own))
