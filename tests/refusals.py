"""What is refused: the type of the error, and the parameter, file or value that its message names."""

import re
import tracemalloc

import pytest


def refused(error, name, call, *arguments):
    """Require that ``call(*arguments)`` raises ``error``, and that its message has ``name``."""
    with pytest.raises(error, match=re.escape(name)):
        call(*arguments)


def refused_early(error, name, call, *arguments):
    """Require in addition that less than 20 MB of memory are asked for."""
    tracemalloc.start()
    refused(error, name, call, *arguments)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6
