"""From a suite to a run folder: plan the jobs, run those whose results are not there, gather the tables.

``run`` is the whole of it; the steps are :func:`load_suite`, :func:`make_plan`, an engine (``serial``, ``processes``,
``ray``), and :func:`collect`. ``estimate`` says beforehand what a run will cost.
"""

from xaibench.runner.costs.estimates import Estimate, estimate
from xaibench.runner.request import RunRequest
from xaibench.runner.running import ENGINES, ArgumentError, Progress, Run, run
from xaibench.runner.stages.sample_data import DataChangedError
from xaibench.runner.store.result_store import Store, StoreError
from xaibench.runner.suites.suite_files import SUITES, load_suite
from xaibench.runner.suites.suite_tables import Suite, SuiteError

__all__ = [
    "ENGINES",
    "SUITES",
    "ArgumentError",
    "DataChangedError",
    "Estimate",
    "Progress",
    "Run",
    "RunRequest",
    "Store",
    "StoreError",
    "Suite",
    "SuiteError",
    "estimate",
    "load_suite",
    "run",
]
