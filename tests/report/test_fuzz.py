"""Damaged files in a run folder: it is read, or the error names the file; what is read is summarized.

python tests/fuzz.py report --minutes 60 runs it longer.
"""

import random
import shutil
import warnings

import pytest
from file_damage import damage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xaibench.runfolder.schema import RunFolderError
from xaibench.scores.results import read_run
from xaibench.scores.summary import summarize


@pytest.fixture(scope="module")
def folder(few_cells_run, tmp_path_factory):
    return shutil.copytree(few_cells_run, tmp_path_factory.mktemp("damaged") / "run")


@given(seed=st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_run_folder_is_read_or_named(folder, seed):
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)
    file, content, done = damage(random.Random(seed), files)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = read_run(folder)
            list(run.pictures)
            summarize(run)
    except Exception as error:
        if not isinstance(error, RunFolderError) or file.name not in str(error):
            raise AssertionError(f"{done}: {error!r}") from error
    finally:
        file.write_bytes(content)
