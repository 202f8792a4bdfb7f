import numpy as np
import pytest

from xaibench.statistics import compare_with_controls, holm


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(5))
def test_holm_step_by_step(seed):
    p = rng(seed).random(8) ** 3
    ranked = sorted(p)
    expected = [max(min(1, (8 - j) * ranked[j]) for j in range(ranked.index(value) + 1)) for value in p]
    np.testing.assert_allclose(holm(p), expected)


def test_holm_leaves_the_undefined_out():
    np.testing.assert_allclose(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


PAIRS = [
    ("a", "noise", 0.2, 0.01),
    ("edges", "a", -0.1, 0.04),
    ("b", "noise", 0.2, 0.06),
    ("b", "edges", 0.3, 0.01),
    ("c", "noise", -0.2, 0.01),
    ("c", "edges", 0.0, 1.0),
    ("edges", "noise", 0.5, 0.01),
    ("a", "b", 0.5, 0.01),
]


def test_a_method_beats_the_controls_where_it_is_better_than_each_by_more_than_chance():
    found = compare_with_controls(PAIRS, {"noise", "edges"}, higher_is_better=True)
    assert found == {"a": (0.04, True), "b": (0.06, False), "c": (1.0, False)}
    turned = [(first, second, -difference, p) for first, second, difference, p in PAIRS]
    assert compare_with_controls(turned, {"noise", "edges"}, higher_is_better=False) == found
    assert compare_with_controls(turned, {"noise", "edges"}, higher_is_better=True) == dict.fromkeys(
        "abc", (1.0, False)
    )


def test_a_control_without_a_common_sample_is_no_bar():
    pairs = [("a", "noise", 0.2, 0.01), ("a", "edges", np.nan, np.nan), ("b", "edges", np.nan, np.nan)]
    assert compare_with_controls(pairs, {"noise", "edges"}, higher_is_better=True) == {"a": (0.01, True)}
    assert compare_with_controls(pairs, set(), higher_is_better=True) == {}
