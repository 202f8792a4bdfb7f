"""What is refused: the type of the error, and the parameter, file or value that its message names."""

import linecache
import re
import traceback
import tracemalloc
from pathlib import Path

import pytest

import xaibench


def refused(error, names, call, *arguments):
    """Require that ``call(*arguments)`` raises ``error`` whose message has ``names``, in order; return it.

    ``names`` is a string, or several that must all be there.
    """
    pattern = "(?s:.*)".join(map(re.escape, [names] if isinstance(names, str) else names))
    with pytest.raises(error, match=pattern or None) as found:
        call(*arguments)
    return found.value


def refused_early(error, name, call, *arguments):
    """Require in addition that less than 20 MB of memory are asked for."""
    tracemalloc.start()
    refused(error, name, call, *arguments)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6


def is_refusal(error):
    """Return whether an error is a refusal: of its kind, and raised by a statement of the library."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_raised = linecache.getline(last.filename, last.lineno).lstrip().startswith("raise ")
    is_ours = Path(last.filename).is_relative_to(Path(xaibench.__file__).parent)
    return isinstance(error, ValueError | TypeError) and is_raised and is_ours and len(str(error)) > 20
