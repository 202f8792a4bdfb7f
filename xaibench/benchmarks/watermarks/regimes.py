"""The training regimes of the watermark sets.

Clark, Oliveira, Wilming, Haufe: Feature salience, not task-informativeness, drives machine learning model explanations,
2026, arXiv 2602.09238. The defaults of their code are kept: a white watermark at the top of the image with opacity 0.8;
in training it is on 20 % of the images of the first class and 80 % of the second (*confounder*), on half of each
class (*suppressor*), or on none (*none*); 70, 15 and 15 % of the images are for training, validation and test.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

Regime: TypeAlias = Literal["confounder", "suppressor", "none"]
REGIMES: tuple[Regime, ...] = get_args(Regime)

#: Share of the training images of each of the two classes that have the watermark.
PREVALENCE: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"confounder": (0.2, 0.8), "suppressor": (0.5, 0.5), "none": (0.0, 0.0)}
)
CITATION = (
    "Clark, Oliveira, Wilming, Haufe: Feature salience, not task-informativeness, drives machine learning model "
    "explanations, 2026, arXiv 2602.09238"
)
#: Endings of the names of the two forms of a test image.
WATERMARKED, PLAIN = "watermarked", "plain"
