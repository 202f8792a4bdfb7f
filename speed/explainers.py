"""Speed of explainers: per step with few changed values, on many networks, and of the check of a network.

    OMP_NUM_THREADS=1 python speed/explainers.py --steps

measures a step of Shapley sampling, PFI and Occlusion on the networks of XAI-TRIS, compared with the fastest bare
float64 pass per row over all batch sizes, and with a step by plain passes. Exits with 1 if a step of Shapley sampling
on the 64×64 CNN takes more than 8 % of the bare pass, or a map differs by more than 1e-9.

    OMP_NUM_THREADS=1 python speed/explainers.py --networks [NAME ...]

prints docs/tables/explainers-networks.csv: processor milliseconds per image of every explainer on networks with random
weights and 1000 classes, or why there is none. Half an hour on one core for all networks; needs timm.

    OMP_NUM_THREADS=1 python speed/explainers.py --check [--rounds 15]

measures what the check of a network (xaibench.network.contract) adds to the first and to a following call of
saliency and Integrated Gradients on ResNet-18. Exits with 1 if a following call takes more than 2 % longer.
"""

from __future__ import annotations

import csv
import functools
import signal
import statistics
import sys
import unittest.mock
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from measuring import command_line, in_turn, least_seconds, print_head, print_row, timed
from torch import Tensor, nn

from xaibench.explainers import EXPLAINERS, ExplainedOutput, UnsupportedModelError, explain
from xaibench.explainers.base import Explainer
from xaibench.explainers.perturbation.occlusion import Occlusion
from xaibench.explainers.perturbation.pfi import PFI
from xaibench.explainers.perturbation.shapley_sampling import ShapleySampling
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses
from xaibench.models import build
from xaibench.network import contract as network_contract


def plainly(method: Explainer, *arguments: Any) -> Tensor:
    """The maps from plain passes."""
    with unittest.mock.patch.object(IncrementalPasses, "find", return_value=None):
        return method(*arguments)


