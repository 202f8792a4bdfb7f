"""The explainers of an audit, how thorough it is, and how long it takes.

How many passes explainers and questions get follows from the cost of a pass of the network, so that an audit ends
within a given time. The cost is counted in operations, not in seconds: an audit is the same on every machine.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from xaibench.auditing.findings import COPIES
from xaibench.auditing.images import Subject, divided_axes
from xaibench.core.messages import ParameterWarning
from xaibench.core.progress import ProgressBar, format_duration
from xaibench.evaluation.apply import AppliedExplainer
from xaibench.evaluation.evaluate import CONTROLS, default_label
from xaibench.explainers import EXPLAINERS

#: Explainers of an audit by default: one or two of each family. Those that do not support the network are left out.
DEFAULT = (
    *("saliency", "input_x_gradient", "integrated_gradients", "smoothgrad", "guided_backprop"),
    *("deeplift", "lrp_gamma", "gradcam", "layercam"),
    *("attnlrp", "gradient_rollout", "legrad"),
    *("occlusion", "rise", "lime", "kernel_shap"),
)
#: Explainers that perturb regions of the image, and regions per axis of images and of volumes: fewer regions than
#: passes, 36 and 27.
_BY_REGION, _REGIONS, _VOLUME_REGIONS = ("lime", "kernel_shap"), 6, 3
#: Explainers whose values add up to the difference of the output from that of a black image, pixel by pixel.
COMPLETE = frozenset({"integrated_gradients"})


@dataclass(frozen=True)
class Task:
    """Images that every explainer explains.

    Attributes:
        key: Unique name.
        parts: Network, images ``[n, C, H, W]`` and targets ``[n]``. A network explains the images of its part.
        output: The explained output; None: that of the audit.
        seed: Seed of explainers that draw random numbers; None: that of the audit.
        by: Who explains them: also the controls, the explainers, or explainers that draw random numbers. An explainer
            that cannot explain what is for the explainers only is tested all the same.
    """

    key: str
    parts: Sequence[tuple[nn.Module, Tensor, Tensor]]
    output: Any = None
    seed: int | None = None
    by: Literal["all", "explainers", "random explainers"] = "all"

    def __len__(self) -> int:
        return sum(len(images) for _, images, _ in self.parts)


@dataclass
class Candidates:
    """Explainers and controls of an audit.

    Attributes:
        explainers: The explainers by label.
        budgets: Maximum number of passes per image of each explainer; forward and backward passes count alike.
        passes: Passes per image of each explainer; None if unknown.
        controls: The controls by label.
        seed: Seed of explainers that draw random numbers.
        inapplicable: Explainers that were left out, with the reason.
        errors: Why an explainer has no maps of a task for the explainers, by label and key.
        seconds: Time that each explainer took.
    """

    explainers: dict[str, Any]
    budgets: dict[str, int] = field(default_factory=dict)
    passes: dict[str, int | None] = field(default_factory=dict)
    controls: Sequence[str] = CONTROLS
    seed: int = 0
    inapplicable: dict[str, str] = field(default_factory=dict)
    errors: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """Explainers, then controls."""
        return [*self.explainers, *self.controls]

    def part(self, label: str) -> Any:
        """Return an explainer: a registered class, or the user's own object."""
        explainer = self.explainers[label]
        return EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer

    def has_seed(self, label: str) -> bool:
        """Whether an explainer is known to draw random numbers."""
        return hasattr(self.part(label), "seed")

    def is_random(self, label: str) -> bool:
        """Whether an explainer draws random numbers, or may do so because it is not registered."""
        return self.has_seed(label) or EXPLAINERS.name_of(self.part(label)) is None

    def within(self, effort: Effort, image: Tensor) -> Candidates:
        """Return the explainers with the passes that an effort allows for an image ``[1, C, H, W]``.

        Explainers for which these are too few are left out.
        """
        chosen = replace(self, explainers={}, budgets={}, passes={}, inapplicable={})
        for label, explainer in self.explainers.items():
            most = effort.budget
            try:
                if self.has_seed(label):
                    usual = self._applied(label, image).declared_passes(image) or most
                    most = min(effort.sampling, usual)
                    if not most:
                        chosen.inapplicable[label] = (
                            f"it usually makes {usual:,} passes per image, which take longer than the audit may; give "
                            "a larger minutes= (--minutes), or a budget= (--budget) for all explainers"
                        )
                        continue
                chosen.passes[label] = self._applied(label, image, budget=most).passes_in_budget(image)
            except ValueError as error:
                chosen.inapplicable[label] = str(error)
            else:
                chosen.explainers[label], chosen.budgets[label] = explainer, most
        return chosen

    def explain(
        self,
        subject: Subject,
        tasks: Sequence[Task],
        progress: bool = False,
        begin: Callable[[str], None] = lambda stage: None,
    ) -> dict[str, dict[str, Tensor]]:
        """Compute the maps of all explainers and controls. Explainers that do not support the network are left out.

        Args:
            subject: Stores the maps. Those of functions and objects are computed again, since they may have changed.
            tasks: What is explained.
            progress: Show a progress bar.
            begin: Called with the name of each explainer before its maps.

        Returns:
            Maps ``[n, H, W]`` by explainer and the key of the task.

        Raises:
            ValueError: If no explainer supports the network and its budget.
        """
        maps, labels = {}, self.labels
        wanted = {label: [task for task in tasks if self._explains(label, task)] for label in labels}
        total = sum(len(task) for chosen in wanted.values() for task in chosen)
        with ProgressBar("maps", total, "map", shown=progress, keep=True) as bar:
            for number, label in enumerate(labels, 1):
                begin(f"maps {number} of {len(labels)}: {label}")
                found = {}
                try:
                    for task in wanted[label]:
                        try:
                            found[task.key] = self._explain(label, task, subject)
                        except ValueError as error:
                            if task.by != "explainers":
                                raise
                            self.errors[label, task.key] = str(error)
                        bar.advance(len(task))
                except ValueError as error:
                    self.inapplicable[label] = str(error)
                    del self.explainers[label]
                else:
                    maps[label] = found
        if not self.explainers:
            reasons = "; ".join(f"{label}: {why}" for label, why in self.inapplicable.items())
            raise ValueError(f"None of the explainers supports this network. {reasons}")
        return maps

    def _explains(self, label: str, task: Task) -> bool:
        if task.by == "all":
            return True
        return label in self.explainers and (task.by == "explainers" or self.is_random(label))

    def _explain(self, label: str, task: Task, subject: Subject) -> Tensor:
        explainer, budget = self.explainers.get(label, label), self.budgets.get(label)
        settings = {"seed": self.seed if task.seed is None else task.seed, "output": task.output or subject.output}

        def compute() -> Tensor:
            applied = self._applied(label, task.parts[0][1], budget=budget, device=subject.device, **settings)
            started = time.monotonic()
            with warnings.catch_warnings():
                # About settings that the audit chose, such as a small budget. What follows from them shows in the
                # scores.
                warnings.simplefilter("ignore", ParameterWarning)
                maps = [applied(model if budget else None, shown, targets) for model, shown, targets in task.parts]
            self.seconds[label] = self.seconds.get(label, 0.0) + time.monotonic() - started
            return torch.cat(maps)

        if not isinstance(explainer, str) or explainer not in EXPLAINERS:
            return compute()
        inputs = [budget, settings, *itertools.chain(*task.parts)]
        return subject.stored("explain", f"{task.key}-{explainer}", inputs, compute)

    def _applied(self, label: str, images: Tensor, *, budget: int | None = None, **settings: Any) -> AppliedExplainer:
        explainer = self.explainers.get(label, label)
        parameters: dict[str, Any] = {} if budget is None else {"budget": budget}
        if explainer in _BY_REGION:
            # Few squares: the defaults can be more features than passes.
            regions = _REGIONS if divided_axes(images) <= 2 else _VOLUME_REGIONS
            parameters |= {"feature_mask": "grid", "cell_size": -(-max(images.shape[2:]) // regions)}
        return AppliedExplainer(explainer, parameters, **settings)


def choose_explainers(given: str | Sequence[Any] | Mapping[str, Any] | Any | None) -> dict[str, Any]:
    """Return explainers by label.

    Args:
        given: An explainer, a list of explainers, or ``{label: explainer}``; ``"all"`` for every registered explainer
            that needs no training data; None for :data:`DEFAULT`.

    Raises:
        ValueError: If two explainers have the same label, or one has the label of a control.
    """
    if given is None:
        return {name: name for name in DEFAULT}
    if given in ("all", ["all"]):
        parts = {name: EXPLAINERS.resolve(name) for name in EXPLAINERS}
        return {n: n for n, p in parts.items() if not getattr(p.info, "control", False) and not hasattr(p, "fit")}
    if isinstance(given, Mapping):
        if clash := sorted(set(given) & set(CONTROLS)):
            raise ValueError(f"explainers: {', '.join(clash)} is the label of a control; choose another label.")
        return dict(given)
    several = list(given) if isinstance(given, list | tuple) else [given]
    labels = [default_label(one) for one in several]
    if len(set(labels)) < len(labels):
        raise ValueError(f"explainers: got labels {labels}, expected different ones; give {{label: explainer}}.")
    return dict(zip(labels, several, strict=True))


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
        candidates: The explainers that take part, with their passes; and those that are left out, with the reason.
        stages: Number of passes of an image through the network, by stage.
        seconds_per_pass: Measured time of a pass.
        images: Number of images.
    """

    effort: Effort
    candidates: Candidates
    stages: Mapping[str, int]
    seconds_per_pass: float
    images: int

    @property
    def seconds(self) -> float:
        """Forecast of the duration."""
        return self.seconds_per_pass * sum(self.stages.values())

    def __str__(self) -> str:
        passes = self.candidates.passes
        lines = [f"Audit of {len(passes)} explainers on {self.images} images: about {self.forecast}.", ""]
        lines += [
            f"  {name:<24} {count:>9,} passes  {format_duration(count * self.seconds_per_pass):>12}"
            for name, count in self.stages.items()
        ]
        lines += ["", "Passes per image of each explainer:"]
        lines += [f"  {label:<24} {count if count else 'unknown':>9}" for label, count in passes.items()]
        lines += [f"  {label:<24} left out: {reason}" for label, reason in self.candidates.inapplicable.items()]
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
        chosen = candidates.within(effort, subject.images[:1])
        stages = _count_passes(subject, chosen, effort, train)
        if cost * sum(stages.values()) <= 60 * minutes:
            break
    return AuditPlan(effort, chosen, stages, measured, len(subject.images))


def _count_passes(subject: Subject, candidates: Candidates, effort: Effort, train: bool) -> dict[str, int]:
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
        for label, count in candidates.passes.items()
    )
    metrics = max(0, 2 * effort.steps - 1) + (2 * len(effort.percentiles) + 1 if effort.percentiles else 0)
    return {
        "test of the network": 0 if subject.labels is not None else COPIES * min(images, effort.tested),
        "decisive regions": images * windows * 11 // 10,
        "known causes": (16 if "mosaics" in left_out else 24) * effort.samples
        + parts * images
        + (60 * images if train else 0),
        "maps": maps,
        "interventions": len(candidates.labels) * images * metrics + images * patches,
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
