"""The explainers and controls of an audit, and their maps."""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xaibench.auditing.images import Subject, divided_axes
from xaibench.core.messages import ParameterWarning
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
        controls: The controls by label.
        output: The explained output (:func:`xaibench.explain`); None: the one that each explainer's paper explains.
        seed: Seed of explainers that draw random numbers.
        device: Where maps are computed.
        inapplicable: Explainers that were left out, with the reason.
        errors: Why an explainer has no maps of a task for the explainers, by label and key.
        seconds: Time that each explainer took.
    """

    explainers: dict[str, Any]
    budgets: Mapping[str, int] = field(default_factory=dict)
    controls: Sequence[str] = CONTROLS
    output: Any = None
    seed: int = 0
    device: str = "auto"
    inapplicable: dict[str, str] = field(default_factory=dict)
    errors: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """Explainers, then controls."""
        return [*self.explainers, *self.controls]

    def has_seed(self, label: str) -> bool:
        """Whether an explainer is known to draw random numbers."""
        return hasattr(_part(self.explainers[label]), "seed")

    def is_random(self, label: str) -> bool:
        """Whether an explainer draws random numbers, or may do so because it is not registered."""
        return self.has_seed(label) or EXPLAINERS.name_of(_part(self.explainers[label])) is None

    def explains(self, label: str, task: Task) -> bool:
        """Whether a task is for an explainer or a control."""
        if task.by == "all":
            return True
        return label in self.explainers and (task.by == "explainers" or self.is_random(label))

    def passes(self, label: str, image: Tensor, budget: int | None = None) -> int | None:
        """Return the passes of an explainer for an image ``[1, C, H, W]``; None if unknown.

        Args:
            label: The explainer.
            image: An image.
            budget: Maximum number of passes; None: those that the explainer's paper uses.

        Raises:
            ValueError: If the budget is too small.
        """
        limit = {} if budget is None else {"budget": budget}
        applied = AppliedExplainer(self.explainers[label], self._parameters(label, image) | limit)
        return applied.declared_passes(image) if budget is None else applied.passes_in_budget(image)

    def compute(
        self, label: str, tasks: Sequence[Task], subject: Subject, advance: Callable[[int], None]
    ) -> dict[str, Tensor]:
        """Compute the maps of an explainer or a control for all tasks.

        Args:
            label: The explainer or control.
            tasks: What is explained.
            subject: Stores the maps. Those of functions and objects are computed again, since they may have changed.
            advance: Called with the number of maps made.

        Returns:
            Maps ``[n, H, W]`` by the key of the task.

        Raises:
            ValueError: If the explainer does not support a network or its budget; also UnsupportedModelError and
                NotFittedError.
        """
        explainer, maps = self.explainers.get(label, label), {}
        for task in tasks:
            try:
                if isinstance(explainer, str) and explainer in EXPLAINERS:
                    name, explain = f"{task.key}-{explainer}", functools.partial(self._explain, label, task)
                    inputs = [self.budgets.get(label), task.seed, task.output, self.seed, self.output]
                    inputs += itertools.chain(*task.parts)
                    maps[task.key] = subject.stored("explain", name, inputs, explain)
                else:
                    maps[task.key] = self._explain(label, task)
            except ValueError as error:
                if task.by != "explainers":
                    raise
                self.errors[label, task.key] = str(error)
            advance(len(task))
        return maps

    def _explain(self, label: str, task: Task) -> Tensor:
        control, images = label not in self.explainers, task.parts[0][1]
        parameters = {} if control else self._parameters(label, images) | {"budget": self.budgets[label]}
        applied = AppliedExplainer(
            self.explainers.get(label, label),
            parameters,
            seed=self.seed if task.seed is None else task.seed,
            output=task.output or self.output,
            device=self.device,
        )
        started = time.monotonic()
        with warnings.catch_warnings():
            # About settings that the audit chose, such as a small budget. What follows from them shows in the scores.
            warnings.simplefilter("ignore", ParameterWarning)
            maps = [applied(None if control else model, shown, targets) for model, shown, targets in task.parts]
        self.seconds[label] = self.seconds.get(label, 0.0) + time.monotonic() - started
        return torch.cat(maps)

    def _parameters(self, label: str, images: Tensor) -> dict[str, Any]:
        if self.explainers[label] not in _BY_REGION:
            return {}
        # Few squares: the defaults can be more features than passes.
        regions = _REGIONS if divided_axes(images) <= 2 else _VOLUME_REGIONS
        return {"feature_mask": "grid", "cell_size": -(-max(images.shape[2:]) // regions)}

    def explained_output(self, label: str) -> Any:
        """Return the output that an explainer explains on the images."""
        return self.output or getattr(_part(self.explainers[label]), "explains", None) or "probability"


def _part(explainer: Any) -> Any:
    return EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer


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
