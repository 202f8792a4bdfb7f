import subprocess
import sys

import numpy as np
import pytest
from refusals import refused

from xaibench.core.checks import check_amount, check_choice, check_count, check_labels


@pytest.mark.parametrize("value", [1, 7, np.int64(1), np.uint8(3)])
def test_whole_numbers_count(value):
    check_count("n", value)


@pytest.mark.parametrize("value", [0, -1, np.int64(0), True, np.True_, 1.0, np.float32(2), "1", None, [1]])
def test_what_does_not_count_is_refused(value):
    with pytest.raises(ValueError, match=r"^n=.*: expected an integer of at least 1\.$"):
        check_count("n", value)


def test_the_least_may_be_another():
    check_count("seed", 0, least=0)
    with pytest.raises(ValueError, match=r"^seed=-1: expected an integer of at least 0\.$"):
        check_count("seed", -1, least=0)


def test_none_counts_where_it_means_something():
    check_count("samples", None, none="for all")
    with pytest.raises(ValueError, match=r"^samples=0: expected an integer of at least 1, or None for all\.$"):
        check_count("samples", 0, none="for all")


@pytest.mark.parametrize("value", [0.1, 3, np.float32(0.5), np.int64(2), 1e-300])
def test_amounts(value):
    check_amount("lr", value)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True, "0.1", None])
@pytest.mark.parametrize(("above", "expected"), [(True, "above 0"), (False, "of at least 0")])
def test_what_is_no_amount_is_refused(value, above, expected):
    with pytest.raises(ValueError, match=rf"^lr=.*: expected a number {expected}\.$"):
        check_amount("lr", value, above=above)


def test_nothing_is_an_amount_where_it_may_be():
    check_amount("noise", 0, above=False)
    with pytest.raises(ValueError, match=r"^noise=0: expected a number above 0\.$"):
        check_amount("noise", 0)


@pytest.mark.parametrize("value", ["c", "A", "", None, 1, ["a"], np.array(["a", "b"])], ids=repr)
def test_what_is_no_choice_is_refused(value):
    check_choice("how", "a", ("a", "b"))
    with pytest.raises(ValueError, match=r"^how=.*: expected one of 'a', 'b'\.$"):
        check_choice("how", value, (letter for letter in "ab"))


@pytest.mark.parametrize("check", [check_count, check_amount])
@pytest.mark.parametrize("value", [2**63, 10**400])
def test_integers_that_no_array_can_hold_are_refused(check, value):
    with pytest.raises(ValueError, match=r"expected .*below 2\*\*63\.$"):
        check("n", value)


@pytest.mark.parametrize("check", [check_count, check_amount])
def test_the_owner_is_named(check):
    with pytest.raises(ValueError, match=r"^RISE\(n_masks=-1\): expected"):
        check("n_masks", -1, owner="RISE")
    with pytest.raises(ValueError, match=r"^RISE\(resize='x'\): expected one of 'a'\.$"):
        check_choice("resize", "x", ["a"], owner="RISE")


def test_the_foundation_loads_neither_torch_nor_numpy():
    names = ("core.checks", "core.messages", "core.files", "core.types", "component.info", "component.registry")
    modules = ", ".join(f"xaibench.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit(bool({{'torch', 'numpy'}} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["cat", "c\u0430t"], "look alike"),
        (["\uff23AT", "CAT"], "look alike"),
        (["cat", "ca\u200ct"], "look alike"),
        (["tac\u202e"], "u202e"),
        (["c\u200bat"], "u200b"),
        (["a\nb"], "invisible"),
    ],
)
def test_labels_that_look_alike_or_hide_characters_are_refused(labels, said):
    refused(ValueError, said, check_labels, "class", labels)


def test_labels_of_any_language_are_accepted():
    check_labels("class", ["cat", "Cat", "кот", "猫", "γάτα", "très <b>", "=x", "قط", "می\u200cرود"])
