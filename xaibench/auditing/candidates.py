"""The explainers and controls of an audit, and their maps."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from xaibench.auditing.images import divided_axes
from xaibench.core.messages import ParameterWarning
from xaibench.evaluation.apply import AppliedExplainer
from xaibench.evaluation.evaluate import CONTROLS, default_label

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
#: Passes per image that every explainer may take.
BUDGET = 50


@dataclass
class Candidates:
    """Explainers and controls, called with the same budget.

    Attributes:
        explainers: The explainers by label.
        controls: The controls by label.
        budget: Maximum number of passes per image; forward and backward passes count alike.
        output: The explained output (:func:`xaibench.explain`); None: the one that each explainer's paper explains.
        seed: Seed of explainers that draw random numbers.
        device: Where maps are computed.
        inapplicable: Explainers that were left out, with the reason.
        seconds: Time that each explainer took so far.
    """

    explainers: dict[str, Any]
    controls: Sequence[str] = CONTROLS
    budget: int = BUDGET
    output: Any = None
    seed: int = 0
    device: str = "auto"
    inapplicable: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """Explainers, then controls."""
        return [*self.explainers, *self.controls]

    def drop_inapplicable(self, model: nn.Module, images: Tensor, targets: Tensor) -> None:
        """Explain images with each explainer; leave out explainers that do not support the network or the budget.

        Args:
            model: The network, or one of the copies that the audit makes of it.
            images: ``[n, C, H, W]``, one suffices.
            targets: ``[n]``.
        """
        for label in list(self.explainers):
            try:
                self.maps(label, model, images, targets)
            except ValueError as error:  # also UnsupportedModelError and NotFittedError
                self.inapplicable[label] = str(error)
                del self.explainers[label]

    def maps(
        self,
        label: str,
        model: nn.Module,
        images: Tensor,
        targets: Tensor,
        *,
        output: Any = None,
        seed: int | None = None,
    ) -> Tensor:
        """Compute maps ``[n, H, W]`` of an explainer or a control.

        Args:
            label: The explainer or control.
            model: The network.
            images: ``[n, C, H, W]``.
            targets: ``[n]``.
            output: Another explained output than that of the audit.
            seed: Another seed than that of the audit.
        """
        explainer = self.explainers.get(label, label)
        control = label not in self.explainers
        parameters: dict[str, Any] = {} if control else {"budget": self.budget}
        if explainer in _BY_REGION:  # few squares: the defaults can be more features than passes
            regions = _REGIONS if divided_axes(images) <= 2 else _VOLUME_REGIONS
            parameters |= {"feature_mask": "grid", "cell_size": -(-max(images.shape[2:]) // regions)}
        applied = AppliedExplainer(
            explainer,
            parameters,
            seed=self.seed if seed is None else seed,
            output=output or self.output,
            device=self.device,
        )
        started = time.monotonic()
        with warnings.catch_warnings():
            # About settings that the audit chose, such as a small budget. What follows from them shows in the scores.
            warnings.simplefilter("ignore", ParameterWarning)
            maps = applied(None if control else model, images, targets)
        self.seconds[label] = self.seconds.get(label, 0.0) + time.monotonic() - started
        return maps

    def explained_output(self, label: str) -> Any:
        """Return the output that an explainer explains on the images."""
        from xaibench.explainers import EXPLAINERS

        explainer = self.explainers[label]
        part = EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer
        return self.output or getattr(part, "explains", None) or "probability"


def choose_explainers(given: str | Sequence[Any] | Mapping[str, Any] | Any | None) -> dict[str, Any]:
    """Return explainers by label.

    Args:
        given: An explainer, a list of explainers, or ``{label: explainer}``; ``"all"`` for every registered explainer
            that needs no training data; None for :data:`DEFAULT`.

    Raises:
        ValueError: If two explainers have the same label, or one has the label of a control.
    """
    from xaibench.explainers import EXPLAINERS

    if given is None:
        return {name: name for name in DEFAULT}
    if isinstance(given, str) and given == "all":
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
