"""Support, time and memory of every explainer on convolutional networks and transformers.

    OMP_NUM_THREADS=1 python benchmarks/networks.py

writes docs/explainers-networks.md; on Linux, and with timm installed. Half an hour on one core. Names of networks or
explainers print a part of the page instead: ``--networks swin_t --explainers gradcam deeplift``. With ``--update``, all
explainers are measured on the named networks, whose columns of the page are replaced or added.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import importlib
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import xaibench as xb
from xaibench.compute.random_numbers import isolated_rng
from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.models import build

PAGE = Path(__file__).parents[1] / "docs" / "explainers-networks.md"
HEAD = """---
hide: [toc]
---

# Supported networks

Find out whether an explainer supports your network, and its cost. Every explainer on {networks} networks with
random weights and 1000 classes, one image of 224×224 pixels (two for PFI, which swaps values between images; its
time is for one). The last {volumes} networks are of three axes, for a volume of {shape} voxels. A dash with a number is
the [message](#why-not) of `UnsupportedModelError`. The last rows are controls, which do not use the network; their time
is spent on the checks in `explain`. [Explainers](explainers.md) describes the methods.

{ran} of {cells} run, {refused} refuse{stopped}. Memory is in a [CSV file](tables/explainers-memory.csv): MiB at the
peak beyond the memory before the call, without the weights of the network.

## Milliseconds

Processor time on one core of a machine that also did other work: compare them with the first two rows. Median of up to
{repeats} calls, ± half of the range; one call without ±. Expensive methods have few passes:

{few}

"""
MEMORY = Path(__file__).parents[1] / "docs" / "tables" / "explainers-memory.csv"
REFUSED = "\n## Why not\n\n"
TORCHVISION = ("convnext_tiny", "swin_t", "r3d_18", "swin3d_t")
TIMM = {"timm vit_tiny": "vit_tiny_patch16_224", "timm deit_tiny": "deit_tiny_patch16_224"}
#: Networks of volumes, of torchvision, and the volume.
VOLUMES, VOLUME = ("r3d_18", "swin3d_t"), (3, 16, 64, 64)
NETWORKS = ("resnet18", "densenet121", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t", *TIMM, *VOLUMES)
#: What makes the slow ones quick.
FEW: dict[str, dict[str, Any]] = {
    **{name: {"n_samples": 10, "feature_mask": "grid"} for name in ("lime", "kernel_shap")},
    "pfi": {"feature_mask": "grid", "cell_size": 56},
    "shapley_sampling": {"n_samples": 1, "feature_mask": "grid", "cell_size": 56},
    **{name: {"n_steps": 5} for name in ("integrated_gradients", "guided_ig", "blur_ig", "ig2", "xrai")},
    "random_baseline_ig": {"n_steps": 5, "n_baselines": 1},
    "expected_gradients": {"n_samples": 5, "n_baselines": 5},
    **{name: {"n_samples": 5} for name in ("smoothgrad", "smoothgrad_squared", "vargrad", "gradient_pattern")},
    "agop": {"outputs": "predicted"},
    "pattern_local": {"n_samples": 10},
    "rise": {"n_masks": 10},
    "sobol": {"n_designs": 2, "grid_size": 2},
    "hsic": {"n_samples": 10},
    "occlusion": {"window": 56, "stride": 56},
}
#: Precision where float32 does not hold the maps: through many layers those of the patterns leave its range.
PRECISE = ("pattern_net", "pattern_attribution")
#: What is loaded before the clock starts.
LIBRARIES = ("captum.attr", "scipy.ndimage", "skimage.segmentation", "sklearn.linear_model")
#: Calls of a cell at most, and the seconds after which none is begun any more.
REPEATS, ENOUGH = 3, 1.0
#: Seconds after which a cell is given up: ScoreCAM and Ablation-CAM take a pass for each of up to a thousand features.
LIMIT = 20.0


class TooLongError(Exception):
    """A cell took longer than :data:`LIMIT`."""


@dataclass
class Cell:
    """Result of one explainer on one network: milliseconds and MiB of each call, or the reason for none."""

    milliseconds: list[float] = field(default_factory=list)
    mebibytes: list[float] = field(default_factory=list)
    stopped: bool = False
    refusal: str = ""

    def time(self) -> str:
        """The median, ± half the range where there is one."""
        spread = (max(self.milliseconds) - min(self.milliseconds)) / 2
        beside = f"\N{NO-BREAK SPACE}±{spread:,.0f}" if len(self.milliseconds) > 1 else ""
        return f"{median(self.milliseconds):,.0f}{beside}"

    def memory(self) -> str:
        """The median."""
        return f"{median(self.mebibytes):,.0f}"


def network(name: str) -> nn.Module:
    """One of them, for 1000 classes, with a head that is not zero."""
    with isolated_rng(0):
        if name in TIMM:
            import timm

            model: nn.Module = timm.create_model(TIMM[name])
        elif name in TORCHVISION:
            import torchvision

            model = torchvision.models.get_model(name, weights=None)
        else:
            model = build(name, (3, 224, 224), 1000, weights=None)
        head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        nn.init.normal_(head.weight, std=0.02)  # torchvision's ViT begins with zeros
    return model.eval()


def resident(line: str) -> float:
    """MiB, by a line of the process' status: now (``VmRSS``), or at the peak (``VmHWM``)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(each for each in status if each.startswith(line)).split()[1]) / 1024


def measured(call: Callable[[], object], images: int = 1) -> Cell:
    """Milliseconds an image and MiB of each of a few calls, of one only where it takes long."""
    found = Cell()
    while len(found.milliseconds) < REPEATS and sum(found.milliseconds) < 1000 * ENOUGH / images:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        before, start = resident("VmRSS"), time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
        try:
            call()
        except TooLongError:
            return Cell(stopped=True)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        found.milliseconds.append(1000 * (time.process_time() - start) / images)
        found.mebibytes.append(max(0.0, resident("VmHWM") - before))
    return found


def cell(name: str, model: nn.Module, shape: Sequence[int]) -> Cell:
    """Measure an explainer, or return why it does not run."""
    explainer: Any = EXPLAINERS.resolve(name)(**FEW.get(name, {}))
    images = torch.rand(2 if name == "pfi" else 1, *shape, generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(len(images), dtype=torch.int64)
    given = {"dtype": torch.float64} if name in PRECISE else {}
    try:
        if hasattr(explainer, "fit"):
            several = torch.cat([images, images])
            explainer = explainer.fit(model, [(several, several[:, 0] > 0.5, targets)])
        return measured(lambda: xb.explain(explainer, model, images, targets, device="cpu", **given), len(images))
    except UnsupportedModelError as error:
        return Cell(refusal=str(error).removeprefix(f"{name}: "))


def column(each: str, names: Sequence[str]) -> dict[str, Cell]:
    """Measure one network: a forward pass, a pass with gradient, and every explainer."""
    model, shape = network(each), VOLUME if each in VOLUMES else (3, 224, 224)
    image = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))

    def gradient() -> Tensor:
        pixels = image.clone().requires_grad_()
        return torch.autograd.grad(model(pixels)[0, 0], pixels)[0]

    with torch.no_grad():
        found = {"*a pass*": measured(lambda: model(image))}
    found["*a gradient*"] = measured(gradient)
    for name in names:
        found[f"`{name}`"] = cell(name, model, shape)
        print(each, name, found[f"`{name}`"], file=sys.stderr, flush=True)
    return found


