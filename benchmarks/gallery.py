"""Every registered explainer's map on one picture, and the page that lists them.

    OMP_NUM_THREADS=2 python benchmarks/gallery.py

writes docs/images/explainers.png and docs/explainers.md from what is registered. It trains three small networks on one
XAI-TRIS set of 8×8 pixels: the paper's CNN for most explainers, one that ends in global average pooling for the CAM
family (CAM asks for it, and the CNN's last feature map is a single pixel), and a vision transformer for attention
rollout.

    OMP_NUM_THREADS=2 python benchmarks/gallery.py --networks

writes the page's last section instead: every explainer on each ImageNet network, with random weights, plain and with
the classes folded to cat and dog (some minutes).
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import VisionTransformer

import xaibench as xb
from xaibench.explainers import EXPLAINERS
from xaibench.models import accuracy, build, fit
from xaibench.models.context import isolated_rng

DOCS = Path(__file__).parents[1] / "docs"
DATASET, ALPHA = "xai-tris/lin-corr-8x8", 0.3  # a signal strong enough to be learnt in seconds
CAMS = ("cam", "gradcam", "gradcam++", "layercam", "scorecam", "eigencam")
COLUMNS = 7

HEAD = """# Explainers

    maps = xb.explain(name, model, images, targets, **parameters)

Images `[N, C, H, W]` in, signed maps `[N, H, W]` out; the model comes back as it was given. Beside a name, `explain`
takes an instance or class of these, a callable `(model, images, targets) -> maps`, `"package.module:name"`, and any
Captum `Attribution` class or object. PatternNet and PatternAttribution are fitted first:
`fitted = xb.explainers.PatternNet().fit(model, loader)`, then `xb.explain(fitted, model, images, targets)`.

![The map of every explainer](images/explainers.png)

One test sample of `{dataset}` (signal `alpha={alpha}`) and the maps of its class, parameters as by default. Red is
positive, blue negative, white zero; each map is scaled by its own largest magnitude, and the outline is the true
pattern. The networks are the paper's CNN; one with global average pooling for the CAM family (marked \\*); a vision
transformer for attention rollout (\\*\\*). RISE is a weighted mean of masks: what carries information is how it varies
about its level, not its sign.

*Explains* is what is explained unless `output=` says otherwise; where it says "only", nothing else can be. Where there
is a `feature_mask`, it is `None` (every value is a feature), `"grid"`, `"slic"` or an integer tensor. Perturbations by
default: `n_samples=None` takes 2 F + 2048 for F features, at most 2²² / F and at least 50; the XAI-TRIS suites state
the published 50 (LIME) and 25 (Kernel SHAP). Picture and page are made by `python benchmarks/gallery.py`.

`autocast=True` runs the network in bfloat16. What it costs on ResNet-18 (random weights, 224×224, a CPU with bfloat16
instructions; `python benchmarks/explainers.py --bfloat16`, with `--device cuda` on a GPU): maps of regions stay the
same (correlation with float32: CAM family, RISE, Kernel SHAP 0.9999; RISE in 0.34 of the time), sums over paths suffer
a little (Integrated Gradients 0.988, Input × Gradient and LRP epsilon 0.977), single gradients more (Saliency 0.916).

| name | | explains | parameters and defaults | source |
|---|---|---|---|---|
"""

NETWORKS = """
## Networks

Which explainers explain which of the ImageNet networks of `xaibench.models`, plain and with their classes folded to cat
and dog (those that only run forwards, Integrated Gradients, SmoothGrad and the patterns: plain): ✓, or the number of
the message that `UnsupportedModelError` gives. VGG-19 is as VGG-16. PatternNet and PatternAttribution are run with
`dtype=torch.float64`: through many layers their maps leave the range of float32. Controls look at no network. Made by
`python benchmarks/gallery.py --networks` with random weights.

