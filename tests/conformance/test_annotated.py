"""What every annotated set promises, tried on a tiny tree in its official layout (tests/generators)."""

import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from part_cases import DatasetCase, case
from refusals import refused

from xaibench.data import DATASETS, load, loading
from xaibench.data.annotated import AnnotatedSet, MissingDataError
from xaibench.data.disk.lazy_split import resize_mask

PARTS = ("train", "val", "test")
SIZE = 32
#: Names as users give them; ``{root}`` is where the tree was written.
NAMES = {
    **{name: name for name in DATASETS if isinstance(DATASETS.resolve(name), AnnotatedSet)},
    "published": "published:{root}",
    "folder": "folder:{root}",
    "photographs": "photographs:{root}",
}

#: Parameters with which all that the tree holds is loaded.
WHOLE = {"glasses": {"balance": False}, "sixray": {"balance": False}}

every_set = pytest.mark.parametrize("kind", NAMES)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XAIBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("XAIBENCH_DATA", raising=False)
        yield


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """``tree(kind)``: ``(name, parameters, expected)`` of a tree that is written once."""
    written = {}

    def write(kind):
        if kind not in written:
            root = tmp_path_factory.mktemp(kind)
            expected = writer(kind)(root)
            name = NAMES[kind].format(root=root)
            written[kind] = name, {} if ":" in name else {"root": root, **WHOLE.get(kind, {})}, expected
        return written[kind]

    return write


def writer(kind):
    """What writes a tiny tree of it; that of the scans is skipped where their readers are missing."""
    if kind not in DATASETS:
        return importlib.import_module(f"generators.{kind}").write
    write = case(DATASETS, kind, DatasetCase()).write
    assert write, f"say in CASES of the set's own test file (tests/part_cases.py) how a tiny {kind!r} is written"
    return write


@pytest.fixture(scope="module")
def opened(tree):
    def open_it(kind, **parameters):
        name, given, _ = tree(kind)
        return load(name, **{"size": SIZE, **given, **parameters})

    return open_it


def batches(dataset):
    return {part: getattr(dataset, part)[:] for part in PARTS}


def ids(split):
    return [note["id"] for note in split.meta]


@every_set
def test_info_is_complete(kind, opened):
    info = opened(kind).info
    assert len(set(info.classes)) == len(info.classes) >= 2
    assert info.image_shape == (3, SIZE, SIZE)
    assert info.license
    if ":" not in NAMES[kind]:
        assert info.name == kind
        assert info.citation
        assert info.how_to_get
        assert info.published


@every_set
def test_shapes_and_types(kind, opened):
    dataset = opened(kind)
    for part, (images, masks, targets) in batches(dataset).items():
        count = len(getattr(dataset, part))
        assert count > 0
        assert (images.shape, images.dtype) == ((count, 3, SIZE, SIZE), torch.float32)
        assert (masks.shape, masks.dtype) == ((count, SIZE, SIZE), torch.bool)
        assert (targets.shape, targets.dtype) == ((count,), torch.int64)
        assert images.min() >= 0
        assert images.max() <= 1
        assert images.flatten(1).std(dim=1).min() > 0
        assert torch.equal(targets, getattr(dataset, part).targets)


@every_set
def test_every_sample_is_the_one_that_was_written(kind, opened, tree):
    """Length, classes and masks: all of what the tree holds, each once, none more."""
    dataset, expected = opened(kind), {sample.id: sample for sample in tree(kind)[2]}
    found = [one for part in PARTS for one in ids(getattr(dataset, part))]
    assert sorted(found) == sorted(expected)
    for part in PARTS:
        split = getattr(dataset, part)
        for note, (_, mask, target) in zip(split.meta, (split[i] for i in range(len(split))), strict=True):
            sample = expected[note["id"]]
            assert dataset.classes[target] == sample.label
            right = np.zeros((SIZE, SIZE), bool) if sample.mask is None else resize_mask(sample.mask, SIZE)
            assert np.array_equal(mask.numpy(), right), note


@every_set
def test_each_class_is_in_each_split(kind, opened):
    dataset = opened(kind)
    for part in PARTS:
        assert set(getattr(dataset, part).targets.tolist()) == set(range(len(dataset.classes)))


@every_set
def test_no_group_is_in_two_splits(kind, opened):
    dataset = opened(kind)
    source = dataset.train.source
    groups = source.groups if source.groups is not None else np.arange(len(source))
    parts = [set(groups[getattr(dataset, part).indices].tolist()) for part in PARTS]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