def few() -> list[str]:
    """A line for each setting of :data:`FEW`, with all that have it."""
    names: dict[str, list[str]] = {}
    for name, given in FEW.items():
        names.setdefault(", ".join(f"`{key}={value!r}`" for key, value in given.items()), []).append(f"`{name}`")
    return [f"- {', '.join(having)}: {given}" for given, having in names.items()]


def page(columns: dict[str, dict[str, Cell]]) -> tuple[str, list[list[str]]]:
    """Return the page with the milliseconds and the messages, and the rows of the table of memory."""
    every = [one for each in columns.values() for name, one in each.items() if name.startswith("`")]
    numbers = {text: at for at, text in enumerate(dict.fromkeys(one.refusal for one in every if one.refusal), 1)}
    stopped = sum(one.stopped for one in every)
    refused = sum(bool(one.refusal) for one in every)
    head = HEAD.format(
        networks=len(columns),
        volumes=len(VOLUMES),
        shape="×".join(map(str, VOLUME[1:])),
        cells=len(every),
        ran=len(every) - refused - stopped,
        refused=refused,
        stopped=f", {stopped} were stopped after {LIMIT:.0f} s" if stopped else "",
        repeats=REPEATS,
        few="\n".join(few()),
    )

    def table(shown: Callable[[Cell], str], instead: str) -> list[list[str]]:
        def text(one: Cell) -> str:
            if one.refusal:
                return f"– {numbers[one.refusal]}"
            return instead if one.stopped else shown(one)

        rows = next(iter(columns.values()))
        return [["", *columns], *([row, *(text(each[row]) for each in columns.values())] for row in rows)]

    messages = "".join(f"{number}. {message}\n" for message, number in numbers.items())
    heads, *rows = table(Cell.time, f"> {1000 * LIMIT:,.0f}")
    lines = [heads, ["---", *["--:"] * len(columns)], *rows]
    times = "".join(f"| {' | '.join(row)} |\n" for row in lines)
    text = f'{head}<div class="wide" markdown>\n\n{times}\n</div>\n' + (REFUSED + messages if messages else "")
    return text, table(Cell.memory, "stopped")


