import numpy as np
import pytest

from xaibench.statistics import average_ranks, critical_difference


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
