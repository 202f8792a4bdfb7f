"""What ``xaibench.data`` loads."""

import subprocess
import sys


def test_reading_and_writing_files_costs_nothing_until_it_is_asked_for():
    code = "import sys, xaibench.data; print(sorted({'pyarrow', 'pandas', 'PIL.Image'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
