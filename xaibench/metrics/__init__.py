"""How right is a saliency map? One score for each sample, ``nan`` where it is undefined.

Conventions, kept by every metric of this package:

- Maps are ``[N, H, W]`` (or ``[H, W]``, a batch of one), numpy or torch; masks are of the same shape, ``True`` =
  important. Channels are reduced, maps resized and thresholded by the caller, never in here. Where a metric looks at
  the magnitude of a map or norms it to a sum of one, its docstring says so.
- A sample is scored by itself: neither its neighbours in the batch nor the size of the batch change a bit of it.
- ``reduction="none"`` gives the ``[N]`` scores, float64, in the kind of the maps (numpy, or torch on their device);
  ``reduction="mean"`` gives the mean over the defined scores as a Python float, ``nan`` if none is defined.
- Undefined is ``nan``; :func:`undefined_reasons` says why. What is no map at all (``nan`` or infinity in it, a shape
  that does not fit, a mask that is not binary) is an error.
"""

from typing import TYPE_CHECKING, Any

from xaibench.core.public_names import public_name
from xaibench.metrics.metric_table import METRICS

if TYPE_CHECKING:
    from xaibench.metrics.metric_agreement import Agreement, agreement
    from xaibench.metrics.registered_functions import *  # noqa: F403  (written by docs/generate/typing_stubs.py)
    from xaibench.metrics.shared.undefined_scores import undefined_reasons
    from xaibench.metrics.truth.against_chance import chance_level, skill_scores
    from xaibench.metrics.truth.earth_mover import TransportError
    from xaibench.metrics.use.known_values import shapley_error, sign_agreement
    from xaibench.metrics.use.relied_shares import Shares, shares

__all__ = [
    "METRICS",
    "Agreement",
    "Shares",
    "TransportError",
    "agreement",
    "chance_level",
    "shapley_error",
    "shares",
    "sign_agreement",
    "skill_scores",
    "undefined_reasons",
]
__all__ += METRICS

#: Public, but no metric -> the module that has it.
_HOME = {
    "Agreement": "metric_agreement",
    "Shares": "use.relied_shares",
    "TransportError": "truth.earth_mover",
    "agreement": "metric_agreement",
    "chance_level": "truth.against_chance",
    "shapley_error": "use.known_values",
    "shares": "use.relied_shares",
    "sign_agreement": "use.known_values",
    "skill_scores": "truth.against_chance",
    "undefined_reasons": "shared.undefined_scores",
}


def __getattr__(name: str) -> Any:
    # On first use, so that names cost nothing: the metrics that ask a model load torch, the others do without.
    return METRICS.resolve(name) if name in METRICS else public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
