import pickle

import numpy as np
import pytest
from generators.painted import Painted
from safetensors.numpy import save_file

from xaibench.data.annotated import DiskSplit
from xaibench.evaluation import MapFileError, read_maps, write_template

IDS = ["7", "2", "4"]
MAPS = np.random.default_rng(0).random((3, 4, 5), dtype=np.float32)


@pytest.fixture
def split():
    return DiskSplit(Painted([0, 1] * 5), np.array([7, 2, 4]), size=6)


def save(path, kind):
    turned = [2, 0, 1]
    if kind == "npz":
        np.savez(path / "m.npz", ids=np.array(IDS)[turned], maps=MAPS[turned])
        return path / "m.npz"
    if kind == "npz by id":
        np.savez(path / "m.npz", **{IDS[i]: MAPS[i] for i in turned})
        return path / "m.npz"
    if kind == "safetensors":
        save_file({IDS[i]: MAPS[i] for i in turned}, path / "m.safetensors")
        return path / "m.safetensors"
    np.save(path / "m.npy", MAPS)
    return path / "m.npy"


@pytest.mark.parametrize("kind", ["npz", "npz by id", "safetensors", "npy"])
def test_maps_come_in_the_order_of_the_samples(tmp_path, kind):
    assert np.array_equal(read_maps(save(tmp_path, kind), IDS), MAPS)


def test_a_template_has_the_ids_and_is_read_again(tmp_path, split):
    write_template(tmp_path / "t.npz", split)
    with np.load(tmp_path / "t.npz") as template:
        assert template["ids"].tolist() == IDS == list(split.ids)
        assert template["files"].tolist() == ["7.png", "2.png", "4.png"]
        assert template["targets"].tolist() == [1, 0, 0]
        content = dict(template)
    with pytest.raises(MapFileError, match=r"t\.npz: all 3 maps are zero everywhere, as in an unchanged template"):
        read_maps(tmp_path / "t.npz", IDS)
    content["maps"][1, 2, 3] = 1  # some zero maps are allowed; evaluate counts them
    np.savez(tmp_path / "t.npz", **content)
    assert np.array_equal(read_maps(tmp_path / "t.npz", IDS), content["maps"])
    with pytest.raises(MapFileError, match=r"a template is an \.npz file"):
        write_template(tmp_path / "t.npy", split)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"ids": IDS[:2], "maps": MAPS[:2]}, r"1 of 3 samples have no map \(4\)"),
        ({"ids": [*IDS, "9"], "maps": np.zeros((4, 4, 5))}, r"1 maps have unknown sample ids \(9\)"),
        ({"ids": ["7", "7", "4"], "maps": MAPS}, "the ids 7 occur more than once"),
        ({"ids": IDS, "maps": MAPS[:2]}, "holds 3 ids and 2 maps"),
        ({"7": MAPS[0], "2": MAPS[1], "4": MAPS[2, :2]}, r"all of one size, got \[2, 5\], \[4, 5\]"),
        ({"ids": IDS, "maps": np.array([{}, {}, {}])}, r"m\.npz cannot be read \(Object arrays"),
        ({"maps": MAPS}, "holds maps; expected both 'ids' and 'maps'"),
    ],
    ids=["missing", "unknown", "twice", "fewer maps", "sizes", "pickled", "no ids"],
)
def test_what_does_not_fit_is_named(tmp_path, content, message):
    np.savez(tmp_path / "m.npz", **{name: np.asarray(value) for name, value in content.items()})
    with pytest.raises(MapFileError, match=message):
        read_maps(tmp_path / "m.npz", IDS)


def test_an_npy_of_another_length(tmp_path):
    np.save(tmp_path / "m.npy", MAPS[:2])
    with pytest.raises(MapFileError, match="holds an array \\[2, 4, 5\\]; expected maps \\[3, H, W\\]"):
        read_maps(tmp_path / "m.npy", IDS)


def test_a_pickle_is_never_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('executed')",))

    (tmp_path / "m.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(MapFileError, match=r"m\.npz is not a numpy file; write it with"):
        read_maps(tmp_path / "m.npz", IDS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "there is no such file. Command for a template: xaibench score"),
        ("empty.npz", b"", "is not a numpy file"),
        ("cut.npz", b"PK\x03\x04...", "cut.npz cannot be read .*; expected maps as .npz, .npy or .safetensors"),
        ("m.safetensors", b"text", "m.safetensors cannot be read .*header"),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(MapFileError, match=message):
        read_maps(tmp_path / name, IDS)
