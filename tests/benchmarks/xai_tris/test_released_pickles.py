import contextlib
import io
import os
import pickle
import struct
import sys
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.benchmarks import read_released, write_released
from xaibench.benchmarks.xai_tris.released_pickles import DataRecord, _fake_module, released_key
from xaibench.data import Split, load

SPLITS = ("train", "val", "test")


class Calls:
    """Unpickles by calling ``function(*arguments)``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def dump(path, content, protocol=4):
    with open(path, "wb") as stream, _fake_module():
        pickle.dump(content, stream, protocol=protocol)
    return path


def record(side=8, count=6, **changed):
    """As the authors' own code makes it: half-precision tensors, smoothed float masks with negative values."""
    rng = np.random.default_rng(0)
    fields = {}
    for part in SPLITS:
        fields[f"x_{part}"] = torch.from_numpy(rng.uniform(-1, 1, (count, side * side))).to(torch.float16)
        fields[f"y_{part}"] = np.arange(count) % 2
        masks = np.zeros((count, side * side))
        masks[:, 3:7] = [-1.0, 0.5, 0.04, -0.06]
        fields[f"masks_{part}"] = masks
    return DataRecord(**{**fields, **changed})


@pytest.mark.parametrize("scenario", ["lin", "mult", "rigid", "xor"])
def test_what_is_written_is_read_again(tmp_path, scenario):
    dataset = load(f"xai-tris/{scenario}-corr-8x8", n_samples=200)
    key = released_key(scenario, "corr", 8, 0.2)
    write_released(tmp_path / "set.pkl", {key: dataset})
    read = read_released(tmp_path / "set.pkl")
    assert list(read) == [key]
    for name in SPLITS:
        ours, theirs = getattr(dataset, name), getattr(read[key], name)
        torch.testing.assert_close(theirs.images, ours.images.half().float(), atol=0, rtol=0)
        assert torch.equal(theirs.masks, ours.masks)
        assert torch.equal(theirs.targets, ours.targets)
    assert read[key].info.classes == dataset.info.classes
    assert read[key].parameters == {"alpha": 0.2}


def test_a_written_file_is_what_the_authors_code_expects(tmp_path):
    write_released(tmp_path / "set.pkl", {"a": load("xai-tris/lin-white-8x8", n_samples=100)})
    assert "common" not in sys.modules
    with open(tmp_path / "set.pkl", "rb") as stream, _fake_module():
        content = pickle.load(stream)
    assert type(content["a"]).__module__ == "common"
    assert content["a"].x_train.dtype == torch.float16
    assert content["a"].x_train.shape == content["a"].masks_train.shape == (80, 64)
    assert content["a"].masks_train.dtype == np.float64


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_masks_are_the_support_of_the_smoothed_pattern(tmp_path, protocol):
    dataset = read_released(dump(tmp_path / "set.pkl", {"any name": record()}, protocol))["any name"]
    assert dataset.test.images.shape == (6, 1, 8, 8)
    expected = torch.zeros(64, dtype=torch.bool)
    expected[[3, 4, 6]] = True  # 0.04 is cut; negative values count by their magnitude
    assert torch.equal(dataset.test.masks, expected.reshape(1, 8, 8).expand(6, 8, 8))
    assert dataset.test.targets.tolist() == [0, 1, 0, 1, 0, 1]


def test_other_layouts_of_the_same_numbers(tmp_path):
    plain = record()
    changed = plain._replace(
        x_train=torch.from_numpy(plain.x_train.numpy().T.copy()).T,  # strided
        x_val=plain.x_val.numpy(),
        masks_train=np.asfortranarray(plain.masks_train),
        masks_val=plain.masks_val.astype(">f4"),
        y_test=torch.from_numpy(plain.y_test),
    )
    first, second = (read_released(dump(tmp_path / "set.pkl", {"k": value}))["k"] for value in (plain, changed))
    for name in SPLITS:
        for part in ("images", "masks", "targets"):
            assert torch.equal(getattr(getattr(first, name), part), getattr(getattr(second, name), part))


def stored(thing, new_format):
    raw = io.BytesIO()
    torch.save(thing, raw, _use_new_zipfile_serialization=new_format)
    return Calls(torch.storage._load_from_bytes, raw.getvalue())


@pytest.mark.parametrize(
    "evil",
    [
        Calls(os.system, "touch {}"),
        Calls(eval, "open('{}', 'w')"),
        Calls(exec, "open('{}', 'w')"),
        Calls(getattr, Calls(__import__, "os"), "system"),
        Calls(Calls, os.system, "touch {}"),
        np.array([Calls(os.system, "touch {}")], dtype=object),
        torch.nn.Linear(1, 1),
        np.float64(1),
        np.array(["text"]),
        Calls(torch.load, "{}"),
        Calls(torch._utils._rebuild_tensor_v2, "{}", 0, (1,), (1,), False, {}),
        Calls(torch._utils._rebuild_tensor_v2, Calls(os.system, "touch {}"), 0, (1,), (1,), False, {}),
        Calls(np.zeros(0).__reduce_ex__(5)[0], "{}", "f8", (1,), "C"),
    ],
)
@pytest.mark.parametrize("where", ["alone", "in a record"])
def test_other_names_are_refused(tmp_path, evil, where):
    trace = tmp_path / "trace"

    def aimed(value):
        if isinstance(value, Calls):
            return Calls(value.call[0], *map(aimed, value.call[1]))
        return value.format(trace) if isinstance(value, str) else value

    content = aimed(evil) if where == "alone" else {"k": record(y_val=aimed(evil))}
    refused(ValueError, "set.pkl", lambda: read_released(dump(tmp_path / "set.pkl", content)))
    assert not trace.exists()


