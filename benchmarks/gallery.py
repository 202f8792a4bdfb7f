"""Maps of all registered explainers on one XAI-TRIS image and on a photograph, as pictures for the documentation.

    OMP_NUM_THREADS=2 python benchmarks/gallery.py

writes docs/images/explainers-{light,dark}.png and, for the page of each explainer, docs/images/explainers/NAME.png. It
trains three small networks on one XAI-TRIS set of 8×8 pixels: the
paper's CNN for most explainers; a network with global average pooling for the CAM family (CAM requires it, and the
CNN's last feature map is a single pixel); and a vision transformer for explainers of transformers.

    OMP_NUM_THREADS=2 python benchmarks/gallery.py --photo

writes docs/images/explainers-photo-{light,dark}.jpg: the maps of EfficientNet-Lite0 (``pip install
'xaibench[offline]'``) on the photograph of a cat that is part of scikit-image (Chelsea, by Stéfan van der Walt, CC0).
This takes about ten minutes on one core.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import VisionTransformer

import xaibench as xb
from xaibench.compute.random_numbers import isolated_rng
from xaibench.explainers import EXPLAINERS
from xaibench.models import accuracy, build, fit

DOCS = Path(__file__).parents[1] / "docs"
DATASET, ALPHA = "xai-tris/lin-corr-8x8", 0.3  # a signal strong enough to be learned in seconds
CAMS = (
    "cam",
    "gradcam",
    "gradcam++",
    "layercam",
    "scorecam",
    "eigencam",
    "hirescam",
    "xgradcam",
    "ablationcam",
    "finercam",
    "shapleycam",
    "refinecam",
    "kpcacam",
    "crp",
)

#: What the explainers of the photograph are given, and those that it cannot show: one needs other images to swap
#: values with, six and a control are fitted on a data set, one knows no function of this network, and those of
#: transformers need one.
ON_PHOTO: dict[str, dict[str, Any]] = {
    **{name: {"n_samples": 1000, "feature_mask": "slic"} for name in ("lime", "kernel_shap")},
    "shapley_sampling": {"n_samples": 10, "feature_mask": "slic"}, "rise": {"n_masks": 2000},
}  # fmt: skip
ATTENTION = tuple(name for name in EXPLAINERS if EXPLAINERS.resolve(name).info.family == "Attention")
NOT_ON_PHOTO = ("pfi", "expected_gradients", "pattern_local", "gradient_pattern", "pattern_net", "pattern_attribution")
NOT_ON_PHOTO += ("agop", "lrp", "prior", *ATTENTION)


class Transformer(nn.Module):
    """A vision transformer of two layers on patches of 2×2 gray pixels."""

    explain_dtype = torch.float64

    def __init__(self) -> None:
        super().__init__()
        self.network = VisionTransformer(8, 2, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=2)
        nn.init.trunc_normal_(self.network.heads.head.weight, std=0.1)  # torchvision's zeros learn slowly

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``[N, 2]``."""
        return self.network(images.expand(-1, 3, -1, -1))


