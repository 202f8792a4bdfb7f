"""Splits of images whose parts can be removed."""

import pytest
import torch
from refusals import refused

from xaibench.data import PartSplit, Split


@pytest.fixture
def split():
    generator = torch.Generator().manual_seed(0)
    images, behind = (torch.rand(3, 2, 4, 5, generator=generator) for _ in range(2))
    parts = torch.randint(0, 4, (3, 4, 5), generator=generator).to(torch.uint8)
    return PartSplit(images, parts == 1, torch.arange(3), parts, behind)


def test_a_removed_part_is_replaced_pixel_by_pixel(split):
    for index in range(3):
        for part in (1, 2, 3):
            image = split.without(index, part)
            for row in range(4):
                for column in range(5):
                    source = split.behind if split.parts[index, row, column] == part else split.images
                    assert torch.equal(image[:, row, column], source[index, :, row, column])


def test_part_masks_are_where_the_part_is_visible(split):
    masks = split.part_masks(2)
    assert masks.shape == (split.part_count, 4, 5) == (3, 4, 5)
    assert all(torch.equal(masks[part - 1], split.parts[2] == part) for part in (1, 2, 3))


def test_metrics_get_the_rows_of_their_samples(split):
    for index in (slice(1, 3), torch.tensor([2, 0])):
        given = split.metric_inputs(index)
        assert {*given} == {"parts", "behind"}
        assert torch.equal(given["parts"], split.parts[index])
        assert torch.equal(given["behind"], split.behind[index])
    assert Split(*split[:]).metric_inputs(slice(0, 2)) == {}


def test_bad_input_is_refused(split):
    for part in (0, 4, -1):
        refused(ValueError, "1 to 3", split.without, 0, part)
    parts, behind = split.parts, split.behind
    refused(ValueError, "parts", lambda: PartSplit(*split[:], parts[:2], behind))
    refused(ValueError, "behind", lambda: PartSplit(*split[:], parts, behind[:, :1]))
    refused(TypeError, "torch.uint8", lambda: PartSplit(*split[:], parts.long(), behind))
