"""The tables of docs/certified.md: what every explainer makes of networks of which it is certain what they use.

python docs/generate/certified.py      # a few minutes; writes the tables into docs/certified.md
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import xaibench as xb
from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.explainers import build as build_explainer
from xaibench.metrics import shapley_error, sign_agreement
from xaibench.models import blind, build, fit
from xaibench.models.certified.hand_set import HAND_SET

PAGE = Path(__file__).parents[1] / "certified.md"
START, END = "<!-- {} -->\n", "<!-- until here -->\n"
SAMPLES = 50
#: Of the paper's runs, beside the library's own number of perturbations.
ALSO = {"kernel_shap, 25 samples": ("kernel_shap", {"n_samples": 25}), "lime, 50 samples": ("lime", {"n_samples": 50})}

HEAD = (
    "| explainer | networks | leak, without cancellation | leak, cancellation | use AUC | use AP | Shapley error "
    "| signs |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|\n"
)


#: Of the networks that see half of the image: how they are trained, and on what.
PROBE = {"epochs": 60, "batch_size": 128, "lr": 0.004, "seed": 0, "progress": False, "device": "cpu"}
PROBE_HEAD = "| explainer | leak (use) | EMD performance (data) |\n|---|--:|--:|\n"


def maps_of(part: Any, model: nn.Module, images: Tensor, targets: Tensor, *, fit: bool = True) -> Tensor:
    fitted = part.fit(model, [images]) if fit and hasattr(part, "fit") else part
    output = None if getattr(part, "explains_only", False) else "logit"
    return xb.explain(fitted, model, images, targets, device="cpu", output=output)


def scores(part: Any) -> Iterator[dict[str, float]]:
    """Of each network that it can explain, the means over its samples."""
    for name in HAND_SET:
        function = name.rpartition("-")[0]
        data = xb.load(f"certified:{function}", seed=0, n_samples=2 * SAMPLES)
        images, used, targets = data.train[:SAMPLES]
        exact = data.train.shapley[:SAMPLES]
        try:
            maps = maps_of(part, build(f"certified:{name}", (1, 8, 8), 2), images, targets)
        except UnsupportedModelError:
            continue
        leak = xb.leak(maps, used)
        yield {
            "elsewhere": math.nan if function == "cancellation" else leak,
            "cancellation": leak if function == "cancellation" else math.nan,
            "auc": xb.use_auc(maps, used),
            "ap": xb.use_ap(maps, used),
            "error": shapley_error(maps.double(), exact),
            "signs": sign_agreement(maps, exact),
        }


def row(name: str, part: Any) -> str:
    found = list(scores(part))
    if not found:
        return ""
    means = {key: np.nanmean([one[key] for one in found]) for key in found[0]}
    return f"| `{name}` | {len(found)} | " + " | ".join(f"{value:.2f}" for value in means.values()) + " |\n"


def parts() -> dict[str, Any]:
    """Every explainer, and two with the papers' numbers of perturbations."""
    named = {name: (name, {}) for name in EXPLAINERS} | ALSO
    return {name: build_explainer(use, **parameters) for name, (use, parameters) in named.items()}


def table() -> str:
    """Of the networks that are set by hand."""
    return HEAD + "".join(row(name, part) for name, part in parts().items())


def probe() -> str:
    """Of a CNN that was trained on LIN-WHITE and sees the left half, where the T lies: two truths of one map."""
    data = xb.load("xai-tris/lin-white-8x8", seed=0, n_samples=4000)
    left = torch.zeros(8, 8, dtype=torch.bool)
    left[:, :4] = True
    model = blind(build("cnn", (1, 8, 8), 2, seed=0), left)
    trained = fit(model, data.train, data.val, **PROBE)
    print(f"the CNN that sees half of LIN-WHITE: validation accuracy {trained.val_accuracy:.3f}")
    images, masks, targets = data.test[:]
    with torch.inference_mode():
        right = (model(images).argmax(1) == targets).nonzero().flatten()[: 2 * SAMPLES]
    found = []
    for name, part in parts().items():
        with contextlib.suppress(UnsupportedModelError):
            fitted = part.fit(model, [data.train.images]) if hasattr(part, "fit") else part
            maps = maps_of(fitted, model, images[right], targets[right], fit=False)
            leak, distance = xb.leak(maps, left.expand(len(right), 8, 8)), xb.emd_perf(maps, masks[right])
            found.append((leak, f"| `{name}` | {leak:.2f} | {distance:.2f} |\n"))
    return PROBE_HEAD + "".join(line for _, line in sorted(found, key=lambda one: one[0]))


def main() -> None:
    warnings.simplefilter("ignore")
    text = PAGE.read_text(encoding="utf-8")
    for title, made in (("half of LIN-WHITE", probe()), ("every explainer", table())):
        start = START.format(title)
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{made}\n{END}{rest.partition(END)[2]}"
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