@pytest.mark.parametrize("new_format", [True, False])
def test_a_storage_that_hides_a_call_is_refused(tmp_path, new_format):
    trace = tmp_path / "trace"
    hidden = stored(Calls(os.system, f"touch {trace}"), new_format)
    refused(ValueError, "refused", lambda: read_released(dump(tmp_path / "set.pkl", {"k": record(x_val=hidden)})))
    assert not trace.exists()


def _body(value):
    """The opcodes that push ``value``, without a frame and a stop."""
    return pickle.dumps(value, 3)[2:-1]


@pytest.mark.parametrize("name", ["common DataRecord", "numpy ndarray", "torch._utils _rebuild_tensor_v2"])
@pytest.mark.parametrize("state", [(None, {"_fields": ("x_val",)}), {"_make": 1}, (None, {"_make": 1})])
def test_a_refused_file_changes_nothing_of_this_process(tmp_path, name, state):
    path = tmp_path / "set.pkl"
    head = b"\x80\x03c" + b"\n".join(name.encode().split()) + b"\n"
    path.write_bytes(head + _body(state) + b"b.")
    fields, swapped = DataRecord._fields, DataRecord.x_train
    refused(ValueError, "set.pkl", lambda: read_released(path))
    assert (DataRecord._fields, DataRecord.x_train) == (fields, swapped)
    assert "_make" not in vars(DataRecord) or callable(DataRecord._make)


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 32) + b".",  # a bytearray of 4 GiB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 32) + b".",  # bytes
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 32) + b".",  # a frame
        b"\x80\x04]r" + struct.pack("<I", (1 << 32) - 1) + b".",  # a memo of as many places
    ],
)
def test_what_a_file_claims_to_hold_is_not_made_room_for(tmp_path, program):
    (tmp_path / "set.pkl").write_bytes(program)
    tracemalloc.start()
    try:
        refused(ValueError, "set.pkl", lambda: read_released(tmp_path / "set.pkl"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_few_numbers_are_not_made_many(tmp_path):
    """A size beyond its storage, a stride of zero, one array named often, a storage that claims more than it holds."""
    with warnings.catch_warnings(action="ignore"):
        storage = stored(torch.zeros(64).storage(), new_format=False)
        raw = storage.call[1][0]
    for size, stride in (((65,), (1,)), ((1 << 30, 1), (0, 1))):
        tensor = Calls(torch._utils._rebuild_tensor_v2, storage, 0, size, stride, False, {})
        refused(ValueError, "storage", read_released, dump(tmp_path / "set.pkl", {"k": record(x_val=tensor)}))
    same = np.zeros((6, 64))
    again = {f"k{i}": DataRecord(*[same] * 9) for i in range(99)}
    refused(ValueError, " bytes but ", lambda: read_released(dump(tmp_path / "set.pkl", again)))
    lying = Calls(torch.storage._load_from_bytes, raw.replace(b"K@", b"J\x00\x00\x00\x7f"))
    tensor = Calls(torch._utils._rebuild_tensor_v2, lying, 0, (6, 8), (8, 1), False, {})
    refused(ValueError, "2130706432", lambda: read_released(dump(tmp_path / "set.pkl", {"k": record(x_val=tensor)})))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_ends_in_the_one_error(tmp_path, sound, flips):
    content = bytearray(sound)
    for place, bit in flips:
        content[min(len(content) - 1, int(place * len(content)))] ^= 1 << bit
    (tmp_path / "set.pkl").write_bytes(content)
    with contextlib.suppress(ValueError):
        read_released(tmp_path / "set.pkl")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return dump(tmp_path_factory.mktemp("sound") / "set.pkl", {"k": record(side=3)}).read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "DataRecord"),
        ({"k": {"x_train": 1}}, "DataRecord"),
        ({"k": record(x_val="text")}, "x_val"),
        ({"k": record(y_val=np.zeros(5))}, "k, val"),
        ({"k": record(x_val=torch.zeros(6, 60))}, "square"),
    ],
)
def test_other_content(tmp_path, content, message):
    refused(ValueError, message, lambda: read_released(dump(tmp_path / "set.pkl", content)))


def test_only_gray_images_are_written(tmp_path):
    split = Split(torch.zeros(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.bool), torch.zeros(2, dtype=torch.int64))
    dataset = replace(load("xai-tris/lin-white-8x8", n_samples=100), train=split)
    refused(ValueError, "k:", lambda: write_released(tmp_path / "set.pkl", {"k": dataset}))


def test_damaged_files(tmp_path):
    for content in (b"", b"hello world", b"\x80\x04}"):
        (tmp_path / "set.pkl").write_bytes(content)
        refused(ValueError, "set.pkl", read_released, tmp_path / "set.pkl")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "set.pkl"
    path.write_bytes(b"old")

    def half_a_file(content, stream, protocol):
        stream.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(pickle, "dump", half_a_file)
    with pytest.raises(OSError, match="No space left"):
        write_released(path, {"k": load("xai-tris/lin-white-8x8", n_samples=100)})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (("lin", "white", 8, 0.18), "linear_1d1p_0.18_white"),
        (("mult", "imagenet", 64, 0.3), "multiplicative_8d8p_0.3_imagenet"),
        (("rigid", "corr", 64, 0.375), "translations_rotations_8d4p_0.375_correlated"),
        (("xor", "corr", 8, 0.15), "xor_1d1p_0.15_correlated"),
    ],
)
def test_keys(given, key):
    assert released_key(*given) == key
