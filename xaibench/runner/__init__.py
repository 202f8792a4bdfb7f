"""Run suites: plan the jobs, run those without results, and collect the tables of the run folder.

:func:`run` does all of it. Its steps are :func:`load_suite`, :func:`make_plan`, an engine (``serial``, ``processes``,
``ray``) and :func:`collect`. :func:`estimate` predicts the cost of a run.
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
