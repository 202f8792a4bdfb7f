"""How often audits are wrong: false support, false refutation, tags that are missed, wrong maps that are not refuted.

    python speed/audit_calibration.py --photographs FOLDER --csv docs/tables/audit-calibration.csv

- *False support*: small convolutional networks that know nothing about the images they are audited on, with random
  weights (audited with labels and without) or trained on shuffled labels. An audit is wrong if it supports anything.
- *False refutation*: networks whose behavior is known, with explainers that are exact for them. Linear networks,
  networks that read the mean brightness or one corner, networks that add up what they find in each cell of a grid, and
  trained networks. Exact are Integrated Gradients and the occlusion of single cells; for linear networks also the
  gradient, and the gradient times the input. An audit is wrong if it refutes any of them.
- *Planted tags*: networks trained on images in which a pattern in a corner tells the class. An audit is right if it
  names that corner, and refutes an edge filter and the map of another network, which ignore the tag.

All of this on five kinds of images of 24×24 pixels (noise, photographs, photographs in a disc whose surroundings are
black, photographs for a network that looks at a disc only, and dark images of 16-bit scanners) and with five kinds of
outputs (one sigmoid, two, three and ten classes, three labels). Every audit has its images, weights and kinds from its
own seed, which is printed if the audit is wrong. Without ``--photographs``, cloudy noise takes their place.
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import torch
from measuring import command_line
from scipy import ndimage
from torch import nn

import xaibench as xb
from xaibench.data.disk.file_readers import opened_image

SIDE, TAG, PATTERN, IMAGES, TRAINING = 24, 5, 9, 24, 480
EXPLAINERS = ("saliency", "input_x_gradient", "integrated_gradients", "gradcam", "lrp_gamma", "occlusion", "rise")
#: Corner -> row and column of the tag, and what the audit calls it.
CORNERS = {"top left": (0, 0), "top right": (0, 1), "bottom left": (1, 0), "bottom right": (1, 1)}
SCENES = ("noise", "photographs", "black background", "cropping network", "16 bit")
#: Kind of outputs -> number of outputs and of classes.
OUTPUTS = {
    "one sigmoid": (1, 2),
    "two classes": (2, 2),
    "three classes": (3, 3),
    "ten classes": (10, 10),
    "three labels": (3, 3),
}
T = TypeVar("T")
#: Networks with known behavior.
KNOWN = ("linear", "brightness", "corner", "additive", "trained")


@dataclass(frozen=True)
class Case:
    """One audit: its seed decides everything else."""

    seed: int
    photographs: str | None

    @property
    def scene(self) -> str:
        """Return the kind of images."""
        return SCENES[self.seed % len(SCENES)]

    @property
    def outputs(self) -> str:
        """Return the kind of outputs."""
        return list(OUTPUTS)[self.seed // len(SCENES) % len(OUTPUTS)]

    @property
    def known(self) -> str:
        """Return the kind of network with known behavior."""
        return KNOWN[(self.seed + self.seed // 5 + self.seed // 25) % len(KNOWN)]  # all combinations within 125 seeds

    @property
    def corner(self) -> str:
        """Return the corner of the tag."""
        return list(CORNERS)[self.seed % len(CORNERS)]

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return OUTPUTS[self.outputs][1]

    def rng(self, what: int) -> np.random.Generator:
        """Return random numbers for one purpose."""
        return np.random.default_rng([self.seed, what])


@functools.cache
def crops(folder: str | None) -> np.ndarray:
    """Return gray crops ``[n, SIDE, SIDE]`` of photographs, at a quarter of their resolution, or of clouds."""
    rng = np.random.default_rng(0)
    found = []
    for path in sorted(Path(folder).rglob("*.jp*g"))[:400] if folder else ():
        with opened_image(path) as image:
            pixels = np.asarray(image.convert("L").reduce(4), dtype=np.float64) / 255
        for _ in range(3 if min(pixels.shape) >= SIDE else 0):
            top, left = (int(rng.integers(side - SIDE + 1)) for side in pixels.shape)
            found.append(pixels[top : top + SIDE, left : left + SIDE])
    while len(found) < 600:
        clouds = sum(ndimage.gaussian_filter(rng.normal(size=(SIDE, SIDE)), width) * width for width in (1, 2, 4, 8))
        found.append((clouds - clouds.min()) / np.ptp(clouds))
    return np.stack(found)


def disc(share: float) -> np.ndarray:
    """Return a mask of a disc in the middle that covers a share of the image."""
    rows, columns = np.indices((SIDE, SIDE)) - (SIDE - 1) / 2
    distance = rows**2 + columns**2
    return distance <= np.quantile(distance, share)


def backgrounds(case: Case, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return images ``[count, SIDE, SIDE]`` in [0, 1], and where they are not black."""
    area = (
        disc(float(case.rng(5).uniform(0.05, 0.5))) if case.scene == "black background" else np.ones((SIDE, SIDE), bool)
    )
    if case.scene == "noise":
        images = rng.normal(0.5, 0.1, (count, SIDE, SIDE))
    else:
        images = 0.2 + 0.6 * rng.choice(crops(case.photographs), count)
    return images * area, area


