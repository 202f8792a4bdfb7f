"""From a suite to a run folder: plan the jobs, run those whose results are not there, gather the tables.

``run`` is the whole of it; the steps are :func:`load_suite`, :func:`make_plan`, an engine (``serial``, ``processes``,
``ray``), and :func:`collect`. ``estimate`` says beforehand what a run will cost.
"""

from xaibench.runner.cost import Estimate, estimate
from xaibench.runner.run import ENGINES, ArgumentError, Progress, Run, run
from xaibench.runner.samples import DataChangedError
from xaibench.runner.store import Store, StoreError
from xaibench.runner.suite import Suite, SuiteError
from xaibench.runner.suite_file import SUITES, load_suite

__all__ = [
    "ENGINES",
    "SUITES",
    "ArgumentError",
    "DataChangedError",
    "Estimate",
    "Progress",
    "Run",
    "Store",
    "StoreError",
    "Suite",
    "SuiteError",
    "estimate",
    "load_suite",
    "run",
]
