"""Draw the explainers of Saliency-Bench on photographs of scikit-image: ``python docs/generate/photographs.py``.

Like Figures 3 and 6 of its paper.
"""

from __future__ import annotations

from pathlib import Path

import torch
from skimage import data, img_as_float32
from torch import Tensor
from torchvision.models import ResNet18_Weights
from torchvision.transforms.functional import center_crop, resize

import xaibench as xb
from xaibench.benchmarks.saliency_bench.published_tables import TABLE_3
from xaibench.explainers import EXPLAINERS

FILE = Path(__file__).parents[1] / "images" / "saliency-bench.jpg"
#: Photographs that scikit-image ships: by Stéfan van der Walt and Rachel Michetti (CC0), and SpaceX (public domain).
PHOTOGRAPHS = (data.chelsea, data.coffee, data.rocket)
SIZE = 224


def photographs() -> Tensor:
    """Return the photographs ``[N, 3, H, W]`` in [0, 1], as the network is trained for."""
    images = [torch.from_numpy(img_as_float32(load())).permute(2, 0, 1) for load in PHOTOGRAPHS]
    return torch.stack([center_crop(resize(image, SIZE, antialias=True), [SIZE, SIZE]).clamp(0, 1) for image in images])


def main() -> None:
    images = photographs()
    model = xb.models.build("efficientnet_lite0", (3, SIZE, SIZE), 1000, head="pretrained").eval()
    with torch.inference_mode():
        shares, targets = model(images).softmax(1).max(1)
    maps = {}
    for name in (name for dataset, name in TABLE_3 if dataset == "pet"):
        found = xb.explain(name, model, images, targets, **({"n_masks": 1000} if name == "rise" else {})).abs()
        # RISE has no small values, and the few largest pixels of a gradient would leave the others black.
        low, high = found.flatten(1).quantile(torch.tensor([0.0, 0.995]), 1)[..., None, None]
        maps[EXPLAINERS.resolve(name).info.label] = found.clamp(max=high) - low
    classes = ResNet18_Weights.DEFAULT.meta["categories"]
    labels = [f"{classes[target]} {share:.2f}" for target, share in zip(targets, shares, strict=True)]
    xb.plots.show(images, maps, labels=labels).savefig(FILE, dpi=80, pil_kwargs={"quality": 85})
    print(f"{FILE.name}: {'; '.join(labels)}")


if __name__ == "__main__":
    main()
