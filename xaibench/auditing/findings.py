"""Findings of an audit: images that should be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.auditing.images import Subject
from xaibench.auditing.questions import KnownCauses

#: Width of the border, as a share of each side; and the share of a map's mass in it from which on an image is named.
_BORDER, _MASS_IN_BORDER = 0.1, 0.6
#: Images named per finding.
_MOST = 5


@dataclass(frozen=True)
class Finding:
    """A finding and the images that it is about.

    Attributes:
        key: ``"decisive_regions"``, ``"border"``, ``"disagreement"`` or ``"wrong"``.
        text: What was found, in a sentence.
        images: Indices of the images, most striking first.
    """

    key: str
    text: str
    images: Sequence[int]


def find_suspicious_images(
    subject: Subject,
    maps: Mapping[str, Tensor],
    trusted: Sequence[str],
    agreements: NDArray[np.float64],
    regions: KnownCauses,
) -> list[Finding]:
    """Find images that should be looked at.

    Args:
        subject: Network and images.
        maps: Maps of the images by explainer.
        trusted: The explainers whose maps are used: the supported ones, or all that were not refuted.
        agreements: How similar the maps of an image are, ``[N]``.
        regions: The decisive regions that were found.

    Returns:
        The findings, the most important first.
    """
    findings = [
        _decisive_regions(subject, regions),
        _border(subject, maps, trusted),
        _disagreement(subject, agreements),
    ]
    return [finding for finding in (*findings, _wrong(subject)) if finding is not None]


def _decisive_regions(subject: Subject, regions: KnownCauses) -> Finding | None:
    if not len(regions):
        return None
    location, count = Counter(regions.places).most_common(1)[0]
    share = float(regions.masks[0].double().mean())
    text = (
        f"In {len(regions.places)} of {regions.tried} images, one small region ({share:.0%} of the image) decides the "
        f"answer: without it the network answers otherwise, and in another image it brings the answer about. Most "
        f"often, in {count} images, it is at the {location}. If the object is not there, this is a shortcut, such as a "
        "tag or a logo."
    )
    hits = [
        index for index, image in enumerate(subject.images) if any(torch.equal(image, one) for one in regions.images)
    ]
    return Finding("decisive_regions", text, hits)


def _border(subject: Subject, maps: Mapping[str, Tensor], trusted: Sequence[str]) -> Finding | None:
    if not trusted:
        return None
    sides = subject.images.shape[2:]
    inner = torch.zeros(sides, dtype=torch.bool)
    borders = [max(1, round(_BORDER * side)) if side > 1 else 0 for side in sides]
    inner[tuple(slice(border, side - border) for border, side in zip(borders, sides, strict=True))] = True
    masses = []
    for label in trusted:
        mass = maps[label].double().abs()
        masses.append(1 - (mass * inner).flatten(1).sum(1) / mass.flatten(1).sum(1))
    share = np.nanmedian(torch.stack(masses).numpy(), axis=0)
    chosen = [int(i) for i in np.argsort(-np.nan_to_num(share)) if share[i] >= _MASS_IN_BORDER]
    if not chosen:
        return None
    border = 1 - float(inner.double().mean())
    text = (
        f"In {len(chosen)} images, at least {_MASS_IN_BORDER:.0%} of the importance lies at the border, which is "
        f"{border:.0%} of the image (median over {', '.join(trusted)})."
    )
    return Finding("border", text, chosen[:_MOST])


def _disagreement(subject: Subject, agreements: NDArray[np.float64]) -> Finding | None:
    if np.isnan(agreements).all():
        return None
    order = [int(i) for i in np.argsort(agreements) if not np.isnan(agreements[i])][:_MOST]
    text = (
        f"On these images the explainers agree least: mean rank correlation {agreements[order[0]]:.2f} to "
        f"{agreements[order[-1]]:.2f}, over all images {np.nanmean(agreements):.2f}."
    )
    return Finding("disagreement", text, order)


def _wrong(subject: Subject) -> Finding | None:
    if subject.labels is None or subject.labels.ndim != 1:
        return None
    wrong = (subject.targets != subject.labels).nonzero().flatten().tolist()
    if not wrong:
        return None
    text = (
        f"The network answers {len(wrong)} of {len(subject.images)} images wrongly. The maps explain its wrong answer."
    )
    return Finding("wrong", text, wrong[:_MOST])