def pooled() -> nn.Module:
    """Three convolutions and global average pooling."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))


def networks(data: Any) -> dict[str, nn.Module]:
    """The three networks, trained alike."""
    with isolated_rng(0):
        made = {"cnn": build("cnn", (1, 8, 8), 2), "pooled": pooled(), "transformer": Transformer()}
    for name, model in made.items():
        fit(model, data.train, data.val, epochs=25, batch_size=128, progress=False, device="cpu")
        print(f"{name}: accuracy {accuracy(model, data.test):.2f}")
    return made


def maps_of(name: str, models: dict[str, nn.Module], data: Any, images: Tensor, targets: Tensor) -> Tensor:
    model = models["pooled" if name in CAMS else "transformer" if name in ATTENTION else "cnn"]
    explainer: Any = xb.explainers.build(name)
    if hasattr(explainer, "fit"):
        explainer = explainer.fit(model, [data.train[:]])
    return xb.explain(explainer, model, images, targets, device="cpu")


@dataclass(frozen=True)
class Theme:
    """Colors of a page, its text, and of values from negative to positive."""

    page: str
    ink: str
    colors: tuple[str, ...]


THEMES = {
    "light": Theme("#ffffff", "#000000", ("#053061", "#4393c3", "#f7f7f7", "#d6604d", "#67001f")),
    "dark": Theme("#1e2129", "#dfe1ea", ("#9fd0ff", "#3c7fc0", "#262a34", "#c8553d", "#ffb199")),
}


def draw(maps: dict[str, Tensor], image: Tensor, mask: Tensor | None, file: str, columns: int) -> None:
    """One square for the image ``[C, H, W]``, and one for each map; for light and for dark pages."""
    stem, _, kind = file.partition(".")
    for name, theme in THEMES.items():
        draw_on(theme, maps, image, mask, DOCS / "images" / f"{stem}-{name}.{kind}", columns)


def draw_on(
    theme: Theme, maps: dict[str, Tensor], image: Tensor, mask: Tensor | None, path: Path, columns: int
) -> None:
    """The picture for one theme."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    signed = LinearSegmentedColormap.from_list("signed", theme.colors)
    rows = -(-(len(maps) + 1) // columns)
    size = (1.6 * columns, 1.85 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", facecolor=theme.page)
    for axis in axes.flat:
        axis.set_axis_off()
    gray = {"cmap": "gray", "vmin": -1, "vmax": 1} if len(image) == 1 else {}
    axes.flat[0].imshow(image.permute(1, 2, 0), **gray)
    axes.flat[0].set_title("the image", fontsize=9, color=theme.ink)
    for axis, (name, found) in zip(axes.flat[1:], maps.items(), strict=False):
        # A few pixels of a photograph's map are so large that the others would be almost invisible.
        most = float(found.abs().max() if mask is not None else found.abs().quantile(0.995)) or 1.0
        # Colors rather than values are averaged when the picture is downscaled, since values would cancel.
        axis.imshow(found, cmap=signed, vmin=-most, vmax=most, interpolation_stage="rgba")
        note = "" if mask is None else "*" if name in CAMS else "**" if name in ATTENTION else ""
        axis.set_title(EXPLAINERS.resolve(name).info.label + note, fontsize=9, color=theme.ink)
    if mask is not None:
        fine = mask.repeat_interleave(20, 0).repeat_interleave(20, 1).float()
        for axis in axes.flat[: len(maps) + 1]:
            axis.contour(fine, levels=[0.5], colors=theme.ink, linewidths=1, extent=(-0.5, 7.5, -0.5, 7.5))
    path.parent.mkdir(exist_ok=True)
    options = {"quality": 85, "optimize": True} if path.suffix == ".jpg" else {}
    figure.savefig(path, dpi=100, pil_kwargs=options)
    plt.close(figure)
    if path.suffix == ".png":  # a palette takes a third of the size
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def draw_pair(found: Tensor, image: Tensor, mask: Tensor, path: Path, scale: int = 14) -> None:
    """Draw the image and one map side by side; a line surrounds the ground truth."""
    from matplotlib.colors import LinearSegmentedColormap

    signed = LinearSegmentedColormap.from_list("signed", THEMES["light"].colors)
    values = 0.5 + 0.5 * found / (found.abs().max() or 1.0)
    gray = ((image[0] + 1) / 2).clamp(0, 1).unsqueeze(-1).expand(-1, -1, 3).numpy()
    tiles = []
    for colors in (gray, signed(values.numpy())[..., :3]):
        pixels = np.kron(colors, np.ones((scale, scale, 1)))
        pixels[_edges(mask.repeat_interleave(scale, 0).repeat_interleave(scale, 1).numpy())] = (0.0, 0.62, 0.33)
        tiles.append(np.pad(pixels, ((1, 1), (1, 1), (0, 0)), constant_values=0.5))
    both = np.concatenate([tiles[0], np.full((len(tiles[0]), scale, 3), np.nan), tiles[1]], 1)
    alpha = np.where(np.isnan(both[..., :1]), 0.0, 1.0)
    colored = (255 * np.concatenate([np.nan_to_num(both), alpha], -1)).round().astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(colored).quantize(64).save(path, optimize=True)


def _edges(mask: np.ndarray) -> np.ndarray:
    """Pixels of the mask within two pixels of its border."""
    framed = np.pad(mask, 2)
    rows, columns = mask.shape
    shifts = [framed[2 + y : 2 + y + rows, 2 + x : 2 + x + columns] for y in range(-2, 3) for x in range(-2, 3)]
    return np.asarray(mask & ~np.logical_and.reduce(shifts))


def xai_tris() -> None:
    data = xb.load(DATASET, seed=0, n_samples=4000, alpha=ALPHA)
    models = networks(data)
    images, targets = data.test.images[:10], data.test.targets[:10]
    with torch.no_grad():
        sure = torch.stack([model.eval()(images).softmax(1)[range(10), targets] for model in models.values()])
    shown = int(sure.amin(0).argmax())  # the sample of which all three networks are surest
    maps = {name: maps_of(name, models, data, images, targets)[shown] for name in EXPLAINERS}
    maps["rise"] -= maps["rise"].mean()  # a weighted mean of masks: its level says nothing
    draw(maps, images[shown], data.test.masks[shown], "explainers.png", 6)
    for name, found in maps.items():
        file = DOCS / "images" / "explainers" / f"{name.replace('+', '-plus')}.png"
        draw_pair(found.float(), images[shown], data.test.masks[shown], file)


def photo() -> None:
    from skimage.data import chelsea

    cat = Image.fromarray(chelsea()).crop((75, 0, 375, 300)).resize((224, 224), Image.Resampling.LANCZOS)
    image = torch.from_numpy(np.array(cat)).permute(2, 0, 1) / 255
    model = build("efficientnet_lite0", (3, 224, 224), 2, fold="pet")  # class 0 is the cat
    with torch.no_grad():
        print(f"probability of a cat {model(image[None]).softmax(1)[0, 0]:.4f}")
    maps = {}
    for name in EXPLAINERS:
        if name not in NOT_ON_PHOTO:
            start = time.perf_counter()
            given = ON_PHOTO.get(name, {})
            maps[name] = xb.explain(name, model, image[None], torch.tensor([0]), device="cpu", **given)[0].float()
            print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    maps["rise"] -= maps["rise"].mean()
    draw(maps, image, None, "explainers-photo.jpg", 8)


def main() -> None:
    if "--photo" in sys.argv[1:]:
        photo()
    else:
        xai_tris()


if __name__ == "__main__":
    main()
