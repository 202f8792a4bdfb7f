"""A picture of what each metric measures, on one example: ``python docs/generate/pictures.py`` writes them all.

Every number in a picture is what the library's function returns for the example.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from example import Example, example
from map_pictures import (
    auc,
    average_precision,
    complexity,
    emd,
    emd_perf,
    hit,
    mass_accuracy,
    overlap,
    sparseness,
    topk_precision,
)  # fmt: skip
from model_pictures import (
    adversarial,
    average_drop,
    curve_picture,
    data_consistency,
    erasure,
    increase_in_confidence,
    infidelity,
    parameter_randomisation,
    road,
    sensitivity_max,
)  # fmt: skip

FOLDER = Path(__file__).parents[1] / "images" / "metrics"

#: Metric -> what draws it.
PICTURES: dict[str, Callable[[Example], str]] = {
    "emd_perf": emd_perf,
    "emd": emd,
    "topk_precision": topk_precision,
    "mass_accuracy": mass_accuracy,
    "iou": overlap("iou", "green", "any colour", lambda both, chosen, truth: (both, chosen + truth - both)),
    "precision": overlap("precision", "green", "(green + orange)", lambda both, chosen, truth: (both, chosen)),
    "recall": overlap("recall", "green", "(green + grey)", lambda both, chosen, truth: (both, truth)),
    "f1": overlap("f1", "2 · green", "(map + ground truth)", lambda both, chosen, truth: (2 * both, chosen + truth)),
    "hit": hit,
    "auc": auc,
    "average_precision": average_precision,
    "sparseness": sparseness,
    "complexity": complexity,
    "deletion": lambda e: curve_picture(e, "deletion", reveal=False),
    "insertion": lambda e: curve_picture(e, "insertion", reveal=True),
    "average_drop": average_drop,
    "increase_in_confidence": increase_in_confidence,
    "comprehensiveness": lambda e: erasure(e, "comprehensiveness", reveal=False),
    "sufficiency": lambda e: erasure(e, "sufficiency", reveal=True),
    "adversarial": adversarial,
    "infidelity": infidelity,
    "road": road,
    "data_consistency": data_consistency,
    "sensitivity_max": sensitivity_max,
    "parameter_randomisation": parameter_randomisation,
}


def pictures() -> dict[str, str]:
    """Metric to SVG."""
    shown = example()
    return {name: draw(shown) for name, draw in PICTURES.items()}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures().items():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"wrote {len(PICTURES)} pictures to {FOLDER}")


if __name__ == "__main__":
    main()
