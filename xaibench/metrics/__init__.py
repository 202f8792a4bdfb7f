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

from typing import TYPE_CHECKING, Any

from xaibench.core.lazy_names import load_public_name
from xaibench.metrics.table import METRICS

if TYPE_CHECKING:
    from xaibench.metrics.correlations import MetricAgreement, agreement
    from xaibench.metrics.localization.chance_corrected import chance_level, skill_scores
    from xaibench.metrics.localization.emd import TransportError
    from xaibench.metrics.localization.mass_shares import Shares, shares
    from xaibench.metrics.localization.part_shares import part_shares
    from xaibench.metrics.localization.shapley_error import shapley_error, sign_agreement
    from xaibench.metrics.registered_functions import *  # noqa: F403  (written by docs/generate/typing_stubs.py)
    from xaibench.metrics.undefined import undefined_reasons

__all__ = [
    "METRICS",
    "MetricAgreement",
    "Shares",
    "TransportError",
    "agreement",
    "chance_level",
    "part_shares",
    "shapley_error",
    "shares",
    "sign_agreement",
    "skill_scores",
    "undefined_reasons",
]
__all__ += METRICS

#: Public names other than metrics -> their module.
_HOME = {
    "MetricAgreement": "correlations",
    "Shares": "localization.mass_shares",
    "TransportError": "localization.emd",
    "agreement": "correlations",
    "chance_level": "localization.chance_corrected",
    "part_shares": "localization.part_shares",
    "shapley_error": "localization.shapley_error",
    "shares": "localization.mass_shares",
    "sign_agreement": "localization.shapley_error",
    "skill_scores": "localization.chance_corrected",
    "undefined_reasons": "undefined",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, because metrics that call a model load torch.
    return METRICS.resolve(name) if name in METRICS else load_public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
