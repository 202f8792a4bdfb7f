"""What ``xaibench.data`` offers, and what it loads for it."""

import subprocess
import sys

import pytest

import xaibench.data


@pytest.mark.parametrize("name", xaibench.data.__all__)
def test_every_public_name_is_there(name):
    assert getattr(xaibench.data, name) is not None
    assert name in dir(xaibench.data)


def test_another_name_is_an_error_of_pythons_own_kind():
    with pytest.raises(AttributeError, match="no attribute 'read_relesed'"):
        xaibench.data.read_relesed  # noqa: B018  # the look-up is what is tested


def test_reading_and_writing_files_costs_nothing_until_it_is_asked_for():
    code = "import sys, xaibench.data; print(sorted({'pyarrow', 'pandas', 'PIL.Image'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
