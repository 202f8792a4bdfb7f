"""Classes of the metrics that ask the model, and of those that ask the explainer.

``update(model, images, maps, targets)`` and ``update(explainer, model, images, targets)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xaibench.metrics.torchmetrics.class_bases import ExplainerScore, ModelScore

if TYPE_CHECKING:
    from xaibench.metrics.model.attack import Pixels
    from xaibench.metrics.model.disturbance import Perturbation
    from xaibench.metrics.model.imputation import Order
    from xaibench.metrics.shared.asked_model import Output
    from xaibench.metrics.shared.replaced_pixels import Baseline


class Deletion(ModelScore):
    """Mean area under the deletion curve, :func:`xaibench.metrics.deletion`; the parameters are its."""

    def __init__(
        self,
        *,
        steps: int = 224,
        baseline: Baseline = 0.0,
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {"steps": steps, "baseline": baseline, "output": output, "batch_size": batch_size}
        super().__init__("deletion", own)


class Insertion(ModelScore):
    """Mean area under the insertion curve, :func:`xaibench.metrics.insertion`; the parameters are its."""

    def __init__(
        self,
        *,
        steps: int = 224,
        baseline: Baseline = "blur",
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {"steps": steps, "baseline": baseline, "output": output, "batch_size": batch_size}
        super().__init__("insertion", own)


class Comprehensiveness(ModelScore):
    """Mean :func:`xaibench.metrics.comprehensiveness`; the parameters are its."""

    def __init__(
        self,
        *,
        fraction: float | Sequence[float] = 0.2,
        baseline: Baseline = 0.0,
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {"fraction": fraction, "baseline": baseline, "output": output, "batch_size": batch_size}
        super().__init__("comprehensiveness", own)


class Sufficiency(ModelScore):
    """Mean :func:`xaibench.metrics.sufficiency`; the parameters are its."""

    def __init__(
        self,
        *,
        fraction: float | Sequence[float] = 0.2,
        baseline: Baseline = 0.0,
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {"fraction": fraction, "baseline": baseline, "output": output, "batch_size": batch_size}
        super().__init__("sufficiency", own)


class AverageDrop(ModelScore):
    """Average drop in percent, :func:`xaibench.metrics.average_drop`; the parameters are its."""

    def __init__(self, *, output: Output = "softmax", batch_size: int | None = None) -> None:
        super().__init__("average_drop", {"output": output, "batch_size": batch_size})


class IncreaseInConfidence(ModelScore):
    """Share of scores that rise, :func:`xaibench.metrics.increase_in_confidence`; the parameters are its."""

    def __init__(self, *, output: Output = "softmax", batch_size: int | None = None) -> None:
        super().__init__("increase_in_confidence", {"output": output, "batch_size": batch_size})


class Adversarial(ModelScore):
    """Mean drop under attack, :func:`xaibench.metrics.adversarial`; the parameters are its."""

    def __init__(
        self,
        *,
        fraction: float = 0.1,
        epsilon: float = 0.1,
        steps: int = 10,
        step_size: float | None = None,
        bounds: tuple[float, float] | None = None,
        pixels: Pixels = "top",
        seed: int = 0,
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {
            "fraction": fraction,
            "epsilon": epsilon,
            "steps": steps,
            "step_size": step_size,
            "bounds": bounds,
            "pixels": pixels,
            "seed": seed,
            "output": output,
            "batch_size": batch_size,
        }
        super().__init__("adversarial", own)


class Infidelity(ModelScore):
    """Mean :func:`xaibench.metrics.infidelity`; the parameters are its."""

    def __init__(
        self,
        *,
        perturbation: Perturbation = "square",
        n_samples: int = 200,
        sigma: float = 0.2,
        rescale: bool = True,
        seed: int = 0,
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {
            "perturbation": perturbation,
            "n_samples": n_samples,
            "sigma": sigma,
            "rescale": rescale,
            "seed": seed,
            "output": output,
            "batch_size": batch_size,
        }
        super().__init__("infidelity", own)


class ROAD(ModelScore):
    """Mean :func:`xaibench.metrics.road`; the parameters are its."""

    def __init__(
        self,
        *,
        percentiles: Sequence[float] = (10, 20, 30, 40, 50, 60, 70, 80, 90),
        order: Order = "both",
        noise: float = 0.01,
        seed: int = 0,
        output: Output = "softmax",
        batch_size: int | None = None,
    ) -> None:
        own = {
            "percentiles": percentiles,
            "order": order,
            "noise": noise,
            "seed": seed,
            "output": output,
            "batch_size": batch_size,
        }
        super().__init__("road", own)


class DataConsistency(ExplainerScore):
    """Mean :func:`xaibench.metrics.data_consistency`; the parameters are its."""

    def __init__(
        self,
        *,
        fraction: float = 0.1,
        n_samples: int = 10,
        relative: bool = False,
        seed: int = 0,
        batch_size: int | None = None,
    ) -> None:
        own = {
            "fraction": fraction,
            "n_samples": n_samples,
            "relative": relative,
            "seed": seed,
            "batch_size": batch_size,
        }
        super().__init__("data_consistency", own)


class SensitivityMax(ExplainerScore):
    """Mean :func:`xaibench.metrics.sensitivity_max`; the parameters are its."""

    def __init__(
        self,
        *,
        radius: float = 0.02,
        n_samples: int = 10,
        seed: int = 0,
        batch_size: int | None = None,
    ) -> None:
        own = {"radius": radius, "n_samples": n_samples, "seed": seed, "batch_size": batch_size}
        super().__init__("sensitivity_max", own)


class ParameterRandomisation(ExplainerScore):
    """Mean :func:`xaibench.metrics.parameter_randomisation`; the parameters are its."""

    def __init__(self, *, magnitude: bool = False, seed: int = 0, batch_size: int | None = None) -> None:
        super().__init__("parameter_randomisation", {"magnitude": magnitude, "seed": seed, "batch_size": batch_size})
