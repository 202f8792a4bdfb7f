"""Write the tables of docs/certified.md: every explainer on networks with known behavior.

python docs/generate/certified.py                          # some minutes; both tables
python docs/generate/certified.py "parts of LIN-WHITE"     # one of them

The tables of all explainers are CSV files; the page shows some of their rows.
"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

from csv_tables import csv_link
from papers import table

import xaibench as xb
from xaibench.benchmarks import blind
from xaibench.benchmarks.certified.hand_set_networks import HAND_SET
from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.explainers import build as build_explainer
from xaibench.metrics import shapley_error, sign_agreement
from xaibench.models import build, fit

PAGE = Path(__file__).parents[1] / "certified.md"
START, END = "<!-- {} -->\n", "<!-- until here -->\n"
SAMPLES = 50
#: The numbers of perturbations of the paper's runs.
ALSO = {"kernel_shap, 25 samples": ("kernel_shap", {"n_samples": 25}), "lime, 50 samples": ("lime", {"n_samples": 50})}

HEAD = [
    *("explainer", "networks", "mass outside, without cancellation", "mass outside, cancellation"),
    *("use AUC", "use AP", "Shapley error", "signs"),
]
#: Explainers that the page shows.
SHOWN = (
    *("integrated_gradients", "saliency", "guided_backprop", "deeplift", "shapley_sampling", "kernel_shap", "lime"),
    *("lrp_epsilon", "deep_taylor", "pattern_net", "pattern_attribution", "smoothgrad", "xrai", "gradcam", "rise"),
    *("occlusion", "uniform", "kernel_shap, 25 samples", "lime, 50 samples"),
)

#: Training of the networks that see a part of the image, and the part: all of the pattern, half of it, or none.
PROBE = {"epochs": 60, "batch_size": 128, "lr": 0.004, "seed": 0, "progress": False, "device": "cpu"}
SEEN = {"all": (slice(1, 7), slice(0, 8)), "half": (slice(0, 8), slice(0, 4)), "none": (slice(0, 4), slice(4, 8))}
PROBE_HEAD = ["explainer", *(f"{what}, {seen}" for what in ("mass outside", "EMD performance") for seen in SEEN)]


def maps_of(part: Any, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    output = None if getattr(part, "explains_only", False) else "logit"
    return xb.explain(part, model, images, targets, device="cpu", output=output)


def scores(part: Any) -> Iterator[dict[str, float]]:
    """Yield the mean scores for each network that the explainer supports."""
    for name in HAND_SET:
        function = name.rpartition("-")[0]
        data = xb.load(f"certified:{function}", seed=0, n_samples=2 * SAMPLES)
        images, used, targets = data.train[:SAMPLES]
        exact = data.train.shapley[:SAMPLES]
        try:
            model = build(f"certified:{name}", (1, 8, 8), 2)
            fitted = part.fit(model, [(images, used, targets)]) if hasattr(part, "fit") else part
            maps = maps_of(fitted, model, images, targets)
        except UnsupportedModelError:
            continue
        leak = xb.mass_outside(maps, used)
        yield {
            "elsewhere": math.nan if function == "cancellation" else leak,
            "cancellation": leak if function == "cancellation" else math.nan,
            "auc": xb.use_auc(maps, used),
            "ap": xb.use_ap(maps, used),
            "error": shapley_error(maps.double(), exact),
            "signs": sign_agreement(maps, exact),
        }


def row(name: str, part: Any) -> list[str]:
    found = list(scores(part))
    if not found:
        return []
    means = {key: np.nanmean([one[key] for one in found]) for key in found[0]}
    shown = ("–" if math.isnan(value) else f"{value:.2f}" for value in means.values())
    return [name, str(len(found)), *shown]


def parts() -> dict[str, Any]:
    """Return every explainer, and two with the paper's numbers of perturbations."""
    named = {name: (name, {}) for name in EXPLAINERS} | ALSO
    return {name: build_explainer(use, **parameters) for name, (use, parameters) in named.items()}


def hand_set() -> list[list[str]]:
    """Return the table of the hand-set networks."""
    return [HEAD, *filter(None, (row(name, part) for name, part in parts().items()))]


def probe() -> list[list[str]]:
    """Return the table of the CNNs that were trained on LIN-WHITE and see a part of it."""
    data = xb.load("xai-tris/lin-white-8x8", seed=0, n_samples=4000)
    leaks: dict[str, list[float]] = {}
    distances: dict[str, list[float]] = {}
    for seen, place in SEEN.items():
        visible = torch.zeros(8, 8, dtype=torch.bool)
        visible[place] = True
        model = blind(build("cnn", (1, 8, 8), 2, seed=0), visible)
        trained = fit(model, data.train, data.val, **PROBE)
        print(f"the CNN that sees {seen} of the pattern: validation accuracy {trained.val_accuracy:.3f}")
        images, masks, targets = explained(model, data.test, every=seen == "none")
        for name, part in parts().items():
            with contextlib.suppress(UnsupportedModelError):
                fitted = part.fit(model, [data.train[:]]) if hasattr(part, "fit") else part
                maps = maps_of(fitted, model, images, targets)
                leaks.setdefault(name, []).append(xb.mass_outside(maps, visible.expand_as(masks)))
                distances.setdefault(name, []).append(xb.emd_perf(maps, masks))
    order = sorted(leaks, key=lambda name: leaks[name][1])  # by the leak of the one that sees half
    return [PROBE_HEAD, *([name, *(f"{value:.2f}" for value in (*leaks[name], *distances[name]))] for name in order)]


def explained(model: nn.Module, test: Any, *, every: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return a hundred images that the model classifies correctly, or the first hundred."""
    images, masks, targets = test[:]
    with torch.inference_mode():
        right = (model(images).argmax(1) == targets) | every
    chosen = right.nonzero().flatten()[: 2 * SAMPLES]
    return images[chosen], masks[chosen], targets[chosen]


def block(title: str, head: list[str], *rows: list[str]) -> str:
    """Write the whole table as CSV, and return a link to it and the rows that the page shows."""
    link = csv_link(f"certified-{title.replace(' ', '-').lower()}", "All explainers (CSV)", head, rows)
    shown = [[f"`{name}`", *cells] for name, *cells in rows if name in SHOWN]
    return f"{table(head, shown)}\n\n{link}\n"


def main() -> None:
    warnings.simplefilter("ignore")
    text = PAGE.read_text(encoding="utf-8")
    tables = {"parts of LIN-WHITE": probe, "every explainer": hand_set}
    for title in sys.argv[1:] or tables:
        start, made = START.format(title), block(title, *tables[title]())
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{made}\n{END}{rest.partition(END)[2]}"
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
