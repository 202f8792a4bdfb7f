import numpy as np
import pytest

from xaibench.statistics import SamplingDesign, average_ranks, critical_difference, mean_ranks


def test_ranks_in_both_directions():
    table = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 0.0]])
    assert average_ranks(table)[0].tolist() == [2.25, 1.75, 2.0]
    assert average_ranks(table, higher_is_better=False)[0].tolist() == [1.75, 2.25, 2.0]
    ranks, n = average_ranks(np.full((2, 3), np.nan))
    assert np.isnan(ranks).all()
    assert n == 0


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_values_of_demsars_table(methods, q):
    assert critical_difference(methods, 30) == pytest.approx(q * np.sqrt(methods * (methods + 1) / 180), abs=2e-3)


def test_for_independent_rankings_the_critical_difference_is_nemenyis():
    scores = np.random.default_rng(0).random((30, 5)) + np.array([0.3, 0, 0, 0, 0])
    found = mean_ranks(scores, SamplingDesign.of(30))
    assert (found.n, found.n_effective) == (30, 30)
    assert found.critical_difference == critical_difference(5, 30)


def test_equal_samples_of_a_patient_count_as_one():
    scores = np.random.default_rng(0).random((20, 5))
    groups = np.repeat(np.arange(20), 4)
    found = mean_ranks(scores[groups], SamplingDesign.of(80, groups=groups))
    assert (found.n, found.ranks.tolist()) == (
        80,
        pytest.approx(mean_ranks(scores, SamplingDesign.of(20)).ranks.tolist()),
    )
    assert found.n_effective == pytest.approx(20, rel=0.06)
    assert found.critical_difference > critical_difference(5, 20)  # because the effective number is estimated


def test_too_few_or_equal_rankings_are_undefined():
    assert np.isnan(mean_ranks(np.full((3, 3), np.nan), SamplingDesign.of(3)).critical_difference)
    assert np.isnan(mean_ranks(np.ones((5, 1)), SamplingDesign.of(5)).critical_difference)
    one = mean_ranks(np.random.default_rng(0).random((5, 3)), SamplingDesign.of(5, groups=[1] * 5))  # one patient
    assert np.isnan(one.critical_difference)
    always = mean_ranks([[1, 2, 3]] * 6, SamplingDesign.of(6, data_sets=[0, 0, 1, 1, 2, 2]))
    assert always.n_effective == 3


def false_alarms(shape, spread, methods=10, *, runs, **levels):
    """Return the share of runs in which equally good methods differ significantly; trainings favor some by chance."""
    rng, names = np.random.default_rng(0), [part.ravel() for part in np.indices(shape)]
    of = SamplingDesign.of(np.prod(shape), **{name: names[level] for name, level in levels.items()})
    alarms = []
    for _ in range(runs):
        favor = spread * rng.normal(size=(*shape[:2], 1, methods))
        scores = (favor + rng.normal(size=(*shape, methods))).reshape(-1, methods)
        found = mean_ranks(scores, of)
        # With infinite degrees of freedom the difference is smaller, and it is computed only once.
        may_differ = np.ptp(found.ranks) > critical_difference(methods, found.n_effective)
        alarms.append(may_differ and np.ptp(found.ranks) > found.critical_difference)
    return np.mean(alarms)


NESTED = {"data_sets": 0, "trainings": 1, "groups": 2}


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(3, 2, 20), (1, 3, 20), (1, 1, 30)])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_methods_that_some_trainings_favor_do_not_differ_significantly(shape, spread, runs):
    assert false_alarms(shape, spread * (shape[0] * shape[1] > 1), runs=runs, **NESTED) <= 0.1


def test_that_test_can_fail():
    assert false_alarms((3, 2, 20), 0.5, runs=25, groups=2) > 0.3  # ignoring that samples are clustered
