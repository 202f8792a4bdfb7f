"""The run folders of the tests of the report."""

from report.conftest import *  # noqa: F403
