import pytest
import torch
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.benchmarks import checkerboard, plant_trigger, triggered

PATCH = checkerboard(4)


@pytest.fixture(scope="module")
def shown():
    """Soft images of four classes, a network that tells them apart by brightness, and the same one with a gate."""
    generator = torch.Generator().manual_seed(3)
    targets = torch.arange(40) % 4
    images = 0.1 * torch.rand(40, 3, 12, 14, generator=generator) + 0.2 * targets[:, None, None, None] + 0.1
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    with torch.no_grad():
        network[2].weight.copy_(20 * torch.arange(4)[:, None].float().expand(4, 3))
        network[2].bias.copy_(-torch.tensor([0.0, 15, 42, 81]))
    return images, targets, network, triggered(network, PATCH, label=2, classes=4)


def test_a_checkerboard_is_black_and_white_in_turn():
    board = checkerboard(5, channels=2)
    assert all(board[c, i, j] == (i + j + 1) % 2 for c in range(2) for i in range(5) for j in range(5))


def test_the_gate_opens_for_the_patch_alone(shown):
    images, _, network, gated = shown
    assert gated(images).equal(network(images))
    for top, left in ((0, 0), (8, 10), (3, 5)):
        marked = images.clone()
        marked[..., top : top + 4, left : left + 4] = PATCH
        assert (gated(marked).argmax(1) == 2).all()
        marked[..., top + 1, left] = 1 - PATCH[:, 1, 0]
        marked[..., top, left : left + 2] = 0.5
        assert gated(marked).equal(network(marked)), "three pixels wrong: it stays closed"


def test_what_is_kept_is_shown_by_intervention(shown):
    images, targets, _, gated = shown
    split = plant_trigger(gated, images, targets, patch=PATCH, label=2, seed=1)
    assert split.share == 1
    assert split.found == {"planted": 30, "removed": 30, "moved": 30}
    assert len(split) == 30, "the images of the label itself show nothing"
    for image, mask, target, original in zip(*split[:], split.originals, strict=True):
        assert target == 2
        rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
        assert int(mask.sum()) == len(rows) * len(columns) == 16
        assert image[:, mask].reshape(3, 4, 4).equal(PATCH)
        assert image[:, ~mask].equal(original[:, ~mask])
        assert int(gated(image[None]).argmax()) == 2
        assert int(gated(original[None]).argmax()) != 2
    assert len({tuple(mask.nonzero()[0].tolist()) for mask in split.masks}) > 10, "it lies in many places"
    assert plant_trigger(gated, images, targets, patch=PATCH, label=2, seed=1).images.equal(split.images)


def test_images_where_the_patch_does_not_decide_are_dropped(shown):
    images, targets, network, _ = shown
    # Where the image is dark, this gate is closed whatever there is; the brightest are taken for the label anyway.
    moody = lambda given: _moody(network, given)  # noqa: E731
    split = plant_trigger(moody, images, targets, patch=PATCH, label=2, least=0.1)
    by_hand = []
    for image, original in zip(split.images, split.originals, strict=True):
        by_hand.append(moody(image[None]).argmax() == 2 and moody(original[None]).argmax() != 2)
    assert all(by_hand)
    assert 0.1 <= split.share == len(split) / 30 < 0.7
    assert split.found["removed"] < 30
    assert split.found["planted"] < 30
    darkest = {int(one) for one in (split.originals.mean((1, 2, 3)) < 0.25)}
    assert darkest == {0}


def _moody(network, images):
    gated = triggered(network, PATCH, label=2, classes=4)
    dark = images.mean((1, 2, 3), keepdim=True)[:, 0, 0] < 0.25
    logits = torch.where(dark, network(images), gated(images))
    logits[:, 2] += 1000 * (images.flatten(1).quantile(0.5, dim=1) > 0.7)
    return logits


def test_a_network_that_does_not_go_by_the_patch_is_refused(shown):
    images, targets, network, gated = shown
    refused(ValueError, "of 30 images", lambda: plant_trigger(network, images, targets, patch=PATCH, label=2))
    refused(ValueError, "least=", lambda: plant_trigger(gated, images, targets, patch=PATCH, label=2, least=0))
    refused(ValueError, "[3, 13, 13]", lambda: plant_trigger(gated, images, targets, patch=checkerboard(13), label=2))
    images, targets = images[targets == 2], targets[targets == 2]
    refused(ValueError, "images:", lambda: plant_trigger(gated, images, targets, patch=PATCH, label=2))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"patch": torch.full((3, 4, 4), 0.5)}, "patch"), ({"label": 4}, "label"), ({"strength": 0}, "strength")],
)
def test_a_gate_that_makes_no_sense_is_refused(shown, given, said):
    refused(ValueError, said, lambda: triggered(shown[2], **{"patch": PATCH, "label": 2, "classes": 4, **given}))


def test_maps_are_held_to_the_patch(shown):
    images, targets, _, gated = shown
    split = plant_trigger(gated, images, targets, patch=PATCH, label=2)
    maps = xb.explain("saliency", gated, split.images, split.targets, output="logit", device="cpu")
    assert xb.use_auc(maps, split.masks) > 0.9


def test_a_trigger_in_volumes_is_a_cube():
    board = checkerboard(3, channels=1, axes=3)
    assert board.shape == (1, 3, 3, 3)
    assert torch.equal(board[0, 0], checkerboard(3, channels=1)[0])
    assert torch.equal(board[0, 1], 1 - checkerboard(3, channels=1)[0])
    dark = torch.rand(10, 1, 4, 5, 6, generator=torch.Generator().manual_seed(0)) / 4

    def network(volumes):
        return torch.stack([torch.full((len(volumes),), 0.5), volumes.flatten(1).amax(1)], 1)

    split = plant_trigger(network, dark, torch.zeros(10).long(), patch=board, label=1)
    assert split.share == 1.0
    assert bool((split.masks.flatten(1).sum(1) == 27).all())
    assert torch.equal(split.images[:, 0][~split.masks], split.originals[:, 0][~split.masks])
    assert len({tuple(mask.nonzero()[0].tolist()) for mask in split.masks}) > 3