@every_set
def test_the_seed_decides(kind, opened):
    one, same, other = opened(kind, seed=3), opened(kind, seed=3), opened(kind, seed=4)
    assert all(ids(getattr(one, part)) == ids(getattr(same, part)) for part in PARTS)
    assert any(ids(getattr(one, part)) != ids(getattr(other, part)) for part in PARTS)
    for part in PARTS:
        assert all(torch.equal(a, b) for a, b in zip(getattr(one, part)[:], getattr(same, part)[:], strict=True))


@every_set
def test_global_random_state_is_left_alone(kind, opened):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
    opened(kind, seed=1).train[0]
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_state, strict=True))


@every_set
def test_classes_follow_the_order_asked_for(kind, opened):
    classes = opened(kind).classes
    turned = opened(kind, classes=",".join(reversed(classes)))
    assert turned.classes == tuple(reversed(classes))
    label = {}
    for dataset in (opened(kind), turned):
        for part in PARTS:
            split = getattr(dataset, part)
            for one, target in zip(ids(split), split.targets.tolist(), strict=True):
                label.setdefault(one, []).append(dataset.classes[target])
    assert all(len(set(names)) == 1 for names in label.values())


@every_set
def test_an_unknown_class_is_refused_with_the_nearest(kind, opened):
    name = opened(kind).classes[0]
    with pytest.raises(ValueError, match=f"did you mean '{name}'"):
        opened(kind, classes=name + "x")


@every_set
def test_workers_change_nothing(kind, tree):
    name, given, _ = tree(kind)
    runs = [
        [
            batch
            for loader in loading(name, size=SIZE, batch_size=4, num_workers=n, verbose=False, **given)
            for batch in loader
        ]
        for n in (0, 2)
    ]
    assert len(runs[0]) == len(runs[1])
    assert all(torch.equal(a, b) for one, two in zip(*runs, strict=True) for a, b in zip(one, two, strict=True))


@every_set
def test_pickling_changes_nothing(kind, opened):
    dataset = opened(kind)
    back = pickle.loads(pickle.dumps(dataset))
    assert (back.info, dict(back.parameters)) == (dataset.info, dict(dataset.parameters))
    assert all(torch.equal(a, b) for a, b in zip(back.test[:], dataset.test[:], strict=True))


@every_set
def test_parameters_make_the_set_again(kind, opened, tree):
    dataset = opened(kind, seed=2)
    again = load(tree(kind)[0], seed=2, **tree(kind)[1] | dataset.parameters)
    assert all(ids(getattr(again, part)) == ids(getattr(dataset, part)) for part in PARTS)


@pytest.mark.parametrize("kind", ["glasses", "pascal", "pet", "sixray"])
def test_a_listed_image_that_is_not_on_disk_is_named_and_left_out(kind, tmp_path, caplog):
    expected = {sample.id: sample for sample in writer(kind)(tmp_path)}
    given = {"root": tmp_path, "size": SIZE, "splits": (0, 0, 1), **WHOLE.get(kind, {})}
    before = load(kind, **given).test
    note = before.meta[0]
    next(tmp_path.rglob(Path(note["file"]).name)).unlink()
    gone = {one["id"] for one in before.meta if one["file"] == note["file"]}
    assert set(load(kind, **given).test.ids) == set(before.ids) - gone
    assert f"{expected[note['id']].label} ({note['id']})" in caplog.text
    assert "they are left out" in caplog.text
    refused(MissingDataError, note["id"], lambda: load(kind, **given, missing="error"))
    refused(ValueError, "missing=", lambda: load(kind, **given, missing="no"))


@every_set
def test_an_empty_folder_says_how_to_get_the_set(kind, tmp_path):
    name = NAMES[kind].format(root=tmp_path)
    with pytest.raises(MissingDataError, match=str(tmp_path)):
        load(name, **({} if ":" in name else {"root": tmp_path}))


@every_set
def test_a_parameter_that_is_not_taken_is_refused(kind, opened):
    with pytest.raises(TypeError, match="did you mean 'size'"):
        opened(kind, siez=3)


@every_set
def test_preparing_twice_changes_nothing(kind, opened, tree):
    name, given, _ = tree(kind)
    target = DATASETS.resolve(name)
    before = ids(opened(kind).test)
    for _ in range(2):
        target.prepare(target.find(given.get("root")), workers=2)
    assert ids(opened(kind).test) == before
