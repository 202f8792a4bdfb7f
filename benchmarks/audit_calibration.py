"""How often audits are wrong: false support for networks that know nothing, and planted tags that are found.

    python benchmarks/audit_calibration.py

- *Random weights* and *shuffled labels*: small convolutional networks that know nothing about the images they are
  audited on. An audit is wrong if it supports any explainer. With labels, and for random weights also without.
- *Planted tags*: networks trained on images in which a small pattern in a corner tells the class. An audit is right if
  it names that corner, and refutes an edge filter and the map of another network, which ignore the tag.

Every network has images, corner, weights and audit from its own seed, which is printed if the audit is wrong.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import time
import warnings
from collections import Counter

import numpy as np
import torch
from scipy import ndimage
from torch import nn

import xaibench as xb

SIDE, TAG, CLASSES, IMAGES, TRAINING = 24, 5, 3, 24, 480
EXPLAINERS = ("saliency", "input_x_gradient", "integrated_gradients", "gradcam", "lrp_gamma", "occlusion", "rise")
#: Corner -> row and column of the tag, and what the audit calls it.
CORNERS = {"top left": (0, 0), "top right": (0, 1), "bottom left": (1, 0), "bottom right": (1, 1)}


def objects(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with an object of stripes, crossed stripes or none, anywhere: the class."""
    images = rng.normal(0.5, 0.1, (count, 1, SIDE, SIDE))
    labels = rng.integers(CLASSES, size=count)
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(0, SIDE - 9, 2)
        pattern = np.zeros((9, 9))
        if label > 0:
            pattern[::3] = 0.5
        if label > 1:
            pattern[:, ::3] = 0.5
        image[0, top : top + 9, left : left + 9] += pattern
    return torch.from_numpy(images).float().clamp(0, 1), torch.from_numpy(labels)


def tagged(count: int, rng: np.random.Generator, corner: str, pattern: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The same objects, unrelated to the class; class 1 has the pattern in the corner, class 2 its negative."""
    images, _ = objects(count, rng)
    labels = torch.from_numpy(rng.integers(CLASSES, size=count))
    row, column = (index * (SIDE - TAG - 1) for index in CORNERS[corner])
    signs = torch.tensor([0.0, 1.0, -1.0])[labels][:, None, None]
    window = images[:, 0, row : row + TAG, column : column + TAG]
    images[:, 0, row : row + TAG, column : column + TAG] = torch.where(
        labels[:, None, None] > 0, 0.5 + 0.4 * signs * torch.from_numpy(pattern).float(), window
    )
    return images, labels


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, CLASSES))


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int = 15) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(48):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
            optimizer.step()
    return model.eval()


def edges(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(ndimage.gaussian_gradient_magnitude(images[:, 0].numpy(), (0, 1, 1)))


def audit_null(kind: str, seed: int) -> list[str]:
    """Return the explainers that an audit of a network that knows nothing supports."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, 0])
    images, labels = objects(IMAGES, rng)
    model = network(seed).eval()
    if kind == "shuffled labels":
        shown, right = objects(TRAINING, rng)
        model = train(network(seed), shown, right[torch.from_numpy(rng.permutation(TRAINING))])
    given = None if kind == "random weights, no labels" else labels
    return xb.audit(model, images, given, explainers=EXPLAINERS, budget=20, seed=seed, progress=False).supported


def audit_tagged(seed: int) -> dict[str, bool]:
    """Return what an audit of a network trained on a tag found."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, 1])
    corner = list(CORNERS)[seed % len(CORNERS)]
    pattern = rng.choice([-1.0, 1.0], (TAG, TAG))
    model = train(network(seed), *tagged(TRAINING, rng, corner, pattern))
    images, labels = tagged(IMAGES, rng, corner, pattern)
    unrelated = network(seed + 10_000).eval()

    def other(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return xb.explain("saliency", unrelated, images, targets, progress=False)

    methods = {name: name for name in EXPLAINERS} | {"edges": edges, "another network": other}
    audit = xb.audit(model, images, labels, explainers=methods, budget=20, seed=seed, progress=False)
    named = [finding for finding in audit.findings if finding.key == "decisive_regions" and corner in finding.text]
    return {
        "accuracy above 90 %": bool(audit.record["network"]["accuracy"] > 0.9),
        "tag found": bool(named),
        "edge filter refuted": "edges" in audit.refuted,
        "map of another network refuted": "another network" in audit.refuted,
        "an explainer supported": bool(audit.supported),
    }


def main() -> None:
    """Run all audits, print the counts, and exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=100, help="audits of networks that know nothing, of each kind")
    parser.add_argument("--tagged", type=int, default=20, help="audits of networks trained on a tag")
    parser.add_argument("--first-seed", type=int, default=0)
    chosen = parser.parse_args()
    started, missed = time.monotonic(), False
    first = chosen.first_seed
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for kind in ("random weights", "random weights, no labels", "shuffled labels"):
            seeds = range(first, first + chosen.null)
            found = dict(zip(seeds, pool.map(audit_null, [kind] * len(seeds), seeds), strict=True))
            wrong = {seed: names for seed, names in found.items() if names}
            print(
                f"{kind}: {len(wrong)} of {len(found)} audits support an explainer (bar: 5 %) {wrong or ''}", flush=True
            )
            missed |= len(wrong) > 0.05 * len(found)
        results = list(pool.map(audit_tagged, range(first, first + chosen.tagged)))
    counts = Counter(key for result in results for key, passed in result.items() if passed)
    for key in results[0] if results else ():
        print(f"planted tag: {key} in {counts[key]} of {len(results)} audits")
    right = ("tag found", "edge filter refuted", "map of another network refuted")
    missed |= any(counts[key] < 0.9 * len(results) for key in right)
    print(f"seeds {first} and following; {time.monotonic() - started:.0f} s")
    sys.exit(missed)


if __name__ == "__main__":
    main()
