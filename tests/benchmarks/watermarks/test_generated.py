import itertools

import numpy as np
import pytest
import torch
from part_cases import DatasetCase
from refusals import refused

import xaibench as xb
from xaibench.benchmarks.watermarks.generated import LEVELS, striped_images
from xaibench.benchmarks.watermarks.regimes import PREVALENCE, banner_mask
from xaibench.data import DATASETS

NAMES = [name for name in DATASETS if name.startswith("watermarks/")]
CASES = {name: DatasetCase(small=lambda photographs, cache: {"n_samples": 80}) for name in NAMES}
MASK = torch.from_numpy(banner_mask(64))


def load(name, seed=0, **parameters):
    return xb.load(f"watermarks/{name}", seed=seed, n_samples=80, **parameters)


def test_there_are_three_regimes_in_two_encodings():
    places = {(DATASETS.resolve(name).info.subset, DATASETS.resolve(name).info.variant) for name in NAMES}
    assert places == set(itertools.product(PREVALENCE, ("bright", "inverted")))


@pytest.mark.parametrize("regime", PREVALENCE)
def test_the_regime_decides_how_many_images_of_each_class_have_the_watermark(regime):
    for split in (load(regime).train, load(regime).val):
        never = load("none")
        plain = (never.train if len(split) == len(never.train) else never.val).images
        marked = (split.images != plain).flatten(1).any(1)
        for kind in (0, 1):
            members = split.targets == kind
            assert marked[members].sum() == round(PREVALENCE[regime][kind] * int(members.sum()))
        changed = (split.images != plain)[marked].any(0).any(0)
        assert (changed & ~MASK).sum() == 0
        assert (split.masks == MASK).all()


def test_test_images_are_the_same_in_all_regimes_and_come_in_pairs():
    one = load("confounder").test
    for regime in ("suppressor", "none"):
        other = load(regime).test
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.targets, other.targets)
    assert one.watermarked.equal(one.images[::2])
    assert one.plain.equal(one.images[1::2])
    assert ((one.watermarked != one.plain).any(0)[0] == MASK).all()
    assert one.watermarked[:, 0, MASK].min() >= np.float32(0.8)
    assert one.targets[::2].equal(one.targets[1::2])
    assert list(one.ids[:4]) == ["0-watermarked", "0-plain", "1-watermarked", "1-plain"]
    assert one.groups[:4].tolist() == [0, 0, 1, 1]


def test_inverted_images_are_the_others_turned_over():
    for part in ("train", "test"):
        bright, dark = (getattr(load(name), part).images for name in ("confounder", "confounder-inverted"))
        assert torch.allclose(bright + dark, torch.ones(()), atol=1e-6)


def test_opacity_is_that_of_the_watermark():
    faint = load("none", opacity=0.25).test
    plain = faint.plain[:, 0, MASK].double()
    assert torch.allclose(faint.watermarked[:, 0, MASK].double(), 0.75 * plain + 0.25, atol=1e-6)
    refused(ValueError, "opacity=0", lambda: load("none", opacity=0))


def images(targets, seed=0):
    return striped_images(np.array(targets), np.random.SeedSequence(seed))


def test_pixels_are_whole_gray_levels():
    levels = images([0, 1, 0, 1]) * LEVELS
    assert np.array_equal(levels, np.rint(levels))
    assert levels.min() >= 0
    assert levels.max() < LEVELS


def test_the_classes_differ_in_the_direction_of_their_stripes_only():
    made = images([0] * 40 + [1] * 40)
    # A stripe is two pixels wide: rows two apart differ where stripes are horizontal, columns where they are vertical.
    along_rows, along_columns = (np.abs(np.diff(made, 1, axis)).mean((1, 2)) for axis in (1, 2))
    assert (along_rows[:40] > along_columns[:40]).mean() > 0.7  # stripes of low contrast are lost in the noise
    assert (along_rows[40:] < along_columns[40:]).mean() > 0.7
    assert abs(made[:40].mean() - made[40:].mean()) < 0.01


def test_noise_is_smooth_and_neither_black_nor_white():
    made = images([0, 1] * 20)
    assert 0.4 < made.mean() < 0.6
    assert 0.05 < made.std() < 0.25
