"""Imports that the fork server does once, so that worker processes start with them.

The packages that explainers and metrics import at their first call are among them: two seconds for each worker.
"""

import gc

from xaibench.core.process_settings import collect_rarely

with collect_rarely():
    import pandas  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch.fx.experimental.symbolic_shapes  # noqa: F401 (torch.autograd imports it at its first call)

    import xaibench.data
    import xaibench.explainers.captum_adapter
    import xaibench.metrics
    import xaibench.models
    import xaibench.runner.stages.execute  # noqa: F401
gc.freeze()  # the garbage collector of workers skips the imported objects
