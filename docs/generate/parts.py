"""Write docs/parts.md and its picture: creatures of parts, and how explainers rank their parts.

xaibench run parts && python docs/generate/parts.py runs/parts
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from csv_tables import csv_link
from findings import WIDE
from papers import table
from photographs import label, number
from PIL import Image, ImageDraw, ImageFont

import xaibench as xb
from xaibench.benchmarks.parts.creatures import CLASSES, DECIDING, PART_NAMES
from xaibench.data import PartSplit
from xaibench.metrics import part_shares
from xaibench.metrics.faithfulness.part_rank import part_rank_model_scores
from xaibench.metrics.shared.perturb import score_drops
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, read_run

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "parts.md", DOCS / "images" / "parts.jpg"
#: Size of an image in pixels, and height of the text above it.
TILE, HEADER = 96, 18
#: One color per part, and the background.
COLORS = np.array(
    [
        *((30, 30, 30), (230, 159, 0), (86, 180, 233), (0, 158, 115)),
        *((240, 228, 66), (120, 120, 120), (213, 94, 0), (204, 121, 167)),
    ],
    dtype=np.uint8,
)
#: Methods whose shares on the parts are shown.
SHARES = ("integrated_gradients", "saliency", "gradcam", "uniform")
#: Images of the data set that each network of the suite was trained on.
N_SAMPLES = {"parts_cnn": 3000, "parts_vit": 6000}
#: Rows of the table of scores that the page shows.
SHOWN = 12

HEAD = """# Creatures of parts