def cheapest_pass(model: ExplainedOutput, images: Tensor, rounds: int) -> float:
    """Return the processor milliseconds per row, for the fastest batch size."""
    found = []
    with torch.no_grad():
        for rows in (2**i for i in range(12 if images[0].numel() <= 64 else 8)):
            x, passes = images[:1].repeat(rows, 1, 1, 1), max(1, 128 // rows)
            seconds = least_seconds(lambda x=x, n=passes: [model(x) for _ in range(n)], rounds)
            found.append(1000 * seconds / rows / passes)
    return min(found)


def steps(rounds: int) -> bool:
    """Print the milliseconds per step and return whether they meet the target."""
    good = True
    print_head("network", "explainer", "bare pass", "plain step", "step", "of the bare pass", "largest difference")
    for kind, side, images in (("cnn", 64, 4), ("mlp", 64, 4), ("cnn", 8, 100), ("mlp", 8, 100)):
        model = ExplainedOutput(build(kind, in_shape=(1, side, side), num_classes=2).double().eval())
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(images, 1, side, side, dtype=torch.float64, generator=generator).clamp(-1, 1)
        y = torch.arange(images) % 2
        bare = cheapest_pass(model, x, rounds)
        for method in (ShapleySampling(n_samples=1 if side == 64 else 25), PFI(), Occlusion()):
            own, plain = functools.partial(method, model, x, y), functools.partial(plainly, method, model, x, y)
            error = (own() - plain()).abs().max().item()
            count = method.passes(x) / 1000
            step, whole = least_seconds(own, rounds) / count, least_seconds(plain) / count
            cells = [f"{bare:.4f}", f"{whole:.4f}", f"{step:.4f}", f"{step / bare:.1%}", f"{error:.0e}"]
            print_row(f"{kind} {side}×{side}", type(method).__name__, *cells)
            barred = (kind, side) == ("cnn", 64) and isinstance(method, ShapleySampling)
            good &= error < 1e-9 and (not barred or step < 0.08 * bare)
    return good


#: Parameters with few passes, except for explainers whose defaults are fast.
FEW: dict[str, dict[str, Any]] = {
    **{key: {"n_samples": 10, "feature_mask": "grid"} for key in ("lime", "kernel_shap")},
    "pfi": {"feature_mask": "grid", "cell_size": 56},
    "shapley_sampling": {"n_samples": 1, "feature_mask": "grid", "cell_size": 56},
    **{key: {"n_steps": 5} for key in ("integrated_gradients", "guided_ig", "blur_ig", "ig2", "xrai")},
    "random_baseline_ig": {"n_steps": 5, "n_baselines": 1},
    "expected_gradients": {"n_samples": 5, "n_baselines": 5},
    **{key: {"n_samples": 5} for key in ("smoothgrad", "smoothgrad_squared", "vargrad", "gradient_pattern")},
    **{key: {"n_samples": 10} for key in ("pattern_local", "hsic")},
    "agop": {"outputs": "predicted"},
    "rise": {"n_masks": 10},
    "sobol": {"n_designs": 2, "grid_size": 2},
    "occlusion": {"window": 56, "stride": 56},
}
#: Columns of the table; those of volumes last.
NETWORKS = ("resnet18", "densenet121", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t")
NETWORKS += ("timm vit_tiny", "timm deit_tiny", "r3d_18", "swin3d_t")
#: Seconds after which a cell is stopped: Score-CAM and Ablation-CAM take a pass per channel.
LIMIT = 20.0


def network(name: str) -> nn.Module:
    """Return a network with random weights and a head that is not zero."""
    torch.manual_seed(0)
    if name.startswith("timm "):
        import timm

        model = timm.create_model(f"{name.removeprefix('timm ')}_patch16_224")
    elif name in torchvision.models.list_models() and name not in ("resnet18", "densenet121", "efficientnet_b0"):
        model = torchvision.models.get_model(name, weights=None)
    else:
        model = build(name, (3, 224, 224), 1000, weights=None)
    nn.init.normal_([module for module in model.modules() if isinstance(module, nn.Linear)][-1].weight, std=0.02)
    return model.eval()


def cell(call: Callable[[], object], images: int = 1) -> str:
    """Return the median of up to three calls in milliseconds per image, ``refused`` or ``stopped``."""
    times: list[float] = []
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        while len(times) < 3 and sum(times) < 1000 / images:
            times.append(1000 * timed(call)[1] / images)
    except UnsupportedModelError:
        return "refused"
    except TimeoutError:
        return "stopped"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return f"{statistics.median(times):.0f}"


def column(name: str) -> list[str]:
    """Measure a forward pass, a gradient and every explainer on a network."""
    model, shape = network(name), (3, 16, 64, 64) if name in ("r3d_18", "swin3d_t") else (3, 224, 224)
    pixels = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = [cell(lambda: model(pixels.detach())), cell(lambda: torch.autograd.grad(model(pixels)[0, 0], pixels))]
    for explainer in EXPLAINERS:
        images = pixels.detach().repeat(2 if explainer == "pfi" else 1, *[1] * len(shape))  # PFI swaps values of images
        targets = torch.zeros(len(images), dtype=torch.int64)
        # Through many layers, the maps of patterns leave the range of float32.
        precise = {"dtype": torch.float64} if explainer in ("pattern_net", "pattern_attribution") else {}
        part: Any = EXPLAINERS.resolve(explainer)(**FEW.get(explainer, {}))
        try:
            if hasattr(part, "fit"):
                several = torch.cat([images, images])
                part = part.fit(model, [(several, several[:, 0] > 0.5, targets)])
        except UnsupportedModelError:
            found.append("refused")
            continue
        call = functools.partial(explain, part, model, images, targets, device="cpu", **precise)
        found.append(cell(call, len(images)))
        print(name, explainer, found[-1], file=sys.stderr, flush=True)
    return found


def check(rounds: int) -> bool:
    """Print the milliseconds of calls with and without the check, and return whether following calls are as fast."""
    torch.manual_seed(0)
    model = build("resnet18", (3, 224, 224), 1000, weights=None).eval()
    x = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    good, forward = True, 1000 * least_seconds(lambda: model(x), 5)
    print(f"A forward pass of two images takes {forward:.0f} ms.\n")
    print_head("explainer", "without the check", "first call", "in forward passes", "following calls", "difference")
    for name, parameters in (("saliency", {}), ("integrated_gradients", {"n_steps": 10})):
        call = functools.partial(explain, name, model, x, 0, device="cpu", progress=False, **parameters)

        def unchecked(call: Callable[[], Tensor] = call) -> Tensor:
            with unittest.mock.patch("xaibench.explainers.api.check_contract"):
                return call()

        def first(call: Callable[[], Tensor] = call) -> Tensor:
            network_contract._records.clear()
            return call()

        first()
        times = in_turn(rounds, unchecked=unchecked, checked=call, first=first)
        ms = {kind: 1000 * statistics.median(seconds) for kind, seconds in times.items()}
        ratios = (after / before for after, before in zip(times["checked"], times["unchecked"], strict=True))
        more = statistics.median(ratios) - 1
        passes = (ms["first"] - ms["unchecked"]) / forward
        unchecked_ms, checked_ms, first_ms = (f"{value:.0f}" for value in ms.values())
        print_row(name, unchecked_ms, first_ms, f"+{passes:.1f}", checked_ms, f"{more:+.1%}")
        good &= more < 0.02
    return good


def stop(signal_number: int, frame: object) -> None:
    """Handle the timer's signal."""
    raise TimeoutError


def main() -> None:
    parser = command_line(__doc__)
    modes = parser.add_mutually_exclusive_group(required=True)
    modes.add_argument("--steps", action="store_true", help="time of a step with few changed values")
    modes.add_argument("--networks", nargs="*", choices=NETWORKS, help="every explainer on these networks")
    modes.add_argument("--check", action="store_true", help="time of the check of a network")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)
    if arguments.networks is not None:
        signal.signal(signal.SIGVTALRM, stop)
        names = arguments.networks or NETWORKS
        rows = zip(["explainer", "a pass", "a gradient", *EXPLAINERS], *([n, *column(n)] for n in names), strict=True)
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return
    sys.exit(not (check if arguments.check else steps)(arguments.rounds))


if __name__ == "__main__":
    main()
