import subprocess
import sys

import numpy as np
import pytest
from refusals import refused

from xaibench.core.checks import check_amount, check_choice, check_count, check_labels


@pytest.mark.parametrize("value", [1, 7, np.int64(1), np.uint8(3)])
def test_whole_numbers_count(value):
    check_count("n", value)


def test_other_limits_of_numbers():
    check_count("seed", 0, least=0)
    check_count("samples", None, none="for all")
    check_amount("noise", 0, above=False)


@pytest.mark.parametrize("value", [0.1, 3, np.float32(0.5), np.int64(2), 1e-300])
def test_amounts(value):
    check_amount("lr", value)


NO_COUNTS = (0, -1, np.int64(0), True, np.True_, 1.0, np.float32(2), "1", None, [1])
NO_AMOUNTS = (-0.1, float("nan"), float("inf"), True, "0.1", None)
NO_CHOICES = ("c", "A", "", None, 1, ["a"], np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("check", "name", "value", "limits", "said"),
    [
        *((check_count, "n", value, {}, r"^n=.*: expected an integer of at least 1\.$") for value in NO_COUNTS),
        (check_count, "seed", -1, {"least": 0}, r"^seed=-1: expected an integer of at least 0\.$"),
        (check_count, "n", 0, {"none": "for all"}, r"^n=0: expected an integer of at least 1, or None for all\.$"),
        *((check_amount, "lr", value, {}, r"^lr=.*: expected a number above 0\.$") for value in (0, *NO_AMOUNTS)),
        *((check_amount, "lr", value, {"above": False}, r"^lr=.*: .* of at least 0\.$") for value in NO_AMOUNTS),
        *((check_choice, "how", value, {"choices": iter("ab")}, r"^how=.*: .* 'a', 'b'\.$") for value in NO_CHOICES),
        (
            check_choice,
            "resize",
            "x",
            {"choices": "a", "owner": "RISE"},
            r"^RISE\(resize='x'\): expected one of 'a'\.$",
        ),
        *((check, "n", 2**63, {}, r"expected .*below 2\*\*63\.$") for check in (check_count, check_amount)),
        *((check, "n", 10**400, {}, r"expected .*below 2\*\*63\.$") for check in (check_count, check_amount)),
        *((check, "n", -1, {"owner": "RISE"}, r"^RISE\(n=-1\): expected") for check in (check_count, check_amount)),
    ],
)
def test_other_values_are_refused(check, name, value, limits, said):
    check_choice("how", "a", ("a", "b"))
    with pytest.raises(ValueError, match=said):
        check(name, value, **limits)


def test_the_foundation_loads_neither_torch_nor_numpy():
    names = ("core.checks", "core.messages", "core.files", "core.types", "registry.info", "registry.table")
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