def finish(case: Case, images: np.ndarray) -> torch.Tensor:
    images = images.clip(0, 1)
    if case.scene == "16 bit":  # few of the 65,536 values, and most of them dark
        images = np.round(images**3 * 6000) / 65535
    return torch.from_numpy(images[:, None]).float()


def objects(case: Case, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images with one pattern of the class, anywhere near the middle."""
    patterns = case.rng(6).choice([-0.35, 0.35], (case.classes, 3, 3)).repeat(3, 1).repeat(3, 2)
    images, area = backgrounds(case, count, rng)
    labels = rng.integers(case.classes, size=count)
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(4, SIDE - PATTERN - 3, 2)
        image[top : top + PATTERN, left : left + PATTERN] += patterns[label]
    return finish(case, images * area), torch.from_numpy(labels)


def tagged(case: Case, count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The same objects, unrelated to the class; every class but the first has its pattern in the corner."""
    patterns = case.rng(7).choice([0.1, 0.9], (case.classes, TAG, TAG))
    images, area = backgrounds(case, count, rng)
    labels = rng.integers(case.classes, size=count)
    row, column = (index * (SIDE - TAG - 1) for index in CORNERS[case.corner])
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(4, SIDE - PATTERN - 3, 2)
        image[top : top + PATTERN, left : left + PATTERN] += 0.3 * rng.choice([-1, 1])
        image *= area
        if label:
            image[row : row + TAG, column : column + TAG] = patterns[label]
    return finish(case, images), torch.from_numpy(labels)


class Function(nn.Module):
    """A function of the images as a network."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the outputs."""
        return self.function(images)


def network(case: Case, kind: str = "trained", seed: int | None = None) -> nn.Module:
    """Return a network with random weights."""
    torch.manual_seed(case.seed if seed is None else seed)
    outputs = OUTPUTS[case.outputs][0]
    layers: list[nn.Module]
    if kind == "trained":
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)]
        layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, outputs)]
    elif kind == "linear":
        layers = [nn.Flatten(), nn.Linear(SIDE**2, outputs)]
    elif kind == "additive":
        layers = [nn.Conv2d(1, 8, 4, stride=4), nn.ReLU()]
        layers += [Function(lambda maps: maps.sum((2, 3))), nn.Linear(8, outputs)]
    else:
        side = 8 if kind == "corner" else SIDE
        layers = [Function(lambda images: images[:, :, :side, :side].mean((2, 3))), nn.Linear(1, outputs)]
        nn.init.normal_(layers[1].weight, std=20)
    if case.scene == "cropping network":
        area = torch.from_numpy(disc(0.4)).float()
        layers.insert(0, Function(lambda images: images * area))
    return nn.Sequential(*layers).eval()


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, case: Case, epochs: int = 15) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    scale = 1 / float(images.std())  # also dark images are learned
    truth = given_labels(case, labels)
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(48):
            optimizer.zero_grad()
            logits = model(images[part] * scale)
            if output_of(case):
                loss = nn.functional.binary_cross_entropy_with_logits(logits, truth[part].reshape(logits.shape).float())
            else:
                loss = nn.functional.cross_entropy(logits, labels[part])
            loss.backward()
            optimizer.step()
    return nn.Sequential(Function(lambda images: images * scale), model).eval()


