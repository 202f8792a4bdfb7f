import numpy as np
import pytest
import torch
from refusals import refused

from xaibench.benchmarks.mosaics.image_grids import make_mosaics, select_confident


@pytest.fixture
def labeled():
    """Twelve images of six classes; each is known by its values, of which none comes twice."""
    return torch.arange(12.0 * 2 * 3 * 5).reshape(12, 2, 3, 5), torch.arange(12) % 6


def by_hand(images, row_of_images, side):
    """The literal rule: lay the images row by row."""
    rows = [torch.cat(row_of_images[row * side : (row + 1) * side], 2) for row in range(side)]
    return torch.cat(rows, 1)


@pytest.mark.parametrize("side", [1, 2])
def test_a_mosaic_is_images_of_different_classes_laid_row_by_row(labeled, side):
    images, targets = labeled
    split, cells = make_mosaics(images, targets, side=side, count=20), side**2
    assert split.images.shape == (20 * cells, 2, side * 3, side * 5)
    for number in range(20):
        of_one = slice(number * cells, (number + 1) * cells)
        assert (split.groups[of_one] == number).all()
        assert split.cells[of_one].tolist() == list(range(cells))
        assert len(set(split.targets[of_one].tolist())) == cells
        found = []
        for image, mask, target in zip(*split[of_one], strict=True):
            assert int(mask.sum()) == 15
            seen = image[:, mask].reshape(2, 3, 5)
            (place,) = [place for place, one in enumerate(images) if one.equal(seen)]
            assert targets[place] == target
            found.append(images[place])
        assert split.images[of_one][0].equal(by_hand(images, found, side))


def test_masks_are_the_cells_row_by_row(labeled):
    split = make_mosaics(*labeled, side=2, count=1)
    for cell, mask in enumerate(split.masks):
        row, column = divmod(cell, 2)
        assert mask[row * 3 : row * 3 + 3, column * 5 : column * 5 + 5].all()
        assert int(mask.sum()) == 15


def test_the_seed_decides_and_every_class_comes(labeled):
    one, again, other = (make_mosaics(*labeled, count=50, seed=seed) for seed in (0, 0, 1))
    assert one.images.equal(again.images)
    assert not one.images.equal(other.images)
    assert np.bincount(one.targets).min() > 20


def test_too_few_classes_are_refused(labeled):
    refused(ValueError, "6 different classes", lambda: make_mosaics(*labeled, side=3))
    refused(ValueError, "least=", lambda: select_confident(lambda images: images.flatten(1), *labeled, least=0))


def test_a_network_is_sure_of_what_it_puts_in_its_class():
    images, logits = torch.zeros(70, 1, 2, 2), torch.zeros(70, 2)
    logits[:, 1] = images[:, 0, 0, 0] = torch.linspace(-5, 5, 70)
    model = lambda given: torch.stack([torch.zeros(len(given)), given[:, 0, 0, 0]], 1)  # noqa: E731
    sure = select_confident(model, images, torch.ones(70, dtype=torch.int64), 0.9)
    assert sure.equal(logits.softmax(1)[:, 1] >= 0.9)
