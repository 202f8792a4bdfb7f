"""Choice of the slices of LIDC-IDRI that become samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from xaibench.data.scans.ct_reading import scan_rng
from xaibench.data.scans.lidc_index import Scan

#: Which slices of a nodule become samples.
Slices: TypeAlias = Literal["middle", "largest", "all"]

#: Maximum distance (in mm) of a negative sample from a positive one along the body.
MAX_DISTANCE = 50.0


@dataclass(frozen=True)
class SliceChoice:
    """The parameters of ``Lidc.open`` that select and mark slices."""

    level: float
    contour: bool
    slices: Slices
    negatives: int
    window: tuple[float, float]
    seed: int

    def check(self, classes: tuple[str, ...]) -> None:
        """Raise an error if a parameter is out of range, or leaves one of the classes empty."""
        if not 0 < self.level <= 1:
            raise ValueError(f"consensus={self.level!r}: expected a fraction in (0, 1], such as 0.5.")
        if self.slices not in get_args(Slices):
            raise ValueError(f"slices={self.slices!r}: expected one of {', '.join(map(repr, get_args(Slices)))}.")
        if self.negatives < 0:
            raise ValueError(f"negatives={self.negatives!r}: expected 0 or more per slice with a nodule.")
        if self.negatives == 0 and "no_nodule" in classes:
            raise ValueError("negatives=0 leaves 'no_nodule' empty; give classes='nodule', or negatives=1 or more.")

    def positives(self, scan: Scan) -> tuple[list[int], list[int]]:
        """Return the slices with consensus, and the slices of nodules without a consensus pixel; every slice once."""
        agreed: set[int] = set()
        disputed: set[int] = set()
        for nodule in scan.nodules:
            areas = [int(part.consensus(nodule.readers, self.level, self.contour).sum()) for part in nodule.slices]
            there = [number for number, area in enumerate(areas) if area]
            if not there:
                disputed.add(nodule.slices[len(areas) // 2].slice)
                continue
            if self.slices == "middle":
                there = [there[len(there) // 2]]
            elif self.slices == "largest":
                there = [int(np.argmax(areas))]
            agreed |= {nodule.slices[number].slice for number in there}
        return sorted(agreed), sorted(disputed - agreed)

    def draw_negatives(self, scan: Scan, positives: Sequence[int]) -> list[int]:
        """Draw slices near the positive ones in which no reader marked anything."""
        rng = scan_rng(self.seed, scan.series)
        free = ~scan.touched
        chosen: list[int] = []
        for positive in positives:
            near = np.flatnonzero(free & (np.abs(scan.z - scan.z[positive]) <= MAX_DISTANCE))
            taken = rng.choice(near, size=min(self.negatives, len(near)), replace=False)
            free[taken] = False
            chosen += taken.tolist()
        return sorted(chosen)
