"""Write docs/volumes.md and its picture: explanations of 3-D networks, and the suite of volumes.

xaibench run xai-tris-16x16x16 && python docs/generate/volumes.py runs/xai-tris-16x16x16
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from papers import table
from start import description
from start import table as leaderboard_table

import xaibench as xb
from xaibench.report.read.results import RunResults, read_run

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "volumes.md", DOCS / "images" / "volumes.png"
#: Methods of the picture.
SHOWN = {"Saliency": "saliency", "Integrated Gradients": "integrated_gradients", "LRP (ε)": "lrp_epsilon"}

HEAD = """# Volumes

Explain 3-D networks and score their maps without cutting volumes into slices. Images `[N, C, D, H, W]` have maps and
masks `[N, D, H, W]`, with D slices of H rows and W columns; everything else is as for images.

```python
import xaibench as xb

data = xb.load("xai-tris/xor-corr-16x16x16", n_samples=300)
network = xb.published_network("xai-tris/xor-corr-16x16x16", "cnn")
images, masks, targets = data.test[:8]
maps = xb.explain("integrated_gradients", network, images, targets)
print(list(images.shape), list(maps.shape))
print(f"{{xb.metrics.topk_precision(maps, masks):.2f}} {{xb.metrics.emd_skill(maps, masks):.2f}}")
figure = xb.show(images, maps, masks, samples=1)
```

```text
{printed}
```

![A volume of XOR in three orthogonal slices, and three maps of it; the outline is the ground truth](images/volumes.png)

*A volume of XOR in three orthogonal slices through the largest mass, and maps of a 3-D network. The outline is the
ground truth.*

- **Explainers**: all of them; [which supports which network](explainers-networks.md). CAMs are interpolated
  trilinearly, masks of RISE and occlusion are cubes, superpixels are supervoxels (SLIC).
- **Metrics**: all of them. The [earth mover's distance](emd.md) is exact at this size, with proven bounds above. ROAD
  imputes a voxel from its six neighbors. A metric of the map alone refuses `[N, 3, H, W]`, which may be color channels.
- **Distances**: `spacing=` is the size of a voxel along each axis, such as millimeters; scans provide their own.
- **Scans**: `xb.load("lidc", volumes=True)` and `xb.load("tumor", volumes=True)` ([data sets](datasets.md)).
- **Your volumes and masks**: `xb.load("volumes:DIR")`, or score a folder of maps (NIfTI or NumPy files, named like the
  volumes): `xaibench score maps --dataset volumes:DIR --split all`. Save NIfTI maps with the
  affine of their image. Distances in NIfTI files are in millimeters.
- **Your network**: [explain it](own-network.md), or [audit it](audit.md):
  `xaibench audit network.pt --images DIR --volumes`.
- **Pictures**: `xb.show` and report pages show three orthogonal slices, with sliders.

A volume of one slice has the maps and scores of that image, and turning a volume turns its maps; tests hold explainers
and metrics to both.

## A benchmark with known truth

    xaibench run xai-tris-16x16x16

The four scenarios of [XAI-TRIS](xai-tris.md) with *tetracubes*, shapes of four cells that no plane contains, in volumes
of 16×16×16 voxels, on white and on correlated noise. One shape is a *tripod*, three cells around a fourth; the other is
a *screw*, a path along all three axes. Each cell has 2×2×2 voxels, and the shapes are not smoothed: 64 of 4,096 voxels
are important (32 in RIGID). In LIN, MULT and XOR, the shapes are at fixed positions (`layout=` sets others); in RIGID,
each has one of 24 rotations and is anywhere.

The networks come with the library; the data are the same on every machine (published checksums):

{networks}

"""

SCORES = """
{leaderboard}

{description} Means with 95 % intervals over data sets and images
([how](uncertainty.md)), in the order of `emd_skill`. Only methods that are significantly better than every control have
places, and those that share a place do not differ significantly. Methods that do not explain linear networks, or not
all of these, are not in the table.

## Limits

- One architecture of {weights:,} weights, besides linear regression in LIN, and one training per data set.
- Perturbation methods replace cubes of 2×2×2 or 4×4×4 voxels, not single voxels, so that they need fewer passes.
- Networks from ImageNet, `disconnected:` networks, mosaics of photographs, and watermarks are for images only.
"""


def picture() -> str:
    """Draw the picture, and return what the example on the page prints."""
    name = "xai-tris/xor-corr-16x16x16"
    images, masks, targets = xb.load(name, n_samples=300).test[:8]
    network = xb.published_network(name, "cnn")
    maps = {label: xb.explain(method, network, images, targets) for label, method in SHOWN.items()}
    figure = xb.show(images, maps, masks, samples=1)
    FigureCanvasAgg(figure)
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight")
    shown = maps["Integrated Gradients"]
    scores = (xb.metrics.topk_precision(shown, masks), xb.metrics.emd_skill(shown, masks))
    return f"{list(images.shape)} {list(shown.shape)}\n{' '.join(f'{score:.2f}' for score in scores)}"


def networks(run: RunResults) -> str:
    """Return the table of test accuracies."""
    rows = [
        [
            f"{row.subset.upper()}, {row.variant.upper()}",
            f"`{row.model}`",
            f"{row.alpha:g}",
            f"{row.mean:.1f}",
            f"{row.std:.1f}",
        ]
        for row in run.accuracy.itertuples()
    ]
    return table(["data", "network", "signal `alpha`", "test accuracy in percent", "standard deviation"], rows)


def main(folder: Path) -> None:
    """Write the page and the picture from a run."""
    run = read_run(folder)
    network = xb.published_network("xai-tris/xor-corr-16x16x16", "cnn")
    text = HEAD.format(printed=picture(), networks=networks(run)) + SCORES.format(
        leaderboard=leaderboard_table(run),
        description=description(run),
        weights=sum(weight.numel() for weight in network.parameters()),
    )
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE} and {PICTURE} ({PICTURE.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
