import numpy as np
import pytest
from generators.common import by_id
from generators.glasses import (
    DRAWN_BUT_WITHOUT,
    MASK_SIDE,
    NAMES,
    NO_EYES,
    NOT_DRAWN,
    ONE_EYE,
    SIDE,
    WEARING,
    WITHOUT,
    attributes,
    write,
)
from part_cases import DatasetCase
from PIL import Image
from refusals import refused

from xaibench.data import load
from xaibench.data.annotated import DataFileError
from xaibench.data.photographs.celeba_glasses import glasses

CASES = {"glasses": DatasetCase(write=write)}


@pytest.fixture
def folder(root):
    return root / "CelebAMask-HQ"


def opened(folder, *classes, seed=0, **own):
    return glasses.open(folder, classes=classes or ("no_glasses", "glasses"), seed=seed, **own)


def part_of(folder, number, part):
    return folder / "CelebAMask-HQ-mask-anno" / str(number // 2000) / f"{number:05}_{part}.png"


def drawn(folder, number, part):
    return np.array(Image.open(part_of(folder, number, part)).convert("L")) > 0


def rewrite(folder, wearing):
    """Another attribute file, of the same faces."""
    rows = [(number, number in wearing) for number in sorted([*WEARING, *WITHOUT])]
    (folder / "CelebAMask-HQ-attribute-anno.txt").write_text(attributes(rows))


def test_glasses_or_both_eyes_are_important(folder):
    source = opened(folder)
    numbers = by_id(source)
    for number in (0, 2000):  # the second lies in the next folder
        assert np.array_equal(source.mask(numbers[str(number)]), drawn(folder, number, "eye_g"))
        eyes = drawn(folder, number + 1, "l_eye") | drawn(folder, number + 1, "r_eye")
        assert np.array_equal(source.mask(numbers[str(number + 1)]), eyes)
    assert np.array_equal(source.mask(numbers[str(ONE_EYE)]), drawn(folder, ONE_EYE, "l_eye"))


def test_masks_of_half_the_size_fit(root, folder):
    source = opened(folder)
    assert source.mask(0).shape == (MASK_SIDE, MASK_SIDE)
    assert source.image(0, SIDE).size == (SIDE, SIDE)
    _, mask, _ = load("glasses", root=root, size=MASK_SIDE).train[0]
    assert mask.shape == (MASK_SIDE, MASK_SIDE)


def test_faces_whose_masks_contradict_their_class_are_not_annotated(folder):
    source = opened(folder, balance=False)
    numbers = by_id(source)
    assert len(source) == len(WEARING) + len(WITHOUT)
    for number in (NOT_DRAWN, DRAWN_BUT_WITHOUT, NO_EYES):
        assert not source.annotated[numbers[str(number)]]
        assert source.mask(numbers[str(number)]) is None
        assert source.meta(numbers[str(number)])["annotated"] is False
    assert source.annotated.sum() == len(source) - 3


def test_as_many_faces_without_glasses_are_drawn_by_seed(folder):
    rewrite(folder, wearing={0, 2, 6})
    for number in range(4, 2012):
        part_of(folder, number, "eye_g").unlink(missing_ok=True)

    def without(**own):
        source = opened(folder, **own)
        assert (source.targets == 1).sum() == 3
        return {source.meta(i)["id"] for i in np.flatnonzero(source.targets == 0)}

    # 6 has lost its mask, so that two are left; the faces without are annotated all.
    assert len(without()) == 2
    assert without(seed=3) == without(seed=3)
    assert len({frozenset(without(seed=seed)) for seed in range(6)}) > 3
    assert len(without(balance=False)) == len(WEARING) + len(WITHOUT) - 3


def test_a_broken_row_is_named_and_the_others_are_kept(folder, caplog):
    file = folder / "CelebAMask-HQ-attribute-anno.txt"
    file.write_text(file.read_text() + "30.jpg  -1 2 1 -1\nx.jpg  -1 1 1 -1\n31.jpg  -1 1\n")
    assert len(opened(folder, balance=False)) == len(WEARING) + len(WITHOUT)
    for start in ("30.jpg", "x.jpg", "31.jpg"):
        assert start in caplog.text


@pytest.mark.parametrize("kept", [0, 1, len(WEARING) + len(WITHOUT) - 1])
def test_an_attribute_file_that_is_cut_off_is_noticed_by_its_first_line(folder, kept):
    file = folder / "CelebAMask-HQ-attribute-anno.txt"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[: kept + 2]))
    refused(DataFileError, f"'{len(WEARING) + len(WITHOUT)}'", opened, folder)
    file.write_text("".join(["x\n", *lines[1:]]))
    refused(DataFileError, "'x'", opened, folder)


def test_another_attribute_file_is_named(folder):
    for text in (attributes([(0, True)], names=[name for name in NAMES if name != "Eyeglasses"]), attributes([])):
        (folder / "CelebAMask-HQ-attribute-anno.txt").write_text(text)
        refused(DataFileError, "attribute-anno.txt", opened, folder)


def test_a_mask_of_another_shape_is_named(folder):
    Image.new("L", (MASK_SIDE, MASK_SIDE // 2), 255).save(part_of(folder, 0, "eye_g"))
    Image.new("L", (SIDE, SIDE), 255).save(part_of(folder, 1, "r_eye"))
    source = opened(folder)
    refused(DataFileError, "00000_eye_g.png", source.mask, by_id(source)["0"])
    refused(DataFileError, "00001_r_eye.png", source.mask, by_id(source)["1"])
