"""Effect sizes, against scipy and by hand."""

import math

import numpy as np
import pytest
from scipy.stats import f_oneway, wilcoxon

from xaibench.statistics import explained_variance, rank_share


def test_rank_share_is_the_statistic_of_the_signed_rank_test():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, 40), rng.integers(0, 8, 40)
    untied = int((first != second).sum())
    statistic = wilcoxon(first, second, alternative="greater", zero_method="wilcox", method="asymptotic").statistic
    assert rank_share(first, second) == pytest.approx(statistic / (untied * (untied + 1) / 2))
    assert rank_share(second, first) == pytest.approx(1 - rank_share(first, second))


def test_rank_share_leaves_out_pairs_that_do_not_differ_or_have_no_score():
    assert rank_share([1.0, 2.0, np.nan, 5.0], [1.0, 1.0, 0.0, np.nan]) == 1
    assert math.isnan(rank_share([1.0, np.nan], [1.0, 2.0]))


def test_explained_variance_belongs_to_the_f_statistic():
    rng = np.random.default_rng(1)
    groups = [rng.standard_normal(20) + shift for shift in (0.0, 0.5, 2.0)]
    statistic = f_oneway(*groups).statistic
    between, within = 2, 57
    assert explained_variance(groups) == pytest.approx(statistic * between / (statistic * between + within))


def test_explained_variance_at_its_ends():
    assert explained_variance([[1.0, 1.0], [2.0, np.nan]]) == 1
    assert explained_variance([[1.0, 2.0], [2.0, 1.0]]) == 0
    assert math.isnan(explained_variance([[1.0], [1.0]]))
    assert math.isnan(explained_variance([]))
