import numpy as np
import pytest
import torch
from generators.photographs import COLORS, Colors, colored, write
from PIL import Image
from refusals import refused

from xaibench.benchmarks.mosaics.photo_mosaics import make_mosaics, select_confident
from xaibench.data import load


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


def test_a_network_is_sure_of_what_it_puts_in_its_class():
    images, logits = torch.zeros(70, 1, 2, 2), torch.zeros(70, 2)
    logits[:, 1] = images[:, 0, 0, 0] = torch.linspace(-5, 5, 70)
    model = lambda given: torch.stack([torch.zeros(len(given)), given[:, 0, 0, 0]], 1)  # noqa: E731
    sure = select_confident(model, images, torch.ones(70, dtype=torch.int64), 0.9)
    assert sure.equal(logits.softmax(1)[:, 1] >= 0.9)


NAMES = list(COLORS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Colored photographs, and a gray one of which a network that goes by the color cannot be sure."""
    root = tmp_path_factory.mktemp("photographs")
    write(root)
    Image.fromarray(colored(np.random.default_rng(1), (128, 128, 128))).save(root / "red" / "gray.png")
    return root


@pytest.fixture(scope="module")
def network():
    return Colors((3, 8, 8), len(COLORS)).eval()


def photographs(folder):
    """What may stand in a cell, by the literal rule: every photograph at the size of a cell, but for the gray one."""
    test = load(f"photographs:{folder}", size=8, splits=(0.0, 0.0, 1.0)).test
    return {
        name: (image, NAMES[target])
        for name, image, target in zip(test.ids, test.images, test.targets.tolist(), strict=True)
        if name != "red/gray.png"
    }


@pytest.mark.parametrize("disconnected", [False, True])
def test_the_mosaics_are_photographs_that_the_network_is_sure_of(folder, network, disconnected):
    data = load(f"mosaic:{folder}", network=network, side=2, size=16, count=6, disconnected=disconnected)
    known, cells = photographs(folder), 4
    assert len(data.test) == 6 * cells
    assert data.test.groups.tolist() == [number for number in range(6) for _ in range(cells)]
    for number, (image, mask, target) in enumerate(zip(*data.test[:], strict=True)):
        row, column = divmod(number % cells, 2)
        corner = (slice(8 * row, 8 * row + 8), slice(8 * column, 8 * column + 8))
        assert mask[corner].all()
        assert int(mask.sum()) == 64
        (found,) = [label for one, label in known.values() if one.equal(image[(slice(None), *corner)])]
        name = f"{found}, cell {number % cells + 1}" if disconnected else found
        assert data.classes[target] == name
    assert len(data.classes) == len(COLORS) * (cells if disconnected else 1)
    assert data.info.truth == "use"
    shown = {len(set(data.test.targets[start : start + cells].tolist())) for start in range(0, len(data.test), cells)}
    assert shown == {cells}, "each cell is of another class"
    assert data.note.startswith(
        "mosaics of 24 photographs of 6 classes, selected from 25 because the network assigns them"
    )


def test_a_damaged_photograph_is_left_out_by_name(tmp_path, network, caplog):
    write(tmp_path)
    victim = sorted(tmp_path.rglob("*.png"))[0]
    victim.write_bytes(victim.read_bytes()[:50])
    note = load(f"mosaic:{tmp_path}", network=network, side=2, size=16, count=2).note
    assert note.startswith("mosaics of 23 photographs of 6 classes, selected from 23")
    assert note.endswith(". 1 of 24 images cannot be read and are left out.")
    assert str(victim) in caplog.text


def test_it_is_asked_about_some_and_the_seed_decides_which(folder, network):
    asked = []

    def counting(images):
        asked.append(len(images))
        return network(images)

    one, again, other = (
        load(f"mosaic:{folder}", network=counting, size=16, count=2, among=20, seed=seed) for seed in (0, 0, 1)
    )
    assert asked == [20] * 3
    assert one.test.images.equal(again.test.images)
    assert not one.test.images.equal(other.test.images)
    assert len(one.train) == 2
    assert not one.train.images.equal(one.test.images[::4])
    assert len(one.val) == 0


def test_what_cannot_be_made_is_refused(folder, network, labeled):
    refused(ValueError, "6 different classes", lambda: make_mosaics(*labeled, side=3))
    refused(ValueError, "least=", lambda: select_confident(lambda images: images.flatten(1), *labeled, least=0))
    refused(TypeError, "network", lambda: load(f"mosaic:{folder}"))
    refused(ValueError, "size=", lambda: load(f"mosaic:{folder}", network=network, size=17))
    undecided = lambda images: torch.zeros(len(images), 6)  # noqa: E731
    refused(ValueError, "0 of 25", lambda: load(f"mosaic:{folder}", network=undecided))
    refused(ValueError, "24 of 25", lambda: load(f"mosaic:{folder}", network=network, side=3, size=24))
