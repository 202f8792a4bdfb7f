import dataclasses

import numpy as np
import pytest

from xaibench.runfolder.robust_rankings import ROBUSTNESS, RobustRanking, read_robust, write_robust
from xaibench.runfolder.tables import RunFolderError


def ranking(metric="deletion", least=0.5):
    tau = np.array([[1, 0.9, least], [0.9, 1, 0.95], [least, 0.95, 1]])
    settings = ({"baseline": 0.0, "steps": 7}, {"baseline": 0.0, "steps": 28}, {"baseline": "blur", "steps": 28})
    ranks = np.array([[1, 2.0], [1, 2], [2, 1]])
    return RobustRanking(metric, settings, ("a", "b"), 1 / ranks, ranks, tau, tau - 0.1, tau, cells=2, left_out=("c",))


def test_it_says_which_settings_agree_least_and_what_follows():
    found = ranking()
    assert not found.has_single_order
    assert found.least_similar == (0, 2)
    assert found.by_parameter == {"baseline": (2, 1), "steps": (1, 0)}
    assert "its ranking depends on its parameters" in found.summary()
    assert "baseline=blur, steps=28 and baseline=0.0, steps=7" in repr(found)
    assert "tau 0.50 (0.40 to 0.50), below 0.8" in found.summary()
    assert ranking(least=0.8).has_single_order
    assert "its 3 settings agree on the ranking" in ranking(least=0.8).summary()


def test_what_only_one_setting_states_goes_with_what_differs():
    settings = ({"cut": "pixels"}, {"cut": "grid", "n": 16}, {"cut": "pixels", "metric": "insertion"})
    found = dataclasses.replace(ranking(), settings=settings)
    assert found.by_parameter == {"cut": (1, 0), "metric": (2, 0)}
    assert found.describe_setting(1, 0) == "cut=grid"
    assert found.describe_setting(2, 0) == "metric=insertion"
    assert found.describe_setting(0, 2) == "default"


def test_what_is_kept_comes_back_beside_what_was_there(tmp_path):
    assert read_robust(tmp_path) == {}
    write_robust(tmp_path, ranking())
    write_robust(tmp_path, ranking("insertion", 0.9))
    write_robust(tmp_path, ranking(least=0.7))
    found = read_robust(tmp_path)
    assert list(found) == ["deletion", "insertion"]
    for one, expected in zip(found.values(), (ranking(least=0.7), ranking("insertion", 0.9)), strict=True):
        assert repr(one) == repr(expected)
        assert one.settings == expected.settings
        assert one.left_out == ("c",)
        for name in ("means", "ranks", "tau", "low", "high"):
            np.testing.assert_array_equal(getattr(one, name), getattr(expected, name))


@pytest.mark.parametrize("change", ["{", '{"deletion": {}}', "[1]"])
def test_a_damaged_file_is_said_to_be_so(tmp_path, change):
    (tmp_path / ROBUSTNESS).write_text(change)
    with pytest.raises(RunFolderError, match=ROBUSTNESS):
        read_robust(tmp_path)


def test_settings_that_do_not_fit_the_numbers_are_damage(tmp_path):
    write_robust(tmp_path, ranking())
    text = (tmp_path / ROBUSTNESS).read_text()
    (tmp_path / ROBUSTNESS).write_text(text.replace('"b"', '"b", "d"'))
    with pytest.raises(RunFolderError, match="do not match"):
        read_robust(tmp_path)