Test whether a map ranks the parts of an object as they matter to the network. The suite `parts` follows FunnyBirds
(Hesse, Schaub-Meyer, Roth, ICCV 2023, [arXiv 2308.06248](https://arxiv.org/abs/2308.06248)), without a download: the
scenes are drawn by the library. Its images lie between XAI-TRIS and photographs: an object in varying poses in front
of clutter, with known parts, each of which can be removed.

    xaibench run parts

![Eight creatures, the parts of one of them, and this creature without each of its parts](images/parts.jpg)

*Above: a test image of each class. Below: the visible parts of the first one, and the image without each of them.*

## What is known

```python
import xaibench as xb

data = xb.load("parts/creatures-96x96", n_samples=80)  # or parts/creatures-224x224
image, mask, target = data.test[0]
print(list(image.shape), data.test.part_masks(0).shape[0], "parts")
print(bool((data.test.without(0, 6) != image).any(0).equal(data.test.part_masks(0)[5])))  # part 6 is the wing
```

```text
[3, 96, 96] 7 parts
True
```

- **The class** is decided by four parts: {deciding}. Each has two variants, with a shape and a group of
  colors. The eight classes are the combinations with an even number of second variants: any three of these parts
  determine the class, and no two do. The mask of an image is the union of their visible pixels (*data*).
- **Distractors**: {others}, pose, background and clutter are random. Clutter has the colors of the parts.
- **Removal**: an image without a part shows what is behind it, as if the part had never been there. In every second
  training image a part drawn at random is missing, so that a removal is not new to the network.
- **Reproducibility**: scenes are painted by integer arithmetic and are bit-identical on every machine (published
  checksums).

## What each part is worth

Trained networks that come with the library:

{networks}

The table shows the mean drop of the logit of the class when one part is removed, over the explained images that the
network classifies correctly; the share of the image that the part covers; and the shares of some maps of the CNN on it
([`xb.metrics.part_shares`](api/metrics.md)).

"""

READ = """
Any three of the deciding parts determine the class, so a network need not use all four: the smallest drop of a
deciding part is {smallest}. Therefore the measured drops, not the construction, are the reference of `part_rank`.

## Scores of the explainers

[`part_rank`](metrics/part_rank.md): Spearman's correlation over the seven parts between the map's sum on a part and the
drop of the logit without it, the *single deletion* protocol of FunnyBirds (*intervention*). 0 is a random order. Sums
favor large parts; `part_rank-mean` divides by the visible area, so that area does not count. `mass_accuracy` compares
with the deciding parts (*data*). Means with 95 % intervals over {images} images per network,
in the order of the mean of `part_rank` over the networks. Perturbation methods have some hundred passes per image.

"""

LIMITS = """
## Limits

- One data set and one training: intervals are over images only. Other trainings may use the parts differently.
- A part is removed alone. Because three of four deciding parts determine the class, a network may react little to the
  removal of any single one.
- Flat scenes without light or depth: closer to photographs than XAI-TRIS, but not photographs.
- Perturbation methods replace pixels by black, which is not a color of the background.
- The data sets of the networks have 6,000 images (transformer) and 3,000 (CNN) with other test splits: compare methods
  within a network.
"""


def picture(data: PartSplit) -> None:
    """Draw an image of each class, the parts of the first, and the first without each part."""
    rows = [int((data.targets == target).nonzero()[0]) for target in range(len(CLASSES))]
    first = rows[0]
    parts = torch.from_numpy(COLORS)[data.parts[first].long()].permute(2, 0, 1) / 255
    removed = [data.without(first, number) for number in range(1, len(PART_NAMES) + 1)]
    above = [(CLASSES[row], data.images[index]) for row, index in enumerate(rows)]
    below = [("parts", parts), *((f"no {name}", image) for name, image in zip(PART_NAMES, removed, strict=True))]
    canvas = Image.new("RGB", (len(above) * TILE, 2 * (TILE + HEADER)), "white")
    pen = ImageDraw.Draw(canvas)
    for line, tiles in enumerate((above, below)):
        for column, (text, image) in enumerate(tiles):
            left, top = column * TILE, line * (TILE + HEADER)
            pen.text((left + TILE / 2, top + HEADER - 3), text, "#555555", ImageFont.load_default(12), anchor="md")
            tile = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
            canvas.paste(Image.fromarray(tile).resize((TILE - 2, TILE - 2)), (left + 1, top + HEADER))
    canvas.save(PICTURE, quality=80, optimize=True)


def right(data: PartSplit, network: torch.nn.Module, explained: int) -> PartSplit:
    """Return the explained images that a network classifies correctly."""
    with torch.inference_mode():
        images, masks, targets = data[:explained]
        rows = (network(images).argmax(1) == targets).nonzero().flatten()
    return PartSplit(images[rows], masks[rows], targets[rows], data.parts[rows], data.behind[rows])


def worth(found: Mapping[str, tuple[PartSplit, torch.nn.Module]]) -> tuple[str, str]:
    """Return a table with a row per part, and the smallest drop of a deciding part.

    Columns are the drops of the logits, the share of the image, and the shares of maps of the CNN.
    """
    drops = []
    for data, network in found.values():
        asked = part_rank_model_scores(network, data.images, data.targets, **data.metric_inputs(slice(None)))
        drops.append([np.nan, *score_drops(asked).mean(0).tolist()])
    data, network = found["parts_cnn"]
    shares = [part_shares(torch.ones_like(data.images[:, 0]), data.parts)]
    for name in SHARES:
        maps = xb.explain(name, network, data.images, data.targets, output="logit", device="cpu")
        shares.append(part_shares(maps, data.parts))
    head = ["part", *(f"drop, `{name}`" for name in found), "share of the image", *(f"`{name}`" for name in SHARES)]
    rows = []
    for part, name in enumerate(("background", *PART_NAMES)):
        said = f"**{name}**" if part in DECIDING else name
        worths = [f"{drop[part]:.2f}".replace("-", "−") if part else "–" for drop in drops]
        rows.append([said, *worths, *(f"{100 * column[part]:.1f} %" for column in shares)])
    drop, part, model = min(
        (drop[part], part, model) for model, drop in zip(found, drops, strict=True) for part in DECIDING
    )
    return table(head, rows), f"{drop:.2f} ({PART_NAMES[part - 1]}, `{model}`)"


def scores(run: RunResults) -> str:
    """Return the table of scores, ordered by ``part_rank``: the first rows and the controls, and all rows as CSV."""
    found, _ = infer(run, summarize(run))
    cells = found.set_index(["explainer", "model", "metric"])
    means = found[found["metric"] == "part_rank"].groupby("explainer", observed=True)["mean"].mean()
    columns = [(metric, model) for metric in run.metrics for model in run.models]
    heads = ["", *(f"`{metric}`, {run.models[model].label}" for metric, model in columns)]
    order = means.sort_values(ascending=False, kind="stable").index
    rows = [[label(run, name)] for name in order]
    for row, name in zip(rows, order, strict=True):
        keys = [(name, model, metric) for metric, model in columns]
        row += [number(cells.loc[key]) if key in cells.index else "–" for key in keys]
    some = [0, *(place for place, (metric, _) in enumerate(columns, start=1) if metric != "topk_precision")]
    shown = [row for place, row in enumerate(rows) if place < SHOWN or row[0].endswith("(control)")]
    shown = [[row[place] for place in some] for row in [heads, *shown]]
    link = csv_link("parts-scores", f"All {len(rows)} methods and controls, all metrics (CSV)", heads, rows)
    return f"{WIDE.format(table(shown[0], shown[1:]))}\n\n{link}\n"


def main(folder: Path) -> None:
    """Write the page and the picture from a run."""
    run = read_run(folder)
    explained = int(run.scores["sample"].max()) + 1
    known, said = {}, []
    for model, row in run.accuracy.drop_duplicates("model").set_index("model").iterrows():
        network = xb.published_network("parts/creatures-96x96", model)
        weights = sum(weight.numel() for weight in network.parameters())
        data = xb.load("parts/creatures-96x96", n_samples=N_SAMPLES[model]).test
        known[model] = right(data, network, explained), network
        said.append(f"- `{model}` ({weights:,} weights, {row['mean']:.1f} % of its test images correct)")
    picture(known["parts_cnn"][0])
    head = HEAD.format(
        deciding=", ".join(PART_NAMES[part - 1] for part in DECIDING),
        others=", ".join(name for part, name in enumerate(PART_NAMES, start=1) if part not in DECIDING),
        networks="\n".join(said),
    )
    worths, smallest = worth(known)
    text = f"{head}{worths}\n{READ.format(images=explained, smallest=smallest)}{scores(run)}{LIMITS}"
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE} and {PICTURE} ({PICTURE.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