def read_page(text: str, memory: list[list[str]]) -> dict[str, dict[str, Cell]]:
    """Return the cells of a page and its table of memory, as far as they state them: :func:`page` makes both again."""
    messages = dict(re.findall(r"^(\d+)\. (.+)$", text.partition(REFUSED)[2], re.MULTILINE))
    lines = re.findall(r"^\|.*", text, re.MULTILINE)
    (_, *networks), _, *rows = ([each.strip() for each in line.split("|")[1:-1]] for line in lines)
    mebibytes = {row[0]: row[1:] for row in memory}
    found: dict[str, dict[str, Cell]] = {each: {} for each in networks}
    for name, *cells in rows:
        for each, written, stated in zip(networks, cells, mebibytes[name.strip("`*")], strict=True):
            found[each][name] = _read_cell(written, stated, messages)
    return found


def _read_cell(written: str, mebibytes: str, messages: dict[str, str]) -> Cell:
    if written.startswith("–"):
        return Cell(refusal=messages[written.removeprefix("– ")])
    if written.startswith(">"):
        return Cell(stopped=True)
    middle, *spread = (float(part.replace(",", "")) for part in written.replace("±", " ").split())
    times = [middle - spread[0], middle + spread[0]] if spread else [middle]
    return Cell(times, [float(mebibytes.replace(",", ""))])


def stop(signal_number: int, frame: object) -> None:
    """Handle the timer's signal."""
    raise TooLongError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--explainers", nargs="*", choices=list(EXPLAINERS), default=list(EXPLAINERS))
    parser.add_argument("--update", action="store_true", help="replace or add the columns of these networks")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    signal.signal(signal.SIGVTALRM, stop)
    for library in LIBRARIES:
        importlib.import_module(library)
    whole, kept, names = (arguments.networks, arguments.explainers) == (NETWORKS, list(EXPLAINERS)), {}, []
    if arguments.update:
        with MEMORY.open(encoding="utf-8", newline="") as file:
            kept = read_page(PAGE.read_text(encoding="utf-8"), list(csv.reader(file)))
        # The rows of the page, whose other columns are not measured again.
        names = [row.strip("`") for row in next(iter(kept.values())) if row.startswith("`")]
    columns = kept | {each: column(each, names or arguments.explainers) for each in arguments.networks}
    found, memory = page(columns)
    if whole or arguments.update:
        PAGE.write_text(found, encoding="utf-8")
        with MEMORY.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([[cell.strip("`*") for cell in row] for row in memory])
    else:
        print(found)


if __name__ == "__main__":
    main()