def given_labels(case: Case, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.one_hot(labels, 3) if case.outputs == "three labels" else labels


def output_of(case: Case) -> str | None:
    return "sigmoid" if case.outputs in ("one sigmoid", "three labels") else None


def run_audit(case: Case, model: nn.Module, images: torch.Tensor, labels: torch.Tensor | None, explainers: object):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return xb.audit(
        model,
        images,
        None if labels is None else given_labels(case, labels),
        explainers=explainers,
        output=output_of(case),
        budget=20,
        seed=case.seed,
        progress=False,
    )


def edges(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """An edge filter."""
    return torch.from_numpy(ndimage.gaussian_gradient_magnitude(images[:, 0].numpy(), (0, 1, 1)))


def cells(case: Case) -> Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Exact occlusion: how much the logit falls when a cell of 4×4 pixels is black."""

    def explain(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        def ask(shown: torch.Tensor) -> torch.Tensor:
            logits = model(shown)
            logits = torch.cat([-logits, logits], 1) if logits.shape[1] == 1 else logits
            return logits.gather(1, targets[:, None])[:, 0]

        maps = torch.zeros(len(images), SIDE, SIDE)
        with torch.no_grad():
            whole = ask(images)
            for top in range(0, SIDE, 4):
                for left in range(0, SIDE, 4):
                    changed = images.clone()
                    changed[:, :, top : top + 4, left : left + 4] = 0
                    maps[:, top : top + 4, left : left + 4] = (whole - ask(changed))[:, None, None]
        return maps

    return explain


def false_support(kind: str, case: Case) -> list[str]:
    """Return the explainers that an audit of a network that knows nothing supports."""
    images, labels = objects(case, IMAGES, case.rng(0))
    model = network(case)
    if kind == "shuffled labels":
        rng = case.rng(1)
        shown, right = objects(case, TRAINING, rng)
        model = train(model, shown, right[torch.from_numpy(rng.permutation(TRAINING))], case)
    return run_audit(case, model, images, None if "no labels" in kind else labels, EXPLAINERS).supported


def false_refutation(case: Case) -> list[str]:
    """Return the exact explainers that an audit refutes."""
    images, labels = objects(case, IMAGES, case.rng(0))
    model = network(case, case.known)
    if case.known == "trained":
        model = train(model, *objects(case, TRAINING, case.rng(1)), case)
    exact: dict[str, object] = {"integrated_gradients": "integrated_gradients", "cells": cells(case)}
    if case.known in ("linear", "brightness", "corner"):
        exact |= {"input_x_gradient": "input_x_gradient", "saliency": "saliency"}
    return run_audit(case, model, images, labels, exact).refuted


def find_tag(case: Case) -> dict[str, bool]:
    """Return what an audit of a network trained on a tag found."""
    model = train(network(case), *tagged(case, TRAINING, case.rng(1)), case)
    images, labels = tagged(case, IMAGES, case.rng(2))
    unrelated = network(case, seed=case.seed + 10_000)

    def other(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return xb.explain("saliency", unrelated, images, targets, output=output_of(case), progress=False)

    methods = {name: name for name in EXPLAINERS} | {"edges": edges, "another network": other}
    audit = run_audit(case, model, images, labels, methods)
    named = [one for one in audit.findings if one.key == "decisive_regions" and case.corner in one.text]
    return {
        "network learned the tag": bool(audit.network.passed),
        "tag found": bool(named),
        "edge filter refuted": "edges" in audit.refuted,
        "map of another network refuted": "another network" in audit.refuted,
        "an explainer supported": bool(audit.supported),
    }


def main() -> None:
    """Run all audits, print the counts, and exit with 1 if a bar is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--null", type=int, default=100, help="audits of networks that know nothing, of each kind")
    parser.add_argument("--exact", type=int, default=250, help="audits of networks with known behavior")
    parser.add_argument("--tagged", type=int, default=50, help="audits of networks trained on a tag")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--photographs", help="folder with JPEG files")
    parser.add_argument("--csv", type=Path, help="file of the table")
    chosen = parser.parse_args()
    started, rows = time.monotonic(), []

    def report(kind: str, what: str, found: dict[Case, object], bar: str) -> None:
        """Count the cases whose result is not empty, and print those that speak against the library."""
        for scene in (*SCENES, "all"):
            counted = [bool(result) for case, result in found.items() if scene in (case.scene, "all")]
            row = {"networks": kind, "result": what, "images": scene, "audits": len(counted), "count": sum(counted)}
            rows.append(row | {"bar": bar})
        bad = [case for case, result in found.items() if bool(result) == bar.startswith("at most")]
        details = {case.seed: (case.outputs, case.scene, found[case]) for case in bad}
        print(f"{kind}: {what}: {sum(counted)} of {len(counted)} (bar: {bar}) {details or ''}", flush=True)

    def audits(function: Callable[[Case], T], count: int) -> dict[Case, T]:
        cases = [Case(seed, chosen.photographs) for seed in range(chosen.first_seed, chosen.first_seed + count)]
        return dict(zip(cases, pool.map(function, cases), strict=True))

    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for kind in ("random weights", "random weights, no labels", "shuffled labels"):
            found = audits(functools.partial(false_support, kind), chosen.null)
            report(kind, "supports an explainer", found, "at most 5 %")
        found = audits(false_refutation, chosen.exact)
        for kind in KNOWN:
            own = {case: names for case, names in found.items() if case.known == kind}
            report(kind, "refutes an exact explainer", own, "at most 5 %")
        tags = audits(find_tag, chosen.tagged)
        learned = {case: result for case, result in tags.items() if result["network learned the tag"]}
        for key in next(iter(tags.values()), {}):
            bar = "at least 90 %" if key.endswith(("found", "refuted")) else "for information"
            report("trained on a tag", key, {case: result[key] for case, result in learned.items()}, bar)
    table = pd.DataFrame(rows)
    too_many = (table["bar"] == "at most 5 %") & (table["count"] > 0.05 * table["audits"])
    too_few = (table["bar"] == "at least 90 %") & (table["count"] < 0.9 * table["audits"])
    missed = table[(table["images"] == "all") & (too_many | too_few)].to_dict("records")
    if chosen.csv:
        table.to_csv(chosen.csv, index=False)
    table["counts"] = table["count"].astype(str) + " of " + table["audits"].astype(str)
    print(table.pivot(index=["networks", "result", "bar"], columns="images", values="counts").to_string())
    print(f"seeds {chosen.first_seed} and following; {time.monotonic() - started:.0f} s; missed: {missed or 'none'}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
