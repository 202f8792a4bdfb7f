import numpy as np
import pytest
from generators.painted import Painted
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.data.disk.splits import split_indices, stratified_split

THIRDS = (0.6, 0.2, 0.2)


def parts_of(source, splits=THIRDS, seed=0):
    return split_indices(source, np.flatnonzero(source.annotated), splits, seed)


def test_each_class_has_its_share_of_each_split(painted):
    source = painted([0] * 50 + [1] * 10)
    for part, (large, small) in zip(parts_of(source), ((30, 6), (10, 2), (10, 2)), strict=True):
        assert np.bincount(source.targets[part]).tolist() == [large, small]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 14)), min_size=1, max_size=80),
    st.sampled_from([THIRDS, (0.8, 0.1, 0.1), (0.0, 0.0, 1.0), (0.5, 0.0, 0.5)]),
    st.integers(0, 3),
)
def test_every_sample_goes_to_one_split_and_no_group_to_two(pairs, splits, seed):
    targets, groups = zip(*pairs, strict=True)
    source = Painted(targets, classes="abc", groups=groups)
    used = sum(share > 0 for share in splits)
    if any(0 < len(set(source.groups[source.targets == target])) < used for target in range(3)):
        refused(ValueError, "too few", lambda: parts_of(source, splits, seed))
        return
    parts = parts_of(source, splits, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(pairs)))
    seen = [set(source.groups[part].tolist()) for part in parts]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    assert all(len(part) == 0 for part, share in zip(parts, splits, strict=True) if share == 0)


def test_a_group_of_several_classes_is_divided_as_its_rarest(painted):
    source = painted([0] * 30 + [1] * 5, groups=[*range(30), *range(5)])  # five patients show both
    for seed in range(5):
        parts = parts_of(source, seed=seed)
        assert [np.count_nonzero(source.targets[part]) for part in parts] == [3, 1, 1]


def test_three_images_of_a_class_are_enough_for_three_splits(painted):
    source = painted([0] * 20 + [1] * 3)
    assert all(1 in source.targets[part] for part in parts_of(source))


def test_only_the_training_part_is_shuffled(painted):
    train, val, test = parts_of(painted([0, 1] * 20))
    assert not (np.diff(train) > 0).all()
    assert (np.diff(val) > 0).all()
    assert (np.diff(test) > 0).all()


def test_official_splits_are_taken_as_they_are(painted):
    lists = {"train": np.arange(10), "val": np.arange(10, 14), "test": np.arange(14, 20)}
    train, val, test = parts_of(painted([0, 1] * 10, official=lists), "official")
    assert sorted(train) == list(range(10))
    assert (val.tolist(), test.tolist()) == (list(range(10, 14)), list(range(14, 20)))


def test_official_without_val_takes_a_fifth_of_train(painted):
    lists = {"train": np.arange(20), "test": np.arange(20, 30)}
    source = painted([0, 1] * 15, official=lists)
    train, val, test = parts_of(source, "official")
    assert (len(train), len(val), test.tolist()) == (16, 4, list(range(20, 30)))
    assert np.bincount(source.targets[val]).tolist() == [2, 2]
    assert sorted([*train, *val]) == list(range(20))


def test_official_without_test_tests_on_val(painted):
    lists = {"train": np.arange(20), "val": np.arange(20, 30)}
    train, val, test = parts_of(painted([0, 1] * 15, official=lists), "official")
    assert (len(train), len(val), test.tolist()) == (16, 4, list(range(20, 30)))


def test_official_leaves_out_what_is_not_annotated(painted):
    lists = {"train": np.arange(10), "val": np.arange(10, 14), "test": np.arange(14, 20)}
    source = painted([0, 1] * 10, official=lists, annotated=np.arange(20) != 14)
    assert parts_of(source, "official")[2].tolist() == list(range(15, 20))


def test_other_fractions_and_splits_that_the_set_has_not_are_refused(painted):
    for splits in ((0.5, 0.5), (0.5, 0.6, 0.2), (-0.2, 1.0, 0.2), (0.5, 0.2, float("nan"))):
        refused(ValueError, "three fractions", parts_of, painted([0, 1] * 10), splits)
    refused(ValueError, "official", parts_of, painted([0, 1] * 10), "official")
    refused(ValueError, "splits='offical'", parts_of, painted([0, 1] * 10), "offical")


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    weights=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1), st.floats(0.1, 1)),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_parts_are_exact_disjoint_and_stratified(counts, weights, seed):
    strata = np.repeat(np.arange(len(counts)), counts)
    fractions = [weight / sum(weights) for weight in weights]
    sizes = np.diff([0, *(round(bound * len(strata)) for bound in np.cumsum(fractions))])
    if min(sizes) == 0:
        refused(ValueError, "empty split", lambda: stratified_split(strata, fractions, np.random.default_rng(seed)))
        return
    parts = stratified_split(strata, fractions, np.random.default_rng(seed))
    assert [len(part) for part in parts] == list(sizes)
    assert sorted(np.concatenate(parts)) == list(range(len(strata)))
    for part in parts:
        shares = np.bincount(strata[part], minlength=len(counts))
        assert (np.abs(shares - len(part) * np.array(counts) / len(strata)) < 2).all()


def test_the_seed_decides():
    strata = np.arange(300) % 3
    first, again, other = (
        stratified_split(strata, (0.6, 0.2, 0.2), np.random.default_rng(seed))[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("fractions", [(0.8, 0.2), (0.8, 0.1, 0.2), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1)])
def test_fractions_that_are_none(fractions):
    refused(ValueError, "fractions", stratified_split, np.zeros(50, np.int64), fractions, np.random.default_rng(0))
