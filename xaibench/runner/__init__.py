"""Execution of suites: plan the jobs, run those without stored results, and collect the tables of the run folder.

``run`` does all of it. The steps are :func:`load_suite`, :func:`make_plan`, an engine (``serial``, ``processes``,
``ray``), and :func:`collect`. ``estimate`` estimates the cost of a run before it starts.
"""

from xaibench.runner.cost_estimate import Estimate, estimate
from xaibench.runner.request import RunRequest
from xaibench.runner.run import ENGINES, ArgumentError, Run, RunProgress, run
from xaibench.runner.stages.samples import DataChangedError
from xaibench.runner.store import Store, StoreError
from xaibench.runner.suites.parsing import SUITES, load_suite
from xaibench.runner.suites.schema import Suite, SuiteError

__all__ = [
    "ENGINES",
    "SUITES",
    "ArgumentError",
    "DataChangedError",
    "Estimate",
    "Run",
    "RunProgress",
    "RunRequest",
    "Store",
    "StoreError",
    "Suite",
    "SuiteError",
    "estimate",
    "load_suite",
    "run",
]
