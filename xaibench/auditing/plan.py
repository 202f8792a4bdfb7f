"""The plan of an audit: how thorough it is, and how long it takes.

How many passes explainers and questions get follows from the cost of a pass of the network, so that an audit ends
within a given time. The cost is counted in operations, not in seconds: an audit is the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from xaibench.auditing.candidates import Candidates
from xaibench.auditing.images import Subject, divided_axes
from xaibench.auditing.network_accuracy import COPIES
from xaibench.core.progress import format_duration

#: Minutes of an audit, and passes per image of an explainer that draws no random numbers.
MINUTES, BUDGET = 15.0, 50
#: Two cores: seconds per floating-point operation, and per value that a layer writes. Measured with MobileNet-v2,
#: ResNet-18 and VGG-16 at 224 px (18, 20 and 195 ms per image on an AMD EPYC).
_PER_OPERATION, _PER_VALUE = 5.2e-12, 0.75e-9


@dataclass(frozen=True)
class Effort:
    """How thorough an audit is.

    Attributes:
        budget: Passes per image of explainers that draw no random numbers.
        sampling: Most passes per image of explainers that draw random numbers; they get their usual number (the
            default of their parameters, mostly from their papers) if that is less. 0: they are left out.
        samples: Number of samples of each question of the truth *use*.
        windows: Regions along each axis of an image that are searched for decisive ones.
        steps: Steps of SRG; 0: SRG is left out.
        percentiles: Shares of pixels that ROAD removes; none: ROAD is left out.
        grid: Patches along each axis, for IDSDS.
        regions: Regions of an image for the sanity checks.
        repeats: Images that are explained again for the sanity checks.
        tested: Most images on which the network is compared with copies, without labels.
        left_out: Questions and sanity checks that are not made.
    """

    budget: int = BUDGET
    sampling: int = 10_000
    samples: int = 12
    windows: int = 7
    steps: int = 5
    percentiles: tuple[int, ...] = (20, 50, 80)
    grid: int = 7
    regions: int = 32
    repeats: int = 6
    tested: int = 100
    left_out: tuple[str, ...] = ()

    @property
    def metrics(self) -> int:
        """Number of metrics of the interventions."""
        return 1 + bool(self.steps) + bool(self.percentiles)

    def grid_of(self, images: Tensor) -> int:
        """Return the patches along each axis: at most 4 for volumes, of at least 4 pixels if possible."""
        most = self.grid if divided_axes(images) <= 2 else min(self.grid, 4)
        return max(2, min([most, *(side // 4 for side in images.shape[2:] if side > 1)]))


#: Why a question or a check is not made.
LEFT_OUT = "left out to finish in the given time (--minutes)"
#: From the most to the least thorough.
EFFORTS = (
    *(Effort(sampling=passes) for passes in (10_000, 2000, 1000, 500, 200, 0)),
    Effort(budget=30, sampling=0),
    Effort(budget=20, sampling=0, samples=8, windows=5, steps=3, grid=5, regions=16, repeats=5, tested=20),
    Effort(
        budget=10,
        sampling=0,
        samples=6,
        windows=3,
        steps=0,
        percentiles=(),
        grid=4,
        regions=16,
        repeats=5,
        tested=10,
        left_out=("mosaics", "noise"),
    ),
)


@dataclass(frozen=True)
class AuditPlan:
    """The settings of an audit, and a forecast of its passes and duration.

    Attributes:
        effort: How thorough it is.
        budgets: Most passes per image, by explainer.
        passes: Passes per image, by explainer; None if unknown.
        left_out: Explainers that are left out, with the reason.
        stages: Number of passes of an image through the network, by stage.
        seconds_per_pass: Measured time of a pass.
        images: Number of images.
    """

    effort: Effort
    budgets: Mapping[str, int]
    passes: Mapping[str, int | None]
    left_out: Mapping[str, str]
    stages: Mapping[str, int]
    seconds_per_pass: float
    images: int

    @property
    def seconds(self) -> float:
        """Forecast of the duration."""
        return self.seconds_per_pass * sum(self.stages.values())

    def __str__(self) -> str:
        lines = [f"Audit of {len(self.passes)} explainers on {self.images} images: about {self.forecast}.", ""]
        lines += [
            f"  {name:<24} {count:>9,} passes  {format_duration(count * self.seconds_per_pass):>12}"
            for name, count in self.stages.items()
        ]
        lines += ["", "Passes per image of each explainer:"]
        lines += [f"  {label:<24} {count if count else 'unknown':>9}" for label, count in self.passes.items()]
        lines += [f"  {label:<24} left out: {reason}" for label, reason in self.left_out.items()]
        return "\n".join(lines)

    @property
    def forecast(self) -> str:
        """The duration in words."""
        return format_duration(max(1.0, self.seconds))


def make_plan(
    subject: Subject, candidates: Candidates, *, budget: int | None, minutes: float, train: bool
) -> AuditPlan:
    """Choose the most thorough audit that takes the given time on two cores.

    Args:
        subject: Network and images.
        candidates: The explainers, without budgets.
        budget: Passes per image for all explainers; None: what the time allows.
        minutes: The time, for the number of operations that the network takes.
        train: Whether a copy of the network is trained.

    Returns:
        The plan. If even the least thorough audit takes longer, that one.
    """
    cost, measured = count_seconds(subject), _measure(subject)
    for effort in EFFORTS if budget is None else (Effort(budget, budget),):
        plan = _plan(subject, candidates, effort, train, measured)
        if cost * sum(plan.stages.values()) <= 60 * minutes:
            break
    return plan


def _plan(subject: Subject, candidates: Candidates, effort: Effort, train: bool, measured: float) -> AuditPlan:
    image = subject.images[:1]
    budgets, passes, left_out = {}, {}, {}
    for label in candidates.explainers:
        most = effort.budget
        try:
            if candidates.has_seed(label):
                usual = candidates.passes(label, image) or effort.budget
                most = min(effort.sampling, usual)
                if not most:
                    left_out[label] = (
                        f"it usually makes {usual:,} passes per image, which take longer than the audit may; give a "
                        "larger minutes= (--minutes), or a budget= (--budget) for all explainers"
                    )
                    continue
            passes[label] = candidates.passes(label, image, most)
        except ValueError as error:
            left_out[label] = str(error)
        else:
            budgets[label] = most
    stages = _count_passes(subject, candidates, effort, passes, train)
    return AuditPlan(effort, budgets, passes, left_out, stages, measured, len(subject.images))


def _count_passes(
    subject: Subject, candidates: Candidates, effort: Effort, passes: Mapping[str, int | None], train: bool
) -> dict[str, int]:
    """Return the passes of each stage; approximate where they depend on the answers of the network."""
    images, axes = len(subject.images), divided_axes(subject.images)
    patches = effort.grid_of(subject.images) ** axes + 1
    parts = 2**axes
    windows = (effort.windows if axes <= 2 else min(effort.windows, 4)) ** axes
    left_out = effort.left_out
    causes = ((5 if train else 4) - ("mosaics" in left_out)) * effort.samples
    again = ((3 if subject.logits.shape[1] > 2 else 2) - ("noise" in left_out)) * effort.repeats
    maps = sum(
        (count or 2) * (images + causes + again + effort.repeats * candidates.is_random(label))
        for label, count in passes.items()
    )
    labels = len(passes) + len(candidates.controls)
    metrics = max(0, 2 * effort.steps - 1) + (2 * len(effort.percentiles) + 1 if effort.percentiles else 0)
    return {
        "test of the network": 0 if subject.labels is not None else COPIES * min(images, effort.tested),
        "decisive regions": images * windows * 11 // 10,
        "known causes": (16 if "mosaics" in left_out else 24) * effort.samples
        + parts * images
        + (60 * images if train else 0),
        "maps": maps,
        "interventions": labels * images * metrics + images * patches,
        "sanity checks": (2 if "noise" in left_out else 3) * effort.repeats * (effort.regions + 1),
    }


def count_seconds(subject: Subject) -> float:
    """Return the seconds of a pass of one image on two cores, from the operations of the network.

    Args:
        subject: Network and images.
    """
    written = 0

    class CountValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal written
            result = call(*args, **(kwargs or {}))
            if not call.is_view:
                written += sum(one.numel() for one in tree_leaves(result) if isinstance(one, Tensor))
            return result

    counter = CountValues()  # type: ignore[no-untyped-call]
    with counter, FlopCounterMode(display=False) as operations:
        subject.ask(subject.images[:1])
    return _PER_OPERATION * float(operations.get_total_flops()) + _PER_VALUE * written


def _measure(subject: Subject) -> float:
    """Return the seconds of a pass on this machine: the fastest of three batches."""
    images, seconds = subject.images[:8], []
    for _ in range(3):
        started = time.perf_counter()
        subject.ask(images)
        seconds.append(time.perf_counter() - started)
    return min(seconds) / len(images)
