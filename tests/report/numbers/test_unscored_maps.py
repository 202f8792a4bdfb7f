import pandas as pd

from xaibench.report.numbers.summary import UnscoredMaps, count_unscored, unscored_notes

CHANCE = "map is all zero: scored as chance"
LABELS = {"a": "A", "b": "B", "c": "C"}


def rows(*known):
    """Rows of the data set d: explainer, sample, metric, value, reason, correct."""
    columns = ["explainer", "sample", "metric", "value", "reason", "correct"]
    return pd.DataFrame(known, columns=columns).assign(dataset="d", model="m", data_seed=0, seed=0)


SCORES = rows(
    ("a", 0, "emd", 0.5, CHANCE, True),
    ("a", 0, "hit", 0.1, CHANCE, True),
    ("a", 0, "deletion", None, "map is constant", True),
    ("a", 1, "emd", 0.7, "", True),
    ("a", 2, "emd", 0.5, CHANCE, False),
    ("b", 0, "emd", 0.9, "", True),
    ("b", 1, "emd", None, "mask is empty", True),
    ("c", 0, "emd", 0.9, "", True),
)


def test_maps_are_counted_once_and_scores_each_where_the_sample_counts():
    found = count_unscored(SCORES)
    assert found == {"a": UnscoredMaps(1, 2, 1, 4), "b": UnscoredMaps(0, 2, 1, 2)}
    assert unscored_notes(found, LABELS) == [
        "Maps scored as chance, because they are constant or no pixel is above the threshold: A 1 of 2.",
        "Undefined scores, which enter no mean: B 1 of 2, A 1 of 4.",
    ]


def test_only_the_methods_with_the_largest_shares_are_named():
    counts = {name: UnscoredMaps(part, 100, 0, 100) for name, part in zip("abcde", (1, 20, 3, 40, 5), strict=True)}
    (note,) = unscored_notes(counts, {name: name.upper() for name in "abcde"})
    assert note.endswith(": D 40 of 100, B 20 of 100, E 5 of 100 and at most 3 % of 2 others.")


def test_without_any_there_is_no_sentence():
    assert unscored_notes(count_unscored(SCORES[SCORES["explainer"] == "c"]), LABELS) == []
    assert count_unscored(SCORES.iloc[:0]) == {}


def test_equal_counts_of_every_method_are_one_number():
    empty = rows(
        *[(name, number, "emd", [None, 0.5][number], ["x", ""][number], True) for name in "abc" for number in (0, 1)]
    )
    assert unscored_notes(count_unscored(empty), LABELS) == [
        "Undefined scores, which enter no mean: 1 of 2 of every method."
    ]
