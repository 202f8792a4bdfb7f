"""The table of docs/certified.md: what every explainer makes of networks of which it is certain what they use.

python docs/generate/certified.py      # a few minutes; writes the table into docs/certified.md
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

import xaibench as xb
from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.explainers import build as build_explainer
from xaibench.metrics import shapley_error, sign_agreement
from xaibench.models import build
from xaibench.models.certified.hand_set import HAND_SET

PAGE = Path(__file__).parents[1] / "certified.md"
START, END = "<!-- every explainer -->\n", "<!-- until here -->\n"
SAMPLES = 50
#: Of the paper's runs, beside the library's own number of perturbations.
ALSO = {"kernel_shap, 25 samples": ("kernel_shap", {"n_samples": 25}), "lime, 50 samples": ("lime", {"n_samples": 50})}

HEAD = (
    "| explainer | networks | leak, without cancellation | leak, cancellation | use AUC | use AP | Shapley error "
    "| signs |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|\n"
)


def maps_of(part: Any, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    fitted = part.fit(model, [images]) if hasattr(part, "fit") else part
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


def table() -> str:
    parts = {name: (name, {}) for name in EXPLAINERS} | ALSO
    return HEAD + "".join(row(name, build_explainer(use, **parameters)) for name, (use, parameters) in parts.items())


def main() -> None:
    warnings.simplefilter("ignore")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{table()}\n{END}{after}", encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
