"""Shapes and small types that are used in the whole library.

=========  ==============================  ==========================================================
name       shape and type                  meaning
=========  ==============================  ==========================================================
images     ``[N, C, H, W]`` float32        input of the classifier
masks      ``[N, H, W]`` bool              ground truth; ``True`` = important
targets    ``[N]`` int64                   class index of each sample
maps       ``[N, H, W]`` float, signed     attribution; larger magnitude = more important
scores     ``[N]`` float                   one number per sample; ``nan`` if undefined
=========  ==============================  ==========================================================

Volumes have one more axis: images ``[N, C, D, H, W]``, masks and maps ``[N, D, H, W]``, with D slices of H rows and W
columns. The *spatial axes* are all axes after the channel. "Pixel" also means voxel.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.floating[Any]] | NDArray[np.bool_] | NDArray[np.integer[Any]] | torch.Tensor"

Floats: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"

#: ``"mean"``: the mean over the defined scores. ``"none"``: one score per sample.
Reduction: TypeAlias = Literal["mean", "none"]

#: Output of the classifier that is explained: the softmax probability of the target, its sigmoid (independent labels),
#: its logit, or the logit minus the log-sum-exp of the others (for two classes: the difference of the logits).
Output: TypeAlias = Literal["probability", "sigmoid", "logit", "margin"]

#: Precision of storage and arithmetic. ``"float64"`` and ``"float32"``: both. ``"tf32"``: stored in float32, multiplied
#: with 10 bits of mantissa on GPUs since Ampere (elsewhere the same as float32). ``"bfloat16"``: stored in float32,
#: convolutions and matrix products in bfloat16 by ``torch.autocast``.
Precision: TypeAlias = Literal["float32", "tf32", "bfloat16", "float64"]

#: End of the reason of a score that is the chance level, because the metric cannot score the map.
SCORED_AS_CHANCE = ": scored as chance"
