"""The data sets of creatures: ``xb.load("parts/creatures-96x96")`` and ``"parts/creatures-224x224"``.

After FunnyBirds (Hesse, Schaub-Meyer, Roth: *FunnyBirds: A Synthetic Vision Dataset for a Part-Based Analysis of
Explainable AI Methods*, ICCV 2023, arXiv 2308.06248). As there, an object consists of parts, classes are combinations
of variants of the parts, and the network is trained on images from which a part may be missing, so that the removal of
a part is not new to it.

Departures: the scenes are drawn in two dimensions by integer arithmetic, not rendered in three, so that nothing is
downloaded; there are 8 classes and 7 parts (FunnyBirds: 50 and 5); three parts carry no information; any three of the
other four determine the class; and the pixels behind each part are stored with each image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.benchmarks.creatures.creatures import BODY_PARTS, CLASSES, DECIDING, Scene, draw_scene, render
from xaibench.core.checks import check_count
from xaibench.data.base import Dataset, PartSplit, Split
from xaibench.data.disk.splits import check_fractions, stratified_split
from xaibench.registry.info import DatasetInfo

_CITATION = (
    "Hesse, Schaub-Meyer, Roth: FunnyBirds: A Synthetic Vision Dataset for a Part-Based Analysis of Explainable AI "
    "Methods, ICCV 2023, arXiv 2308.06248"
)


@dataclass(frozen=True)
class Creatures:
    """A data set of creatures; call it to generate samples.

    The same parameters give bit-identical samples on every machine. The global random state is neither used nor
    changed.

    Attributes:
        size: Height and width of the images in pixels.
        n_samples: Number of samples, unless it is given.

    Example:
        >>> data = Creatures(96, 3000)(n_samples=40, split=(0.5, 0.25, 0.25))
        >>> data
        Dataset('parts/creatures-96x96', train=20, val=10, test=10, seed=0, n_samples=40, split=(0.5, 0.25, 0.25))
        >>> data.test.images.shape, data.test.part_masks(0).shape
        (torch.Size([10, 3, 96, 96]), torch.Size([7, 96, 96]))
    """

    size: int
    n_samples: int

    @property
    def info(self) -> DatasetInfo:
        """Info record of the data set."""
        return DatasetInfo(
            f"parts/creatures-{self.size}x{self.size}",
            CLASSES,
            (3, self.size, self.size),
            citation=_CITATION,
            license="generated, no license needed",
            truth="data",
        )

    def __call__(
        self, *, seed: int = 0, n_samples: int | None = None, split: Sequence[float] = (0.8, 0.1, 0.1)
    ) -> Dataset:
        """Generate the data set, with equally many images of all classes.

        In the training and validation images, a part drawn at random is missing in every second image. The class is
        still determined: one deciding part can be missing, not two. Test images show complete creatures.

        Args:
            seed: Determines every sample.
            n_samples: Number of samples over all splits; None = 3,000 at 96×96 pixels, 1,000 at 224×224.
            split: Fractions of train, validation and test.

        Returns:
            The data set, with images ``[N, 3, size, size]`` in [0, 1] and masks of the visible pixels of the deciding
            parts. The test split is a :class:`~xaibench.data.PartSplit`, which has the mask of each part and what is
            behind it.

        Raises:
            ValueError: If a parameter is out of range.
        """
        n_samples = self.n_samples if n_samples is None else n_samples
        fractions = check_fractions(split)
        check_count("seed", seed, least=0)
        check_count("n_samples", n_samples)
        targets = np.arange(n_samples) % len(CLASSES)
        train, val, test = stratified_split(targets, fractions, np.random.default_rng(seed))
        parameters = {"seed": int(seed), "n_samples": int(n_samples), "split": fractions}
        make = partial(self._make_split, int(seed))
        splits = make(train, targets[train]), make(val, targets[val]), make(test, targets[test], complete=True)
        return Dataset(*splits, self.info, parameters)

    def _make_split(
        self, seed: int, numbers: NDArray[np.int64], targets: NDArray[np.int64], *, complete: bool = False
    ) -> Split:
        """Render samples; a split of complete creatures knows what is behind their parts."""
        count, side = len(numbers), self.size
        images, behind = (torch.empty(number, 3, side, side) for number in (count, count * complete))
        parts = torch.empty(count, side, side, dtype=torch.uint8)
        for row, (number, target) in enumerate(zip(numbers.tolist(), targets.tolist(), strict=True)):
            layers = render(draw_sample(seed, number, target, complete=complete), side)
            images[row], parts[row] = _to_unit(layers.image), torch.from_numpy(layers.parts)
            if complete:
                behind[row] = _to_unit(layers.behind)
        masks = torch.isin(parts, torch.tensor(DECIDING, dtype=torch.uint8))
        known = images, masks, torch.from_numpy(targets)
        return PartSplit(*known, parts, behind) if complete else Split(*known)


def draw_sample(seed: int, number: int, target: int, *, complete: bool) -> Scene:
    """Draw the scene of a sample; it depends on nothing else.

    Args:
        seed: Seed of the data set.
        number: Number of the sample in the data set.
        target: Its class.
        complete: If False, a part drawn at random is missing with probability one half.
    """
    rng = np.random.default_rng([seed, number])
    missing = int(rng.integers(1, len(BODY_PARTS) + 1)) * int(rng.integers(2))
    return draw_scene(target, rng, missing=0 if complete else missing)


def _to_unit(image: NDArray[np.uint8]) -> Tensor:
    """Return an image ``[H, W, 3]`` as ``[3, H, W]`` float32 in [0, 1]."""
    return torch.from_numpy(image.transpose(2, 0, 1).astype(np.float32) / np.float32(255))


creatures_96x96 = Creatures(96, 3000)
creatures_224x224 = Creatures(224, 1000)
