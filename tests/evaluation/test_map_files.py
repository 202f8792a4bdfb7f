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


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.npz", {"ids": IDS[:2], "maps": MAPS[:2]}),  # a map is missing
        ("m.npz", {"ids": [*IDS, "9"], "maps": np.zeros((4, 4, 5))}),  # an unknown sample
        ("m.npz", {"ids": ["7", "7", "4"], "maps": MAPS}),
        ("m.npz", {"ids": IDS, "maps": MAPS[:2]}),
        ("m.npz", {"7": MAPS[0], "2": MAPS[1], "4": MAPS[2, :2]}),
        ("m.npz", {"ids": IDS, "maps": np.array([{}, {}, {}])}),  # pickled
        ("m.npz", {"maps": MAPS}),
        ("m.npy", MAPS[:2]),
        ("m.npz", pickle.dumps(Bomb())),
        ("gone.npz", None),
        ("empty.npz", b""),
        ("cut.npz", b"PK\x03\x04..."),
        ("m.safetensors", b"text"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **{key: np.asarray(value) for key, value in content.items()})
    elif content is not None:
        np.save(path, content)
    with pytest.raises(MapFileError, match=name):
        read_maps(path, IDS)