"""
#: The side of the images: as small as each network takes with a last feature map of several positions.
SIDES = {
    "resnet18": 64, "resnet50": 64, "vgg16": 64, "densenet121": 64, "efficientnet_lite0": 64, "efficientnet_b0": 64,
    "vit_b_16": 32,
}  # fmt: skip
#: What makes the slow ones quick; they are run on the plain networks only.
QUICK: dict[str, dict[str, Any]] = {
    **{name: {"n_samples": 50, "feature_mask": "grid"} for name in ("lime", "kernel_shap")},
    "pfi": {"feature_mask": "grid"}, "shapley_sampling": {"n_samples": 1, "feature_mask": "grid"},
    "integrated_gradients": {"n_steps": 4}, "smoothgrad": {"n_samples": 2}, "rise": {"N": 20},
    "occlusion": {"window": 16}, "scorecam": {},
    **{name: {"dtype": torch.float64} for name in ("pattern_net", "pattern_attribution")},
}  # fmt: skip


class Transformer(nn.Module):
    """A vision transformer of two layers on patches of 2×2 grey pixels."""

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


def row(name: str) -> str:
    """The line of an explainer in the table."""
    part: Any = EXPLAINERS.resolve(name)
    explains = "the image" if part.info.control else getattr(part, "explains", None) or "probability"
    if name == "attention_rollout":
        explains = "the attention"
    if getattr(part, "explains_only", False):
        explains += " only"
    fields = [
        f"{field.name}={field.default!r}"
        for field in dataclasses.fields(part)
        if field.name != "patterns" and field.default is not dataclasses.MISSING
    ]
    written = ", ".join(f"`{field}`" for field in fields)
    return f"| `{name}` | {part.info.label} | {explains} | {written} | {part.info.citation} |"


def page(networks: str = "") -> str:
    """docs/explainers.md; its last section is kept unless there is another."""
    present = (DOCS / "explainers.md").read_text(encoding="utf-8").partition("\n## Networks")
    rows = "\n".join(row(name) for name in EXPLAINERS) + "\n"
    return HEAD.format(dataset=DATASET, alpha=ALPHA) + rows + (networks or "".join(present[1:]))


def refusal(name: str, model: nn.Module, side: int) -> str:
    """Why an explainer does not explain a network; nothing if it does."""
    images = torch.rand(2, 3, side, side)
    explainer: Any = xb.explainers.build(name)
    try:
        if hasattr(explainer, "fit"):
            explainer = explainer.fit(model, [images])
        if name == "scorecam":
            images = images[:1]  # hundreds of forward passes each
        targets = torch.ones(len(images), dtype=torch.int64)
        xb.explain(explainer, model, images, targets, device="cpu", **QUICK.get(name, {}))
    except xb.explainers.UnsupportedModelError as error:
        return str(error).removeprefix(f"{name}: ")
    return ""


def networks_section() -> str:
    """The table of explainers and networks, and the messages of those that do not go together."""
    names = [name for name in EXPLAINERS if not EXPLAINERS.resolve(name).info.control]
    cells: dict[tuple[str, str], str] = {}
    messages: dict[str, int] = {}
    for network, side in SIDES.items():
        with isolated_rng(0):
            plain, folded = (build(network, (3, side, side), 2, weights=None, fold=fold) for fold in (None, "pet"))
            for name in names:
                message = refusal(name, plain, side)
                if name not in QUICK and bool(message) != bool(refusal(name, folded, side)):
                    raise RuntimeError(f"{name} on {network}: not the same with its classes folded.")
                number = messages.setdefault(message, len(messages) + 1) if message else 0
                cells[name, network] = f"{number}" if message else "✓"
                print(network, name, cells[name, network], flush=True)
    lines = [f"| | {' | '.join(f'`{network}`' for network in SIDES)} |", "|---" * (len(SIDES) + 1) + "|"]
    lines += [f"| `{name}` | {' | '.join(cells[name, network] for network in SIDES)} |" for name in names]
    lines += ["", *(f"{number}. {message}" for message, number in messages.items())]
    return NETWORKS + "\n".join(lines) + "\n"


def networks(data: Any) -> dict[str, nn.Module]:
    """The three networks, trained alike."""
    with isolated_rng(0):
        made = {"cnn": build("cnn", (1, 8, 8), 2), "pooled": pooled(), "transformer": Transformer()}
    for name, model in made.items():
        fit(model, data.train, data.val, epochs=25, batch_size=128, progress=False, device="cpu")
        print(f"{name}: accuracy {accuracy(model, data.test):.2f}")
    return made


def maps_of(name: str, models: dict[str, nn.Module], data: Any, images: Tensor, targets: Tensor) -> Tensor:
    model = models["pooled" if name in CAMS else "transformer" if name == "attention_rollout" else "cnn"]
    explainer: Any = xb.explainers.build(name)
    if hasattr(explainer, "fit"):
        explainer = explainer.fit(model, [data.train.images])
    return xb.explain(explainer, model, images, targets, device="cpu")


def draw(maps: dict[str, Tensor], image: Tensor, mask: Tensor, path: Path) -> None:
    """One square for the image, one for each map."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = -(-(len(maps) + 1) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(1.6 * COLUMNS, 1.85 * rows), layout="constrained")
    for axis in axes.flat:
        axis.set_axis_off()
    axes.flat[0].imshow(image, cmap="gray", vmin=-1, vmax=1)
    axes.flat[0].set_title("the image", fontsize=9)
    for axis, (name, found) in zip(axes.flat[1:], maps.items(), strict=False):
        most = float(found.abs().max()) or 1.0
        axis.imshow(found, cmap="RdBu_r", vmin=-most, vmax=most)
        note = "*" if name in CAMS else "**" if name == "attention_rollout" else ""
        axis.set_title(EXPLAINERS.resolve(name).info.label + note, fontsize=9)
    fine = mask.repeat_interleave(20, 0).repeat_interleave(20, 1).float()
    for axis in axes.flat[: len(maps) + 1]:
        axis.contour(fine, levels=[0.5], colors="black", linewidths=1, extent=(-0.5, 7.5, -0.5, 7.5))
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=80)


def main() -> None:
    if "--networks" in sys.argv[1:]:
        (DOCS / "explainers.md").write_text(page(networks_section()), encoding="utf-8")
        return
    data = xb.load(DATASET, seed=0, n_samples=4000, alpha=ALPHA)
    models = networks(data)
    images, targets = data.test.images[:10], data.test.targets[:10]
    with torch.no_grad():
        sure = torch.stack([model.eval()(images).softmax(1)[range(10), targets] for model in models.values()])
    shown = int(sure.amin(0).argmax())  # the sample of which all three networks are surest
    maps = {name: maps_of(name, models, data, images, targets)[shown] for name in EXPLAINERS}
    draw(maps, images[shown, 0], data.test.masks[shown], DOCS / "images" / "explainers.png")
    (DOCS / "explainers.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
