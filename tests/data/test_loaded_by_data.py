"""What ``xaibench.data`` loads."""

from fresh_process import run_fresh


def test_reading_and_writing_files_costs_nothing_until_it_is_asked_for():
    code = "import sys, xaibench.data; print(sorted({'pyarrow', 'pandas', 'PIL.Image'} & sys.modules.keys()))"
    assert run_fresh(code).stdout == "[]\n"
