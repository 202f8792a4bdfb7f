"""What is refused: the type of the error, and the parameter, file or value that its message names."""

import re

import pytest


def refused(error, name, call, *arguments):
    """Require that ``call(*arguments)`` raises ``error``, and that its message has ``name``."""
    with pytest.raises(error, match=re.escape(name)):
        call(*arguments)
