"""The generated images of the watermark sets."""

import numpy as np

from xaibench.benchmarks.watermarks.generated import LEVELS, striped_images


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
