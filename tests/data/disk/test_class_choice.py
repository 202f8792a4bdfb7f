import pytest
from refusals import refused

from xaibench.data.disk.splits import choose_classes

KNOWN = ("cat", "dog", "tv monitor")


@pytest.mark.parametrize("wanted", ["dog,cat", " Dog , CAT ,", ["dog", "cat"], ("DOG", "cat")])
def test_the_order_is_the_users(wanted):
    assert choose_classes(wanted, KNOWN) == ("dog", "cat")


def test_spaces_and_dashes_make_no_difference():
    assert choose_classes("TV-Monitor", KNOWN) == ("tv monitor",)
    assert choose_classes("tvmonitor", KNOWN) == ("tv monitor",)


def test_a_name_as_it_is_written_comes_first_and_nothing_is_guessed():
    known = ("A b", "a-b", "caf\u00e9")
    assert choose_classes(["A b"], known) == ("A b",)
    assert choose_classes(["a-b"], known) == ("a-b",)
    refused(ValueError, "'ab'", lambda: choose_classes(["ab"], known))
    assert choose_classes(["cafe\u0301"], known) == ("caf\u00e9",)  # as macOS spells it


def test_none_stands_for_all_or_the_default():
    assert choose_classes(None, KNOWN) == KNOWN
    assert choose_classes(None, KNOWN, default=("dog",)) == ("dog",)


def test_aliases_give_the_sets_own_name():
    assert choose_classes("kitty", KNOWN, aliases={"kitty": "cat"}) == ("cat",)
    refused(ValueError, "cat", lambda: choose_classes("kitty,cat", KNOWN, aliases={"kitty": "cat"}))


def test_no_class_and_an_unknown_one_are_refused_with_what_is_known():
    for wanted in ("", ",", []):
        refused(ValueError, "tv monitor", choose_classes, wanted, KNOWN)
    refused(ValueError, "'monitor'", lambda: choose_classes("monitor", KNOWN))
    refused(ValueError, "'xyz'", lambda: choose_classes("xyz", KNOWN))
