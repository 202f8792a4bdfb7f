"""Import of scripts in ``benchmarks/``, which is not part of an installation."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load_benchmark(name):
    """Import ``benchmarks/NAME.py``; skip the tests of the calling module if the folder does not exist."""
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not part of an installation", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
