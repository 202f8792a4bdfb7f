"""Damaged files in the tree of every data set: what is read is read, and what is not is an error that names a file.

python tests/fuzz.py data --minutes 60 runs it longer.
"""

import importlib
import random
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from part_cases import DatasetCase, case

from xaibench.data import DATASETS, load
from xaibench.data.annotated import AnnotatedSet, DataFileError, MissingDataError

NAMES = {
    **{name: name for name in DATASETS if isinstance(DATASETS.resolve(name), AnnotatedSet)},
    "published": "published:{root}",
    "folder": "folder:{root}",
    "photographs": "photographs:{root}",
}


def flip(rng, content):
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 8, 64])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(rng, content):
    return content[: rng.randrange(len(content))]


def grow(rng, content):
    return content + rng.randbytes(rng.choice([1, 1000]))


def forge(rng, content):
    """Large or negative numbers where a header may state a size."""
    damaged, at = bytearray(content), rng.randrange(min(len(content), 400))
    damaged[at : at + 4] = rng.choice(
        [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"-999"]
    )
    return bytes(damaged)


@pytest.fixture(params=NAMES)
def tree(request, tmp_path):
    """The files of a set as its own case writes them; each example damages one and puts it back."""
    kind = request.param
    write = (
        case(DATASETS, kind, DatasetCase()).write
        if kind in DATASETS
        else importlib.import_module(f"generators.{kind}").write
    )
    write(tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size)
    parameters = {"splits": (0.0, 0.0, 1.0)} | ({} if ":" in NAMES[kind] else {"root": tmp_path})
    return files, lambda: load(NAMES[kind].format(root=tmp_path), size=32, **parameters).test


@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_damaged_files_are_read_or_named(tree, seed):
    files, read = tree
    rng = random.Random(seed)
    file, damage = rng.choice(files), rng.choice([flip, cut, grow, forge])
    content = file.read_bytes()
    file.write_bytes(damage(rng, content))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = read()
            for number in range(len(samples)):
                samples[number]
    except (DataFileError, MissingDataError):
        pass
    except Exception as error:
        if isinstance(error, ValueError) and "class" in str(error):  # that has too few samples now
            return
        place = f"{file.name}, {damage.__name__}"
        raise AssertionError(f"{place}: {error!r}; read files inside wrap_file_errors() or opened_image()") from error
    finally:
        file.write_bytes(content)
