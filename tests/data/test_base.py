"""What a split in memory says of its samples, beside their pixels."""

import numpy as np
import pytest
import torch
from refusals import refused

from xaibench.data import PartSplit, Split


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


@pytest.fixture
def part_split_split():
    generator = torch.Generator().manual_seed(0)
    images, behind = (torch.rand(3, 2, 4, 5, generator=generator) for _ in range(2))
    parts = torch.randint(0, 4, (3, 4, 5), generator=generator).to(torch.uint8)
    return PartSplit(images, parts == 1, torch.arange(3), parts, behind)


def test_a_removed_part_is_replaced_pixel_by_pixel(part_split_split):
    for index in range(3):
        for part in (1, 2, 3):
            image = part_split_split.without(index, part)
            for row in range(4):
                for column in range(5):
                    source = (
                        part_split_split.behind
                        if part_split_split.parts[index, row, column] == part
                        else part_split_split.images
                    )
                    assert torch.equal(image[:, row, column], source[index, :, row, column])


def test_part_masks_are_where_the_part_is_visible(part_split_split):
    masks = part_split_split.part_masks(2)
    assert masks.shape == (part_split_split.part_count, 4, 5) == (3, 4, 5)
    assert all(torch.equal(masks[part - 1], part_split_split.parts[2] == part) for part in (1, 2, 3))


def test_metrics_get_the_rows_of_their_samples(part_split_split):
    for index in (slice(1, 3), torch.tensor([2, 0])):
        given = part_split_split.metric_inputs(index)
        assert {*given} == {"parts", "behind"}
        assert torch.equal(given["parts"], part_split_split.parts[index])
        assert torch.equal(given["behind"], part_split_split.behind[index])
    assert Split(*part_split_split[:]).metric_inputs(slice(0, 2)) == {}


def test_bad_input_is_refused(part_split_split):
    for part in (0, 4, -1):
        refused(ValueError, "1 to 3", part_split_split.without, 0, part)
    parts, behind = part_split_split.parts, part_split_split.behind
    refused(ValueError, "parts", lambda: PartSplit(*part_split_split[:], parts[:2], behind))
    refused(ValueError, "behind", lambda: PartSplit(*part_split_split[:], parts, behind[:, :1]))
    refused(TypeError, "torch.uint8", lambda: PartSplit(*part_split_split[:], parts.long(), behind))
