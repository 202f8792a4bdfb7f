"""Execution of suites: plan the jobs, run those without stored results, and collect the tables of the run folder.

``run`` does all of it. The steps are :func:`load_suite`, :func:`make_plan`, an engine (``serial``, ``processes``,
``ray``), and :func:`collect`. ``estimate`` estimates the cost of a run before it starts.

The public names are loaded on first use, so that the command line can read :class:`RunRequest` without torch.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from xaibench.runner.cost_estimate import Estimate as Estimate
    from xaibench.runner.cost_estimate import estimate as estimate
    from xaibench.runner.request import RunRequest as RunRequest
    from xaibench.runner.stages.samples import DataChangedError as DataChangedError
    from xaibench.runner.store import Store as Store
    from xaibench.runner.store import StoreError as StoreError
    from xaibench.runner.suite_run import ENGINES as ENGINES
    from xaibench.runner.suite_run import ArgumentError as ArgumentError
    from xaibench.runner.suite_run import Run as Run
    from xaibench.runner.suite_run import RunProgress as RunProgress
    from xaibench.runner.suite_run import run as run
    from xaibench.runner.suites.parsing import SUITES as SUITES
    from xaibench.runner.suites.parsing import load_suite as load_suite
    from xaibench.runner.suites.schema import Suite as Suite
    from xaibench.runner.suites.schema import SuiteError as SuiteError

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cost_estimate": ["Estimate", "estimate"],
        "request": ["RunRequest"],
        "stages.samples": ["DataChangedError"],
        "store": ["Store", "StoreError"],
        "suite_run": ["ENGINES", "ArgumentError", "Run", "RunProgress", "run"],
        "suites.parsing": ["SUITES", "load_suite"],
        "suites.schema": ["Suite", "SuiteError"],
    },
)
