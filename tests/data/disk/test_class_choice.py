import pytest

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
    with pytest.raises(ValueError, match="Class 'ab' is ambiguous: 'A b' or 'a-b'; give the exact name"):
        choose_classes(["ab"], known)
    assert choose_classes(["cafe\u0301"], known) == ("caf\u00e9",)  # as macOS spells it


def test_none_stands_for_all_or_the_default():
    assert choose_classes(None, KNOWN) == KNOWN
    assert choose_classes(None, KNOWN, default=("dog",)) == ("dog",)


def test_aliases_give_the_sets_own_name():
    assert choose_classes("kitty", KNOWN, aliases={"kitty": "cat"}) == ("cat",)
    with pytest.raises(ValueError, match="names cat more than once"):
        choose_classes("kitty,cat", KNOWN, aliases={"kitty": "cat"})


@pytest.mark.parametrize("wanted", ["", ",", []])
def test_no_class_at_all_is_refused(wanted):
    with pytest.raises(ValueError, match="names no class; known: cat, dog, tv monitor"):
        choose_classes(wanted, KNOWN)


def test_an_unknown_class_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="Unknown class 'monitor'; did you mean 'tv monitor'"):
        choose_classes("monitor", KNOWN)
    with pytest.raises(ValueError, match=r"Unknown class 'xyz'\. Known: cat, dog"):
        choose_classes("xyz", KNOWN)
