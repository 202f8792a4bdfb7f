import numpy as np
import pytest
from scipy.stats import kendalltau

from xaibench.statistics.rank_tests import kendall_tau


@pytest.mark.parametrize("ties", [False, True])
def test_it_is_scipys_tau_b_of_every_two_rows(ties):
    rows = np.random.default_rng(0).normal(size=(3, 4, 9))
    rows = rows.round(0) if ties else rows
    found = kendall_tau(rows)
    for some, taus in zip(rows, found, strict=True):
        expected = [[kendalltau(one, other).statistic for other in some] for one in some]
        np.testing.assert_allclose(taus, expected, atol=1e-12)


def test_a_row_that_ties_all_agrees_with_none():
    found = kendall_tau([[1, 1, 1], [1, 2, 3]])
    assert np.isnan(found[0]).all()
    assert found[1, 1] == 1
