"""Metrics of saliency maps: one score per sample, NaN where it is undefined.

Conventions of all metrics in this package:

- Maps are ``[N, H, W]`` (or ``[H, W]``, a batch of one), numpy or torch. Masks have the same shape; ``True`` =
  important. The caller reduces channels, resizes and thresholds maps; the metrics do not. If a metric uses the
  magnitude of a map or normalizes it to a sum of one, its docstring says so.
- Samples are scored independently: a score does not depend on the other samples of the batch or on its size.
- ``reduction="none"`` returns the ``[N]`` scores, float64, in the type of the maps (numpy, or torch on their device).
  ``reduction="mean"`` returns the mean of the defined scores as a Python float, NaN if none is defined.
- Undefined scores are NaN; :func:`undefined_reasons` returns the reasons. Invalid input (NaN or infinity in a map,
  shapes that do not match, a mask that is not binary) raises an error.
"""

from typing import TYPE_CHECKING

import lazy_loader

from xaibench.metrics.registered import METRICS as METRICS
from xaibench.metrics.registered import name_aliases as _name_aliases

if TYPE_CHECKING:
    from xaibench.metrics.correlations import MetricAgreement as MetricAgreement
    from xaibench.metrics.correlations import agreement as agreement
    from xaibench.metrics.localization.chance import chance_level as chance_level
    from xaibench.metrics.localization.chance import skill_scores as skill_scores
    from xaibench.metrics.localization.emd import TransportError as TransportError
    from xaibench.metrics.localization.shapley_error import shapley_error as shapley_error
    from xaibench.metrics.localization.shapley_error import sign_agreement as sign_agreement
    from xaibench.metrics.localization.shares import Shares as Shares
    from xaibench.metrics.localization.shares import part_shares as part_shares
    from xaibench.metrics.localization.shares import shares as shares
    from xaibench.metrics.registered_functions import *  # noqa: F403  (written by docs/generate)
    from xaibench.metrics.undefined import undefined_reasons as undefined_reasons

_HOME = METRICS.names_by_module(__name__)
for _module, _names in {
    "correlations": ["MetricAgreement", "agreement"],
    "localization.chance": ["chance_level", "skill_scores"],
    "localization.emd": ["TransportError"],
    "localization.shapley_error": ["shapley_error", "sign_agreement"],
    "localization.shares": ["Shares", "part_shares", "shares"],
    "table": ["METRICS"],
    "undefined": ["undefined_reasons"],
}.items():
    _HOME[_module] = [*_HOME.get(_module, []), *_names]
# Imported on first use, because metrics that call a model load torch.
_load, __dir__, __all__ = lazy_loader.attach(__name__, None, _HOME)
__getattr__ = _name_aliases(_load, __name__)
