"""xaibench: is this saliency map right?

The public names are loaded on first use (PEP 562), so that ``import xaibench`` stays light: it loads neither torch nor
captum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

from xaibench._version import __version__ as __version__
from xaibench.metrics.registered import METRICS as _METRICS
from xaibench.metrics.registered import name_aliases as _name_aliases

if TYPE_CHECKING:
    from xaibench import benchmarks as benchmarks
    from xaibench import data as data
    from xaibench import explainers as explainers
    from xaibench import hub as hub
    from xaibench import leaderboard as leaderboard
    from xaibench import metrics as metrics
    from xaibench import models as models
    from xaibench import plots as plots
    from xaibench import report as report
    from xaibench import runner as runner
    from xaibench.auditing import audit as audit
    from xaibench.data import load as load
    from xaibench.data import loading as loading
    from xaibench.evaluation import evaluate as evaluate
    from xaibench.explainers import explain as explain
    from xaibench.explainers import reliance as reliance
    from xaibench.meta_evaluation import meta_evaluate as meta_evaluate
    from xaibench.metrics import shares as shares
    from xaibench.metrics.registered_functions import *  # noqa: F403  (written by docs/generate)
    from xaibench.network.contract import unchecked_networks as unchecked_networks
    from xaibench.plots import show as show
    from xaibench.runner.published_networks import published_network as published_network

_load, __dir__, __all__ = lazy_loader.attach(
    __name__,
    ["benchmarks", "data", "explainers", "hub", "leaderboard", "metrics", "models", "plots", "report", "runner"],
    {
        "_version": ["__version__"],
        "auditing": ["audit"],
        "network.contract": ["unchecked_networks"],
        "data": ["load", "loading"],
        "evaluation": ["evaluate"],
        "explainers": ["explain", "reliance"],
        "meta_evaluation": ["meta_evaluate"],
        "metrics": ["shares", *_METRICS],
        "plots": ["show"],
        "runner.published_networks": ["published_network"],
    },
)
__getattr__ = _name_aliases(_load, __name__)
