"""The vocabulary of shapes, and the small types that travel between the parts.

Shapes, everywhere in the library:

=========  ==============================  ==========================================================
name       shape and type                  meaning
=========  ==============================  ==========================================================
images     ``[N, C, H, W]`` float32        what the classifier sees
masks      ``[N, H, W]`` bool              ground truth; ``True`` = important
targets    ``[N]`` int64                   class index of each sample
maps       ``[N, H, W]`` float, signed     attribution; bigger magnitude = more important
scores     ``[N]`` float                   one number a sample; ``nan`` where it is undefined
=========  ==============================  ==========================================================

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.floating[Any]] | NDArray[np.bool_] | NDArray[np.integer[Any]] | torch.Tensor

#: How the scores of the samples become the result: their mean over the defined ones, or one score a sample.
Reduction: TypeAlias = Literal["mean", "none"]

#: What of the classifier an explainer explains: the softmax probability of the target, its logit, or the logit minus
#: the log-sum-exp of the others (for two classes: the difference of the logits).
Output: TypeAlias = Literal["probability", "logit", "margin"]

#: How numbers are kept and multiplied. ``"float64"`` and ``"float32"``: both so. ``"tf32"``: kept in float32 and
#: multiplied with ten bits of mantissa where the machine can (GPUs since Ampere; elsewhere the same as float32).
#: ``"bfloat16"``: kept in float32, convolutions and products in bfloat16 by ``torch.autocast``.
Precision: TypeAlias = Literal["float32", "tf32", "bfloat16", "float64"]
