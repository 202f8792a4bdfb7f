"""One part of each kind, as somebody would add it: its file, its test, and its line in a table (a suite has none)."""

#: Path -> what stands in it.
FILES = {
    "xaibench/metrics/localization/added_share.py": '''\
"""Share of the map's positive part among all of its magnitude, inside the ground truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.core.types import Reduction
from xaibench.metrics.shared.inputs import Scores, flat, score_pairs, share
from xaibench.registry.info import MetricInfo

if TYPE_CHECKING:
    from xaibench.core.types import Array


def expected_share(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the expected score of a random map for each mask ``[N, H, W]``; NaN for an empty one."""
    shares = flat(masks).mean(axis=1) / 2  # half of the magnitude is negative
    return np.where(shares > 0, shares, np.nan)


@MetricInfo(
    "Added share",
    "ground-truth",
    higher_is_better=True,
    range=(0.0, 1.0),
    map_sign="own",
    meaning="Positive mass inside the ground truth, of all mass. 1: nothing else.",
    pitfalls="Only a test adds it.",
    chance="Half of the share of the image that the ground truth covers.",
    chance_level=expected_share,
    citation="Nobody: Added by a test, 2024",
)
def added_share(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Positive mass inside the ground truth, of all mass. In [0, 1], higher is better.

    .. math:: \\frac{\\sum_{i \\in F^+} \\max(s_i, 0)}{\\sum_i |s_i|}

    Departures: none.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``, signed.
        masks: Of the same shape, binary, ``True`` = important.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero and for an empty mask.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> added_share(np.array([[3.0, -1.0]]), np.array([[1, 1]]))
        0.75
    """
    return score_pairs(_added_share, maps, masks, reduction)


def _added_share(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    values, inside = flat(maps), flat(masks)
    peak = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(peak > 0, peak, 1.0)
    counted = inside & (values > 0)
    within, without = (np.where(where, np.abs(values), 0.0).sum(axis=1) for where in (counted, ~counted))
    return share(within, within + without, (peak[:, 0] > 0) & inside.any(axis=1))
''',
    "tests/metrics/localization/test_added_share.py": """import numpy as np
from part_cases import MetricCase

from xaibench.metrics import added_share

CASES = {"added_share": MetricCase(constant=6 / 30)}


def test_added_share_by_hand():
    maps, masks = np.array([[3.0, 2.0, -1.0, 0.0]]), np.array([[1, 0, 1, 0]])
    assert added_share(maps, masks) == 0.5
""",
    "xaibench/explainers/gradients/added_gradient.py": '''\
"""The gradient of the image, doubled."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from xaibench.explainers.base import Attribution, target_gradient
from xaibench.registry.info import ExplainerInfo


@ExplainerInfo("Added Gradient", family="Gradients", citation="Nobody: Added by a test, 2024.", passes=2)
@dataclass(frozen=True, kw_only=True)
class AddedGradient(Attribution):
    """The gradient of the target's output by the image, times a factor.

    Attributes:
        factor: What it is multiplied by.
    """

    factor: float = 2.0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``."""
        return self.by_chunk(lambda x, y: self.factor * target_gradient(model, x, y), images, targets)
''',
    "tests/explainers/gradients/test_added_gradient.py": """import torch
from torch import nn

import xaibench as xb


def test_added_gradient_of_a_linear_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    images, targets = torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 0])
    maps = xb.explain("added_gradient", model, images, targets, output="logit", device="cpu")
    expected = 2 * model[1].weight[targets].reshape(3, 2, 2)
    torch.testing.assert_close(maps, expected.detach(), check_dtype=False)
""",
    "xaibench/models/networks/added_network.py": '''\
"""One linear layer, for images of any shape."""

from __future__ import annotations

import math

from torch import nn

from xaibench.registry.info import ModelInfo


@ModelInfo("Added network", citation="Nobody: Added by a test, 2024")
class AddedNetwork(nn.Sequential):
    """A linear layer.

    Args:
        in_shape: ``(C, H, W)``, square.
        num_classes: Number of logits.

    Raises:
        ValueError: If images are not square.
    """

    def __init__(self, in_shape: tuple[int, int, int], num_classes: int = 2) -> None:
        if in_shape[1] != in_shape[2]:
            raise ValueError(f"in_shape={in_shape}: expected square images; give (C, H, H).")
        super().__init__(nn.Flatten(), nn.Linear(math.prod(in_shape), num_classes))
''',
    "tests/models/networks/test_added_network.py": """from part_cases import ModelCase

from xaibench.models import build

CASES = {"added_network": ModelCase(shapes=((3, 16, 16),))}


def test_added_network_has_one_layer():
    assert sum(weight.numel() for weight in build("added_network", (3, 4, 4), 2).parameters()) == 3 * 16 * 2 + 2
""",
    "xaibench/data/photographs/added_bars.py": '''\
"""Bars on noise, lying or standing: images and masks side by side in two folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import opened_image
from xaibench.data.disk.image_files import open_image
from xaibench.data.disk.source import Source
from xaibench.registry.info import DatasetInfo


class AddedBars(AnnotatedSet):
    """Bars on noise."""

    info = DatasetInfo(
        "added-bars",
        classes=("lying", "standing"),
        image_shape=(3, 224, 224),
        citation="Nobody: Added by a test, 2024",
        license="CC0",
        address="[nowhere](https://example.org)",
        download_size="[0 GB](https://example.org)",
        by_hand="nothing",
        how_to_get="Draw them into DIR/added-bars/images and DIR/added-bars/masks.",
        published=(("bars", 40),),
    )
    folders = ("added-bars", "")
    marker = "images"

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int) -> Source:
        """The bars of the folder.

        Args:
            folder: Where ``images`` and ``masks`` are.
            classes: ``"lying"`` and ``"standing"``.
            seed: Nothing is drawn here.
        """
        return _Bars(folder, classes)


class _Bars(Source):
    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        self.classes = classes
        self._folder = folder
        found = sorted(path.name for path in (folder / "images").iterdir())
        self._files = [file for file in found if file.partition("-")[0] in classes]
        self.targets = np.array([classes.index(file.partition("-")[0]) for file in self._files], dtype=np.int64)
        self.annotated = np.ones(len(self._files), dtype=np.bool_)

    def image(self, index: int, size: int) -> Image.Image:
        return open_image(self._folder / "images" / self._files[index], size)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        with opened_image(self._folder / "masks" / self._files[index]) as image:
            return np.asarray(image.convert("L")) > 0

    def meta(self, index: int) -> dict[str, object]:
        file = self._files[index]
        return {"id": file.removesuffix(".png"), "file": f"images/{file}", "annotated": True}


added_bars = AddedBars()
''',
    "tests/data/photographs/test_added_bars.py": """import numpy as np
from generators.common import Expected, photograph
from part_cases import DatasetCase
from PIL import Image

from xaibench.data import load


def write(root):
    rng = np.random.default_rng(0)
    expected = []
    for kind in ("images", "masks"):
        (root / "added-bars" / kind).mkdir(parents=True)
    for number in range(40):
        label = ("lying", "standing")[number % 2]
        mask = np.zeros((48, 48), dtype=bool)
        mask[10:16, 4:40] = True
        mask = mask if label == "lying" else mask.T
        name = f"{label}-{number:02}"
        pixels = photograph(rng, 48, 48).copy()
        pixels[mask] = 255 - pixels[mask]
        Image.fromarray(pixels).save(root / "added-bars" / "images" / f"{name}.png")
        Image.fromarray(mask).save(root / "added-bars" / "masks" / f"{name}.png")
        expected.append(Expected(name, label, mask))
    return expected


CASES = {"added-bars": DatasetCase(write=write)}


def test_added_bars_lie_and_stand(tmp_path):
    write(tmp_path)
    _, mask, target = load("added-bars", root=tmp_path, size=48).test[0]
    rows = mask.any(dim=1).sum()
    assert (rows == 6) == (target == 0)
""",
    "xaibench/benchmarks/photographs/suites/added-suite.toml": """name = "added-suite"
title = "All that was added"

[data]
seeds = [0]
parameters = { root = "$XAIBENCH_DATA", size = 16 }

[training]
method = "none"
seeds = [0]

[explaining]
samples = 4
scored = "all"
protocol = "scaled"

[[cells]]
datasets = ["added-bars"]
models = ["added_network"]

[explainers]
added_gradient = { factor = 3.0 }
uniform = {}

[metrics]
added_share = {}

[quick]
explaining = { samples = 2 }
""",
}

#: Table -> its last line before, and the one that is added behind it.
LINES = {
    "xaibench/metrics/registered.py": (
        '"localization.roc_auc": ("roc_auc", "average_precision"),',
        '"localization.added_share": ("added_share",),',
    ),
    "xaibench/explainers/registered.py": (
        '"saliency": "xaibench.explainers.gradients.saliency:Saliency",',
        '"added_gradient": "xaibench.explainers.gradients.added_gradient:AddedGradient",',
    ),
    "xaibench/models/registered.py": (
        '"cnn": "xaibench.benchmarks.xai_tris.networks:CNN",',
        '"added_network": "xaibench.models.networks.added_network:AddedNetwork",',
    ),
    "xaibench/data/registered.py": (
        '"pet": "xaibench.data.photographs.oxford_pet:pet",',
        '"added-bars": "xaibench.data.photographs.added_bars:added_bars",',
    ),
}
