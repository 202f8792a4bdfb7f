import warnings

import pytest

from xaibench.core.messages import (
    capitalize,
    did_you_mean,
    first_line,
    folded,
    kind_of,
    listed,
    unknown,
    warn_caller,
)
from xaibench.core.process_settings import equal_warnings_once


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("treshold", "threshold"),
        ("THRESHOLD", "threshold"),
        ("nsamples", "n_samples"),
        ("N-Sampel", "n_samples"),
        ("monitor", "tv monitor"),
    ],
)
def test_the_nearest_name_is_said_as_it_is_known(name, nearest):
    assert did_you_mean(name, ["threshold", "n_samples", "tv monitor"]) == f"; did you mean {nearest!r}?"


@pytest.mark.parametrize("known", [[], ["threshold", "n_samples"]])
def test_where_nothing_is_near_the_sentence_just_ends(known):
    assert did_you_mean("zzz", known) == "."


def test_of_two_spellings_of_one_name_the_first_is_said():
    assert did_you_mean("tvmonitr", ["tv monitor", "tvmonitor"]) == "; did you mean 'tv monitor'?"


def test_names_need_be_no_text():
    assert unknown("Unknown seed", 3, ["best"]) == "Unknown seed 3. Known: best."
    assert unknown("Unknown seed", None, ["best", "none"]).startswith("Unknown seed None; did you mean 'none'?")


def test_other_spellings_are_near_but_not_listed():
    message = unknown("Unknown function", "entire", ["floor"], also=["entier"])
    assert message == "Unknown function 'entire'; did you mean 'entier'? Known: floor."


def test_a_generator_of_known_names_is_read_once():
    message = unknown("Unknown letter", "a", (letter for letter in "abc"))
    assert message == "Unknown letter 'a'; did you mean 'a'? Known: a, b, c."


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        ([], None, "none"),
        ([], 2, "none"),
        (["a"], 2, "a"),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b, ... (3 in all)"),
        ([1, 2, 3], None, "1, 2, 3"),
    ],
)
def test_the_first_few_are_listed_and_the_number_of_all(names, most, text):
    assert listed(names, most) == text


def test_spellings_fold_into_one():
    assert {folded(name) for name in ("n_samples", "N-Samples", "n samples", "nSamples")} == {"nsamples"}


def test_only_the_first_letter_becomes_a_capital():
    assert [capitalize(text) for text in ("data set", "XAI", "")] == ["Data set", "XAI", ""]


def test_of_an_error_only_the_first_line_is_said():
    assert first_line(ValueError("\n  first \nsecond")) == "first"
    assert first_line(ValueError()) == "ValueError"


def test_a_class_that_was_not_called_is_told_from_its_objects():
    assert [kind_of(value) for value in (1.5, None, int)] == ["float", "NoneType", "the class int"]


def test_a_warning_in_a_module_names_the_line_of_the_user():
    """The frames between are those of torch."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Identity()
    scope = {"__name__": "xaibench.somewhere", "warn_caller": warn_caller, "module": module}
    exec("def inner(_): warn_caller('slow')\ndef outer(): module(0)", scope)
    module.forward = scope["inner"]
    with pytest.warns(UserWarning, match="slow") as caught:
        scope["outer"]()
    assert caught[0].filename == __file__


def test_equal_warnings_are_shown_once_inside_a_block():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        shown = warnings.showwarning
        for _ in range(2):
            with equal_warnings_once():
                for text in ("one", "one", "two", "one"):
                    warn_caller(text)
                for _ in range(2):  # of another library; and a call inside the call
                    with equal_warnings_once():
                        warnings.warn("other", UserWarning, stacklevel=1)
                        warn_caller("two")
        assert warnings.showwarning is shown
        warn_caller("one")
        warn_caller("one")
    assert [str(warning.message) for warning in seen] == ["one", "two", "other"] * 2 + ["one"] * 2
