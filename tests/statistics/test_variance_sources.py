import numpy as np
import pytest

from xaibench.statistics import SamplingDesign
from xaibench.statistics.nested_draws import variance_components


def experiment(shape, scales, columns=400, seed=0):
    """Return scores of ``columns`` methods whose levels have standard deviations ``scales``, and their design."""
    draw = np.random.default_rng(seed)
    d, t, s = shape
    sizes = ((d, 1, 1), (d, t, 1), (d, 1, s), shape)
    parts = [scale * draw.normal(size=(*size, columns)) for size, scale in zip(sizes, scales, strict=True)]
    names = dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(shape)), strict=True))
    return sum(parts).reshape(-1, columns), SamplingDesign.of(d * t * s, **names)


def test_each_variance_is_found():
    found = variance_components(*experiment((4, 3, 40), (0.5, 0.4, 1.0, 0.3)))
    means = [part.mean() for part in (found.data_sets, found.trainings, found.samples, found.rest)]
    assert means == pytest.approx([0.25, 0.16, 1.0, 0.09], rel=0.12)
    np.testing.assert_allclose(found.shares().sum(axis=0), 1)


def test_what_does_not_vary_has_no_share():
    found = variance_components(*experiment((3, 3, 50), (0, 0, 1.0, 0.5)))
    assert np.median(found.shares()[:2], axis=1).max() < 0.01


def test_what_was_drawn_once_is_not_known():
    found = variance_components(*experiment((1, 1, 60), (0, 0, 1.0, 0.5), columns=200))
    assert np.isnan([found.data_sets, found.trainings, found.rest]).all()
    assert found.samples.mean() == pytest.approx(1.25, rel=0.1)
    assert found.shares()[2].min() == 1


def test_groups_that_some_training_lacks_are_left_out():
    scores, drawn = experiment((2, 2, 30), (0.1, 0.2, 1.0, 0.3), columns=3)
    holes = scores.copy()
    holes[(drawn.groups < 10) & (drawn.trainings == 1)] = np.nan
    kept = drawn.groups >= 10
    rest = SamplingDesign.of(
        int(kept.sum()), data_sets=drawn.data_sets[kept], trainings=drawn.trainings[kept], groups=drawn.groups[kept]
    )
    expected = variance_components(scores[kept], rest)
    np.testing.assert_allclose(variance_components(holes, drawn).samples, expected.samples)


def test_equal_and_undefined_scores():
    drawn = SamplingDesign.of(6)
    found = variance_components(np.array([[1.0, np.nan]] * 6), drawn)
    assert np.isnan(found.shares()).all()
    assert found.samples[0] == 0
    assert np.isnan(found.samples[1])
