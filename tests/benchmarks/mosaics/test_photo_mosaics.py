import numpy as np
import pytest
import torch
from generators.photographs import COLORS, Colors, colored, write
from PIL import Image
from refusals import refused

from xaibench.data import load

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


def test_what_cannot_be_made_is_refused(folder, network):
    refused(TypeError, "network", lambda: load(f"mosaic:{folder}"))
    refused(ValueError, "size=", lambda: load(f"mosaic:{folder}", network=network, size=17))
    undecided = lambda images: torch.zeros(len(images), 6)  # noqa: E731
    refused(ValueError, "0 of 25", lambda: load(f"mosaic:{folder}", network=undecided))
    refused(ValueError, "24 of 25", lambda: load(f"mosaic:{folder}", network=network, side=3, size=24))
